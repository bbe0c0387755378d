"""Files into a `PairTable`: JSONL, CSV, Parquet, a trueup run folder, or step records in memory."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trueup.errors import DataError
from trueup.monitor.table import NUMERIC, OPTIONAL, REQUIRED, PairTable, build_table
from trueup.runlog import RunReader, is_run_folder
from trueup.runlog import parquet as parquet_file
from trueup.types import StepRecord

__all__ = ["load_table", "table_from_records"]

_WANTED = frozenset((*REQUIRED, *OPTIONAL))


def load_table(path: str | Path, *, needed: Sequence[str] = REQUIRED) -> PairTable:
    """Read a log by its suffix (.jsonl, .ndjson, .csv, .parquet) or as a run folder.

    Raises:
        DataError: nothing there, an unknown kind of file, or contents that `build_table` refuses.
        MissingExtraError: Parquet without the extra.
    """
    path = Path(path)
    if is_run_folder(path):
        return _from_run(path, needed)
    readers = {".jsonl": _from_jsonl, ".ndjson": _from_jsonl, ".csv": _from_csv, ".parquet": _from_parquet}
    if not path.exists() or path.is_dir() or path.suffix.lower() not in readers:
        what = (
            "nothing there"
            if not path.exists()
            else "a folder"
            if path.is_dir()
            else path.suffix or "no suffix"
        )
        raise DataError(
            f"{path} must be a .jsonl, .csv or .parquet file or a trueup run folder, got {what}. "
            "Nothing was read. Check the path."
        )
    if path.stat().st_size == 0:
        raise DataError(f"{path} must have at least one row, got an empty file. There is nothing to audit.")
    return readers[path.suffix.lower()](path, needed)


def _from_jsonl(path: Path, needed: Sequence[str]) -> PairTable:
    columns: dict[str, list[Any]] = {}
    hashes: list[int] = []
    n = 0
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise DataError(
                    f"{path} must hold one JSON object a line, and line {number} is none ({error}). "
                    "Nothing was read. Correct or remove the line."
                ) from None
            if not isinstance(row, dict):
                raise DataError(
                    f"{path} must hold one JSON object a line, got {type(row).__name__} in line {number}. "
                    "Nothing was read. Write one object per rollout."
                )
            for name in row.keys() & _WANTED:
                if name not in columns:
                    columns[name] = [None] * n
                columns[name].append(row[name])
            n += 1
            for column in columns.values():
                if len(column) < n:
                    column.append(None)
            hashes.append(hash(line.strip()))
    return build_table(columns, source=str(path), row_hash=hashes, needed=needed)


def _from_csv(path: Path, needed: Sequence[str]) -> PairTable:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.reader(file)
        header = [name.strip() for name in next(reader, [])]
        places = [(i, name) for i, name in enumerate(header) if name in _WANTED]
        columns: dict[str, list[Any]] = {name: [] for _, name in places}
        targets = [(i, columns[name]) for i, name in places]
        hashes: list[int] = []
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise DataError(
                    f"{path} must have {len(header)} fields in every row, got {len(row)} in line "
                    f"{reader.line_num}. Columns could not be told apart. Quote fields that hold a comma."
                )
            for i, column in targets:
                column.append(row[i])
            hashes.append(hash(tuple(row)))
    return build_table(columns, source=str(path), first_row=2, row_hash=hashes, needed=needed)


def _from_parquet(path: Path, needed: Sequence[str]) -> PairTable:
    return build_table(parquet_file.read_columns(path, tuple(_WANTED)), source=str(path), needed=needed)


def _from_run(path: Path, needed: Sequence[str]) -> PairTable:
    names = ("step", "family", "group", "proxy", "gold", "calibrated", "propensity")
    with RunReader(path) as reader:
        rows = [(r[0], r[1], r[2], r[4], r[7], r[6], r[9]) for r in reader.pairs()]
        steps = reader.steps()
        totals = {
            "n_rollouts": float(sum(s["n_rollouts"] for s in steps)),
            "n_gold_queries": float(sum(s["n_gold_queries"] for s in steps)),
            **reader.costs(),
        }
    columns = (
        dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)) if rows else {n: [] for n in names}
    )
    # Steps and places within them identify a rollout, so equal rows are honest ties.
    table = build_table(columns, source=str(path), row_hash=range(len(rows)), needed=needed)
    return replace(table, totals=totals)


def table_from_records(records: Iterable[StepRecord]) -> PairTable:
    """The table of a run in memory; every rollout, anchored or not."""
    columns: dict[str, list[Any]] = {
        name: [] for name in ("group", "family", *NUMERIC) if name not in ("kl", "cost")
    }
    for record in records:
        n = record.proxy.size
        columns["step"] += [record.step] * n
        columns["group"] += [repr(record.group_ids[g]) for g in record.group.tolist()]
        columns["family"] += [record.families[f] for f in record.family.tolist()]
        for name in ("proxy", "gold", "calibrated", "propensity"):
            columns[name] += getattr(record, name).tolist()
    return build_table(columns, source="the records", row_hash=range(len(columns["step"])))
