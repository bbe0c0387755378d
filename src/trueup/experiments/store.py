"""Files that are whole or absent: how the demo survives an interrupt.

Every file is written beside its place and then renamed, so a reader never sees half of one. A finished cell is
kept under the fingerprint of everything that determines it (settings, pass rates, versions, source). A rerun with
the same fingerprint takes it from there, any other rerun computes it again.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trueup

__all__ = ["CellStore", "fingerprint", "source_digest", "write_json"]


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write `data` so that `path` is either the old file or the whole new one. NaN and infinity are refused."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(data, indent=1, allow_nan=False) + "\n"
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def fingerprint(determines: Mapping[str, Any]) -> str:
    """A short name for everything that determines a result."""
    return hashlib.sha256(json.dumps(determines, sort_keys=True).encode()).hexdigest()[:16]


def source_digest() -> str:
    """Hash of every Python file of the installed package: a changed estimator is another experiment, whatever
    the version says."""
    digest = hashlib.sha256()
    root = Path(trueup.__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


class CellStore:
    """Finished cells of one experiment, one file each under `folder`."""

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self._folder = folder
        self._fingerprint = fingerprint

    def _path(self, scenario: str, arm: str) -> Path:
        return self._folder / f"{scenario}.{arm}.json"

    def load(self, scenario: str, arm: str) -> dict[str, Any] | None:
        """The cell, or None if it is absent, unreadable or of another experiment."""
        try:
            held = json.loads(self._path(scenario, arm).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(held, dict) or held.get("fingerprint") != self._fingerprint:
            return None
        cell = held.get("cell")
        return cell if isinstance(cell, dict) else None

    def save(self, cell: Mapping[str, Any]) -> None:
        write_json(
            self._path(cell["scenario"], cell["arm"]), {"fingerprint": self._fingerprint, "cell": cell}
        )
