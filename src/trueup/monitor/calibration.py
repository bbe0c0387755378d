"""Is a score of 0.8 worth 0.8? Reliability with bands, calibration error, what a monotone map would mend.

Everything is by group: a group is in one fold, one bootstrap draw, one standard error, because rollouts of
one prompt are not independent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

__all__ = ["CalibrationReport", "ReliabilityBin", "calibration_report", "cross_fitted"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_N_BINS = 10
_N_FOLDS = 5
_N_BOOT = 200


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """One bin of equal mass: mean score, mean gold with its standard error over groups, pairs."""

    score: float
    gold: float
    error: float
    n: int


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """Reliability of the score in use, before and after a cross-fitted isotonic map, in gold's unit."""

    curve: tuple[ReliabilityBin, ...]
    ece: float  # expected calibration error, less what sampling noise alone would give
    ece_error: float  # its standard error, by bootstrap over groups
    ece_after: float  # of the cross-fitted isotonic map
    share_tied: float  # of pairs whose mapped value another score shares and whose raw value none does
    share_clipped: float  # of pairs that the map sends to its first or last value


def cross_fitted(score: FloatArray, gold: FloatArray, unit: IntArray, seed: int = 0) -> FloatArray:
    """Isotonic map score → gold fitted on the other folds of groups; NaN with fewer than two groups."""
    units, index = np.unique(unit, return_inverse=True)
    if units.size < 2:
        return np.full(score.shape, np.nan)
    n_folds = min(_N_FOLDS, units.size)
    fold = np.random.default_rng(seed).permutation(np.arange(units.size) % n_folds)[index]
    out = np.empty_like(score)
    for k in range(n_folds):
        x, y = fit_isotonic(score[fold != k], gold[fold != k])
        out[fold == k] = np.interp(score[fold == k], x, y)
    return out


def fit_isotonic(score: FloatArray, gold: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Knots of the non-decreasing least-squares map; equal scores share their mean gold."""
    x, index = np.unique(score, return_inverse=True)
    weight = np.bincount(index).astype(np.float64)
    mean = np.bincount(index, weights=gold) / weight
    return x, np.asarray(isotonic_regression(mean, weights=weight).x, dtype=np.float64)


def calibration_report(
    score: FloatArray, gold: FloatArray, unit: IntArray, seed: int = 0
) -> CalibrationReport:
    """Report for aligned pairs; needs at least two groups."""
    _, unit = np.unique(unit, return_inverse=True)
    ece, ece_error, curve = _ece(score, gold, unit, seed)
    mapped = cross_fitted(score, gold, unit, seed)
    after, _, _ = _ece(mapped, gold, unit, seed)
    x, y = fit_isotonic(score, gold)
    whole = np.interp(score, x, y)
    _, raw_count = _counts(score)
    _, map_count = _counts(whole)
    tied = (map_count > 1) & (raw_count == 1)
    clipped = (whole == y[0]) | (whole == y[-1])
    return CalibrationReport(curve, ece, ece_error, after, float(tied.mean()), float(clipped.mean()))


def _counts(values: FloatArray) -> tuple[FloatArray, IntArray]:
    unique, index, count = np.unique(values, return_inverse=True, return_counts=True)
    return unique, count[index]


def _ece(
    score: FloatArray, gold: FloatArray, unit: IntArray, seed: int
) -> tuple[float, float, tuple[ReliabilityBin, ...]]:
    """Binned calibration error Σ w_b |gold_b − score_b|, debiased, with its bootstrap error and the bins."""
    edges = np.unique(np.quantile(score, np.linspace(0, 1, _N_BINS + 1)[1:-1]))
    which = np.searchsorted(edges, score, side="right")
    n_bins, n_units = edges.size + 1, int(unit.max()) + 1
    cell = unit * n_bins + which
    size = n_units * n_bins
    count = np.bincount(cell, minlength=size).reshape(n_units, n_bins).astype(np.float64)
    gap = np.bincount(cell, weights=gold - score, minlength=size).reshape(n_units, n_bins)
    n_b = count.sum(axis=0)
    used = n_b > 0
    mean_gap = gap.sum(axis=0)[used] / n_b[used]
    # Variance of a ratio over groups (linearised), which is what rollouts of one prompt leave.
    deviation = gap[:, used] - mean_gap * count[:, used]
    variance = (deviation**2).sum(axis=0) / n_b[used] ** 2
    weight = n_b[used] / n_b.sum()
    ece = _debiased(mean_gap, variance, weight)
    rng = np.random.default_rng(seed)
    draws = np.empty(_N_BOOT)
    for b in range(_N_BOOT):
        times = np.bincount(rng.integers(0, n_units, n_units), minlength=n_units).astype(np.float64)
        n_draw = times @ count[:, used]
        g = np.where(n_draw > 0, (times @ gap[:, used]) / np.maximum(n_draw, 1), 0.0)
        draws[b] = _debiased(g, variance, n_draw / n_draw.sum())
    score_mean = np.bincount(which, weights=score, minlength=n_bins)[used] / n_b[used]
    curve = tuple(
        ReliabilityBin(float(s), float(s + g), float(np.sqrt(v)), int(n))
        for s, g, v, n in zip(score_mean, mean_gap, variance, n_b[used], strict=True)
    )
    return ece, float(draws.std(ddof=1)), curve


def _debiased(gap: FloatArray, variance: FloatArray, weight: FloatArray) -> float:
    return float((weight * np.sqrt(np.maximum(gap**2 - variance, 0.0))).sum())
