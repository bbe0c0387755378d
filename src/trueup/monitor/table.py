"""One table of scored rollouts, from whatever the log was written as.

The monitor sees nothing but this table, so it works on anyone's log: a trueup run folder, JSONL, CSV or
Parquet with the columns `group, family, proxy, gold` and, where known, `step, kl, cost, calibrated,
propensity, id`. What cannot be read as that raises a `DataError` that names the row; what can be read but is
unusual (missing scores, equal rows) is counted and told in `notes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError

__all__ = ["NUMERIC", "OPTIONAL", "REQUIRED", "PairTable", "build_table"]

REQUIRED = ("group", "family", "proxy", "gold")
OPTIONAL = ("step", "kl", "cost", "calibrated", "propensity", "id")
NUMERIC = ("proxy", "gold", "step", "kl", "cost", "calibrated", "propensity")

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PairTable:
    """Rollouts in the order of their steps; arrays are aligned, NaN is unscored or unknown.

    `unit` numbers the groups (one prompt at one step in one family) in order; a unit is the unit of evidence.
    """

    family: IntArray  # index into `families`
    families: tuple[str, ...]
    group: IntArray  # index into `groups`
    groups: tuple[str, ...]
    unit: IntArray
    step: IntArray  # the logged step, or the unit's number where none was logged
    has_steps: bool
    proxy: FloatArray
    gold: FloatArray
    calibrated: FloatArray | None = None
    kl: FloatArray | None = None  # nats, from the starting policy
    cost: FloatArray | None = None
    propensity: FloatArray | None = None
    notes: tuple[str, ...] = ()
    totals: Mapping[str, float] = field(default_factory=dict)
    """Of a run whose log keeps only its anchors: `n_rollouts`, `n_gold_queries`, and costs by name."""

    @property
    def n_rows(self) -> int:
        return int(self.proxy.size)

    @property
    def paired(self) -> NDArray[np.bool_]:
        """Rows with both scores."""
        return ~(np.isnan(self.proxy) | np.isnan(self.gold))

    def take(self, rows: NDArray[Any]) -> PairTable:
        """The same table with these rows only."""

        def cut(column: FloatArray | None) -> FloatArray | None:
            return None if column is None else column[rows]

        return replace(
            self, family=self.family[rows], group=self.group[rows], unit=self.unit[rows], step=self.step[rows],
            proxy=self.proxy[rows], gold=self.gold[rows], kl=cut(self.kl), cost=cut(self.cost),
            calibrated=cut(self.calibrated), propensity=cut(self.propensity),
        )  # fmt: skip


def build_table(
    columns: Mapping[str, Sequence[Any]],
    *,
    source: str,
    first_row: int = 1,
    row_hash: Sequence[int] | None = None,
    needed: Sequence[str] = REQUIRED,
) -> PairTable:
    """Check and convert columns of plain Python values (or strings of a CSV file).

    Args:
        source: what to call the file in errors.
        first_row: number of the first data row for a reader of the file (2 under a CSV header).
        row_hash: one hash per whole row, columns unknown to us included; finds equal rows.
        needed: the columns that must be there.

    Raises:
        DataError: a missing column, no rows, a value of the wrong type, contradicting rows.
    """
    missing = [name for name in needed if name not in columns]
    if missing:
        raise DataError(
            f"{source} must have the columns {', '.join(needed)}, got {', '.join(columns) or 'none'} "
            f"(missing: {', '.join(missing)}). Nothing could be compared. Rename or add them."
        )
    n = len(next(iter(columns.values())))
    if n == 0:
        raise DataError(f"{source} must have at least one row, got none. There is nothing to audit.")
    notes: list[str] = []
    numbers = {
        name: _numbers(columns[name], name, source, first_row, notes) for name in NUMERIC if name in columns
    }
    labels = {
        name: _labels(columns[name], name, source, first_row)
        for name in ("group", "family")
        if name in columns
    }
    ids = [str(v) for v in columns["id"]] if "id" in columns else None
    keep = _distinct_rows(labels, numbers, ids, row_hash, source, notes)
    if keep is not None:
        numbers = {name: column[keep] for name, column in numbers.items()}
        labels = {name: (codes[keep], names) for name, (codes, names) in labels.items()}
    return _assemble(labels, numbers, notes, source)


def _assemble(
    labels: dict[str, tuple[IntArray, tuple[str, ...]]],
    numbers: dict[str, FloatArray],
    notes: list[str],
    source: str,
) -> PairTable:
    n = next(iter(numbers.values())).size
    group, groups = labels["group"]
    family, families = labels.get("family", (np.zeros(n, np.int64), ("all",)))
    has_steps = "step" in numbers
    step = numbers.get("step", np.zeros(n))
    if has_steps and (np.isnan(step).any() or (step != np.round(step)).any()):
        raise DataError(
            f"{source}: every step must be a whole number, and some are missing or fractional. "
            "Rows could not be put in order. Fill the column, or leave it out."
        )
    steps = step.astype(np.int64)
    order = np.argsort(steps, kind="stable")
    place = np.unique(steps, return_inverse=True)[1].reshape(-1)
    key = (place * len(families) + family) * (int(group.max()) + 1) + group
    _, first, inverse = np.unique(key[order], return_index=True, return_inverse=True)
    rank = np.empty(first.size, np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(first.size)
    unit = rank[inverse.reshape(-1)]
    proxy = numbers.get("proxy", np.full(n, np.nan))[order]

    def optional(name: str) -> FloatArray | None:
        return numbers[name][order] if name in numbers else None

    if not has_steps:
        notes.append("no step column: groups are taken in the order of the file, and count as steps")
    table = PairTable(
        family=family[order], families=families, group=group[order], groups=groups, unit=unit,
        step=steps[order] if has_steps else unit,
        has_steps=has_steps, proxy=proxy, gold=numbers["gold"][order], notes=tuple(notes),
        calibrated=optional("calibrated"), kl=optional("kl"), cost=optional("cost"), propensity=optional("propensity"),
    )  # fmt: skip
    _check_propensity(table, source)
    return table


def _check_propensity(table: PairTable, source: str) -> None:
    if table.propensity is None:
        return
    p = table.propensity[table.paired & ~np.isnan(table.propensity)]
    if p.size and not ((p > 0) & (p <= 1)).all():
        raise DataError(
            f"{source}: the propensity of a rollout with gold must lie in (0, 1], got {float(p.min()):g} "
            f"to {float(p.max()):g}. Its weight 1/propensity would be wrong. Log the probability of the draw."
        )


_WORDS = {"": np.nan, "nan": np.nan, "null": np.nan, "none": np.nan, "true": 1.0, "false": 0.0}


def _numbers(values: Sequence[Any], name: str, source: str, first_row: int, notes: list[str]) -> FloatArray:
    """A float array; None, empty and NaN are unscored, infinite values too, text is an error."""
    try:
        plain = values if not any(isinstance(v, str) for v in values[:1]) else _from_text(values)
        array = np.array(plain, dtype=np.float64)
        if any(isinstance(v, str) for v in values) and not all(isinstance(v, str) for v in values):
            raise ValueError("text among numbers")
    except (TypeError, ValueError, OverflowError):
        for row, value in enumerate(values, start=first_row):
            if not _is_number(value, all_text=isinstance(values[0], str)):
                raise DataError(
                    f"{source}: {name} must be a number or empty, got {value!r} in row {row}. "
                    "A score of another type cannot be compared. Correct the row, or leave the value empty."
                ) from None
        raise
    infinite = np.isinf(array)
    if infinite.any():
        notes.append(f"{int(infinite.sum())} infinite values of {name} count as unscored")
        array[infinite] = np.nan
    lost = int(np.isnan(array).sum())
    if lost and name in ("proxy", "gold"):
        notes.append(f"{name}: {lost} of {array.size} rows are unscored and take no part")
    return array


def _from_text(values: Sequence[str]) -> list[Any]:
    return [
        _WORDS.get(v.strip().lower(), v) if isinstance(v, str) and not v[:1].isdigit() else v for v in values
    ]


def _is_number(value: Any, *, all_text: bool) -> bool:
    if isinstance(value, int) and abs(value) > 1e300:
        return False
    if value is None or isinstance(value, (bool, int, float)):
        return not all_text or value is None
    if not isinstance(value, str) or not all_text:
        return False
    if value.strip().lower() in _WORDS:
        return True
    try:
        float(value)
    except ValueError:
        return False
    return True


def _labels(
    values: Sequence[Any], name: str, source: str, first_row: int
) -> tuple[IntArray, tuple[str, ...]]:
    """Codes in order of first appearance, and the label of each code."""
    codes: dict[str, int] = {}
    out = np.empty(len(values), np.int64)
    for i, value in enumerate(values):
        if value is None or value == "" or not isinstance(value, (str, int, float, bool)) or value != value:
            raise DataError(
                f"{source}: {name} must be text or a number, got {value!r} in row {first_row + i}. "
                "A rollout without it belongs nowhere. Fill it in, or remove the row."
            )
        out[i] = codes.setdefault(str(value), len(codes))
    return out, tuple(codes)


def _distinct_rows(
    labels: dict[str, tuple[IntArray, tuple[str, ...]]],
    numbers: dict[str, FloatArray],
    ids: list[str] | None,
    row_hash: Sequence[int] | None,
    source: str,
    notes: list[str],
) -> NDArray[np.int64] | None:
    """Rows to keep, or None for all.

    With an `id` an equal row is the same rollout and a different one a contradiction. Without, an equal row
    whose score occurs nowhere else is the same rollout logged twice; one of a coarse score may be an honest tie.
    """
    whole = np.stack([*(codes.astype(np.float64) for codes, _ in labels.values()), *numbers.values()])
    key = np.asarray(row_hash, dtype=np.int64) if row_hash is not None else _hash_columns(whole)
    if ids is not None:
        by_id = np.array([hash(v) for v in ids], dtype=np.int64)
        _, first_of_id = np.unique(by_id, return_index=True)
        if first_of_id.size < by_id.size:
            pair = _hash_columns(np.stack([by_id, _hash_columns(whole)]).view(np.float64))
            n_distinct = np.unique(pair).size
            if n_distinct > first_of_id.size:
                raise DataError(
                    f"{source}: an id must name one rollout, and {n_distinct - first_of_id.size} rows "
                    "give an id other values than before. It cannot be told which are right. Remove those."
                )
            notes.append(
                f"{by_id.size - first_of_id.size} rows repeat an id with equal values and are left out"
            )
            return np.sort(first_of_id)
        return None
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    if first.size == key.size:
        return None
    proxy = numbers.get("proxy", numbers["gold"])
    _, place, count = np.unique(proxy[first], return_inverse=True, return_counts=True)
    # A score that no other row has is continuous: seen again in an equal row, it is a copy of that row.
    alone = (count[place] == 1)[inverse.reshape(-1)]
    again = np.ones(key.size, dtype=np.bool_)
    again[first] = False
    copies = again & alone & ~np.isnan(proxy)
    if copies.any():
        notes.append(
            f"{int(copies.sum())} rows are copies of another (equal in every column, with a score of its own)"
        )
    ties = int((again & ~copies).sum())
    if ties:
        notes.append(
            f"{ties} rows equal another row in every column and are kept: scores this coarse tie honestly"
        )
    return np.flatnonzero(~copies) if copies.any() else None


def _hash_columns(whole: FloatArray) -> NDArray[np.int64]:
    """One 64-bit hash per column of (columns, rows); NaN equals NaN, −0 equals 0."""
    mixed = np.zeros(whole.shape[1], np.uint64)
    for column in whole:
        bits = np.where(np.isnan(column), np.nan, column + 0.0).view(np.uint64)
        mixed = (mixed ^ bits) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed.view(np.int64)
