"""A run's pairs as JSONL, CSV or Parquet: columns that `trueup audit` and other tools read.

Unscored is null (JSONL, Parquet) or an empty field (CSV) with its reason in the column beside it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trueup.errors import ConfigError
from trueup.runlog import parquet
from trueup.runlog.reader import PAIR_COLUMNS, RunReader

__all__ = ["FORMATS", "export_pairs"]

FORMATS = ("jsonl", "csv", "parquet")

_KINDS = (int, str, str, int, float, str, float, float, str, float, float, float)


def export_pairs(run: Path, out: Path, format: str | None = None) -> int:
    """Write every kept rollout of the run folder to `out`; returns how many.

    The format follows the suffix unless given. The file appears whole or not at all.

    Raises:
        ConfigError: a format that is not one of `FORMATS`.
        MissingExtraError: Parquet without the extra.
    """
    chosen = format or out.suffix.lstrip(".").lower()
    if chosen not in FORMATS:
        raise ConfigError(
            f"The format must be one of {', '.join(FORMATS)}, got {chosen or 'none'!r}. Nothing was written. "
            "End the file's name with one of them, or pass --format."
        )
    beside = out.with_name(f".{out.name}.part")
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with RunReader(run) as reader:
            n = _WRITERS[chosen](beside, reader.pairs())
        beside.replace(out)
    finally:
        beside.unlink(missing_ok=True)
    return n


def _write_jsonl(path: Path, rows: Iterator[tuple[Any, ...]]) -> int:
    n = 0
    with path.open("w", encoding="utf-8") as file:
        for n, row in enumerate(rows, start=1):  # noqa: B007 - n is returned
            line = json.dumps(dict(zip(PAIR_COLUMNS, row, strict=True)), allow_nan=False, ensure_ascii=False)
            file.write(line + "\n")
    return n


def _write_csv(path: Path, rows: Iterator[tuple[Any, ...]]) -> int:
    n = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(PAIR_COLUMNS)
        for n, row in enumerate(rows, start=1):  # noqa: B007 - n is returned
            writer.writerow(row)
    return n


def _write_parquet(path: Path, rows: Iterator[tuple[Any, ...]]) -> int:
    return parquet.write_rows(path, PAIR_COLUMNS, _KINDS, rows)


_WRITERS = {"jsonl": _write_jsonl, "csv": _write_csv, "parquet": _write_parquet}
