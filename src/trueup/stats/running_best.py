"""Has a mean fallen from the best it has been? Tests for a decline whose height was never known beforehand.

The obvious comparison, present against best, is biased: the best of many noisy windows is best partly by
luck, so a steady series seems to have fallen. Here the best is a *lower bound*: of each completed block the
mean minus a t-quantile times its standard error, the quantile for all blocks together (Bonferroni) at half
of the level. The other half goes to a restarting e-process on "best − margin − x". The first half rests on
block means being about normal, which the table of `trueup bench alarms` measures; the second is exact.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from trueup.stats.sequential import restarting_log_e

__all__ = ["best_lower_bound", "drop_log_e", "jump_down"]

FloatArray = NDArray[np.float64]

BLOCKS = (50, 100, 200, 400)
"""Lengths of the blocks, in units of evidence, whose means are candidates for the best."""


def best_lower_bound(x: ArrayLike, alpha: float, blocks: tuple[int, ...] = BLOCKS) -> FloatArray:
    """(..., time) lower bound of the best block mean before each time; −inf before the first block ends.

    At level alpha for all blocks together. No NaN: leave missing units out beforehand.
    """
    x = np.asarray(x, dtype=np.float64)
    t = x.shape[-1]
    n_blocks = sum(t // w for w in blocks)
    best = np.full(x.shape, -np.inf)
    for w in blocks:
        k = t // w
        if k == 0:
            continue
        parts = x[..., : k * w].reshape(*x.shape[:-1], k, w)
        quantile = float(stats.t.ppf(1 - alpha / n_blocks, w - 1))
        bound = parts.mean(axis=-1) - quantile * parts.std(axis=-1, ddof=1) / np.sqrt(w)
        ends = np.arange(1, k + 1) * w
        inside = ends < t  # known from the unit after the block on
        at = best[..., ends[inside]]
        best[..., ends[inside]] = np.maximum(at, bound[..., inside])
    return np.asarray(np.maximum.accumulate(best, axis=-1))


def drop_log_e(
    x: ArrayLike, margin: float, horizon: int, alpha: float, blocks: tuple[int, ...] = BLOCKS
) -> FloatArray:
    """Evidence that the mean of `x` in [0, 1] has fallen more than `margin` below the best it has been.

    Compare with 2/alpha: the chance that a mean that never falls by so much reaches it within `horizon` units
    is at most alpha (half for the best, half for the fall).

    Args:
        x: (..., time), no NaN.
    """
    x = np.asarray(x, dtype=np.float64)
    best = best_lower_bound(x, alpha / 2, blocks)
    fall = np.where(best > margin, best - margin - x, np.nan)  # at least −1 then; else no fall is possible
    return restarting_log_e(fall, horizon)


def jump_down(
    x: ArrayLike, alpha: float, least: float = 0.1, blocks: tuple[int, ...] = (25, 50, 100)
) -> NDArray[np.int64]:
    """(...,) first time at which the mean has jumped down by more than its own trend foretold; -1 if never.

    A line is fitted to four blocks and drawn on to the middle of the next, a falling one as it is, a rising
    one level from its end (what rose may settle); the next block's mean must lie below that by `least` and a
    t-quantile times the error of both, for all places together (Bonferroni). A smooth decline is no jump,
    however deep it ends.
    """
    x = np.asarray(x, dtype=np.float64)
    t = x.shape[-1]
    n_tests = max(1, sum(max(0, t // w - 4) for w in blocks))
    first = np.full(x.shape[:-1], t, np.int64)
    for w in blocks:
        k = t // w - 4
        if k < 1:
            continue
        long = 4 * w
        clock = np.arange(long) - (long - 1) / 2
        reach = (long + w) / 2
        scale = np.sqrt(1 / long + reach**2 / (clock**2).sum())
        quantile = float(stats.t.ppf(1 - alpha / n_tests, w - 1))
        for i in range(k):
            before, after = x[..., i * w : i * w + long], x[..., i * w + long : i * w + long + w]
            slope = before @ clock / (clock**2).sum()
            level = before.mean(axis=-1)
            rest = before - level[..., None] - slope[..., None] * clock
            sigma2 = (rest**2).sum(axis=-1) / (long - 2)
            error = np.sqrt(sigma2 * scale**2 + after.var(axis=-1, ddof=1) / w)
            foretold = level + slope * np.where(slope > 0, long / 2, reach)
            jumped = after.mean(axis=-1) < foretold - least - quantile * error
            first = np.where(jumped, np.minimum(first, i * w + long + w - 1), first)
    return np.where(first == t, -1, first)
