"""From rows to streams of evidence: per family, one value a group, in order.

The group is the unit (see `trueup.stats.sequential`). Scores are brought to gold's range first: the
calibrated score where the log has one, the proxy itself where it lives on gold's scale, else an isotonic map
fitted on the first groups alone and used on the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trueup.monitor.calibration import fit_isotonic
from trueup.monitor.table import PairTable
from trueup.stats.ranking import GroupRanking, rank_groups
from trueup.stats.sequential import thin_to_uniform

__all__ = ["FamilyStreams", "gold_range", "make_streams", "reference_length"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_COARSE_OVERHANG = 0.1  # of gold's width; a proxy within it lives on gold's scale


@dataclass(frozen=True, slots=True)
class FamilyStreams:
    """One family's pairs, and per group (U groups in order) their means. Scores count in gold's width."""

    family: str
    low: float  # gold's range
    high: float
    proxy: FloatArray  # (pairs,)
    score: FloatArray  # (pairs,) the score in use, on gold's scale; NaN where there is none
    gold: FloatArray  # (pairs,)
    unit: IntArray  # (pairs,) 0..U-1
    weight: FloatArray  # (pairs,) 1/propensity
    score_source: str  # "calibrated column", "proxy" or "isotonic on the first N groups"
    out_of_sample: NDArray[np.bool_]  # (pairs,) False where the score was fitted on this pair
    step: IntArray  # (U,)
    kl: FloatArray | None  # (U,) nats
    gold_unit: FloatArray  # (U,) mean gold in [0, 1]
    score_unit: FloatArray  # (U,) mean score in [0, 1]
    residual_unit: FloatArray  # (U,) mean of (gold − score) / width, in [−1, 1]
    ranking: GroupRanking  # of (U,)
    n_reference: int  # groups before the first that an alarm may use; 0 with a calibrated column
    n_thinned: int  # pairs that only the descriptive figures use, because anchors were chosen actively

    @property
    def n_units(self) -> int:
        return int(self.step.size)

    @property
    def width(self) -> float:
        return self.high - self.low


def gold_range(gold: FloatArray) -> tuple[float, float]:
    """[0, 1] where gold lies within it, else its least and greatest value."""
    seen = gold[~np.isnan(gold)]
    if seen.size == 0 or (seen.min() >= 0.0 and seen.max() <= 1.0):
        return 0.0, 1.0
    low, high = float(seen.min()), float(seen.max())
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def reference_length(n_units: int) -> int:
    """A tenth of the groups, 20 to 200 of them: long enough for a level, short against what follows."""
    return int(np.clip(n_units // 10, 20, 200))


def make_streams(table: PairTable, name: str, low: float, high: float, seed: int = 0) -> FamilyStreams:
    """Streams of a table that holds one family's rows (or all, for the overall figures)."""
    rows = np.flatnonzero(table.paired)
    pairs = table.take(rows[np.argsort(table.unit[rows], kind="stable")])
    _, unit = np.unique(pairs.unit, return_inverse=True)
    unit = unit.astype(np.int64)
    weight = np.ones(pairs.n_rows)
    if pairs.propensity is not None:
        weight = 1.0 / np.where(np.isnan(pairs.propensity), 1.0, pairs.propensity)
    score, source, fitted, n_reference = _score_in_use(pairs, unit, low, high)
    use = _thin(weight, seed)
    return _group(pairs, name, low, high, score, source, fitted, unit, weight, use, n_reference)


def _thin(weight: FloatArray, seed: int) -> NDArray[np.bool_]:
    if weight.size == 0 or weight.max() <= 1.01 * weight.min():
        return np.ones(weight.size, dtype=np.bool_)
    return thin_to_uniform(1.0 / weight, np.random.default_rng(seed).random(weight.size))


def _score_in_use(
    pairs: PairTable, unit: IntArray, low: float, high: float
) -> tuple[FloatArray, str, NDArray[np.bool_], int]:
    n_units = int(unit.max()) + 1 if unit.size else 0
    fitted = np.zeros(pairs.n_rows, dtype=np.bool_)
    if pairs.calibrated is not None and np.isfinite(pairs.calibrated).mean() >= 0.5:
        return pairs.calibrated, "calibrated column", fitted, 0
    n_reference = reference_length(n_units)
    overhang = _COARSE_OVERHANG * (high - low)
    inside = (pairs.proxy >= low - overhang) & (pairs.proxy <= high + overhang)
    if pairs.n_rows == 0 or inside.mean() >= 0.95:
        return pairs.proxy, "proxy", fitted, n_reference
    fitted = unit < n_reference
    x, y = fit_isotonic(pairs.proxy[fitted], pairs.gold[fitted])
    return np.interp(pairs.proxy, x, y), f"isotonic on the first {n_reference} groups", fitted, n_reference


def _group(
    pairs: PairTable, name: str, low: float, high: float, score: FloatArray, source: str,
    fitted: NDArray[np.bool_], unit: IntArray, weight: FloatArray, use: NDArray[np.bool_], n_reference: int,
) -> FamilyStreams:  # fmt: skip
    width = high - low
    score01 = np.clip((score - low) / width, 0.0, 1.0)
    gold01 = (pairs.gold - low) / width
    usable = use & ~np.isnan(score01)
    kept = np.unique(unit[usable])
    n_units = int(unit.max()) + 1 if unit.size else 0
    count = np.bincount(unit[usable], minlength=n_units)

    def mean(x: FloatArray) -> FloatArray:
        total = np.bincount(unit[usable], weights=x[usable], minlength=n_units)
        return np.asarray(total[kept] / count[kept])

    first = np.full(n_units, -1, np.int64)
    first[unit[::-1]] = np.arange(pairs.n_rows)[::-1]
    ranking = rank_groups(pairs.proxy[usable], pairs.gold[usable], unit[usable])
    return FamilyStreams(
        family=name, low=low, high=high, proxy=pairs.proxy, score=score, gold=pairs.gold, unit=unit,
        weight=weight, score_source=source, out_of_sample=~fitted, step=pairs.step[first[kept]],
        kl=None if pairs.kl is None else mean(pairs.kl),
        gold_unit=mean(gold01), score_unit=mean(score01), residual_unit=mean(gold01 - score01),
        ranking=ranking, n_reference=n_reference, n_thinned=int((~use).sum()),
    )  # fmt: skip
