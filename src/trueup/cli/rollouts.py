"""A file of rollouts with their verdicts, one JSON object a line: what `trueup filter` and `trueup gate` read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trueup.errors import DataError

__all__ = ["read_rollouts"]


def read_rollouts(path: Path) -> tuple[list[str], list[tuple[int, dict[str, Any]]]]:
    """Lines as they are, and (line number, object) of each; blank lines are passed over.

    Raises:
        DataError: the file or a line of it cannot be read.
    """
    lines: list[str] = []
    rows: list[tuple[int, dict[str, Any]]] = []
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} must be readable UTF-8, got {error}. Nothing was done.") from None
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}, line {number} must be JSON, got {error}. Nothing was done.") from None
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {number} must be an object. Nothing was done. Mend the line.")
        lines.append(line)
        rows.append((number, row))
    return lines, rows
