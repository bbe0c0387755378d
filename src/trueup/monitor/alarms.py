"""The alarms themselves: streams in, evidence out. The checks use them, and `trueup bench alarms` measures them.

Every function takes arrays with time on the last axis and independent runs before it, and returns the log of
an e-value at each time, to be compared with log(1/alpha); or the time of the alarm, -1 for none. NaN in the
evidence's input is "no observation". What each needs for its level to hold is stated with it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.stats.running_best import drop_log_e
from trueup.stats.sequential import (
    betting_log_e,
    first_crossing,
    rate_upper_bound,
    restarting_band_log_e,
    restarting_log_e,
    restarting_rate_log_e,
)

__all__ = [
    "EXPLOIT_MARGIN",
    "LEAST_UNITS",
    "alarm_around_own_level",
    "alarm_around_zero",
    "alarm_fall",
    "alarm_own_past",
    "alarm_rate_above",
    "alarm_reversed",
    "alarm_second_choice",
    "own_level",
    "past_bound",
]

FloatArray = NDArray[np.float64]

EXPLOIT_MARGIN = 0.01  # the favourite may be the worst this much more often than the second choice
LEAST_UNITS = 60  # fewer groups leave no room for a level and what follows it
_EARLY = 20  # groups that make a level


def alarm_around_zero(x: ArrayLike, band: float, horizon: int) -> FloatArray:
    """Mean residual outside ±band. Exact: conditional group means within the band, |x| <= 1."""
    return restarting_band_log_e(x, band, horizon)


def alarm_around_own_level(
    x: ArrayLike, band: float, horizon: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean residual outside a band around where it began, for raw logs; evidence, level and band in use.

    The level is the mean of the first half of what came before, and the band at least three of its standard
    errors, so that its own error is no drift. Holds as far as that normal approximation does.
    """
    x = np.asarray(x, dtype=np.float64)
    level, error = own_level(x)
    wide = np.maximum(band, 3.0 * np.nan_to_num(error, nan=np.inf))
    usable = wide <= 0.5
    level = np.where(usable, level, 0.0)
    wide = np.where(usable, wide, 0.5)
    centred = np.where(usable, x - level, np.nan)
    return restarting_band_log_e(centred, wide, horizon, bound=1.0 + np.abs(level)), level, wide


def own_level(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(..., time) mean of the first half of what came before each time, and its standard error; NaN early on.

    Half, so that a change spoils its own yardstick only when it has lasted as long as what went before it.
    """
    half = np.arange(x.shape[-1]) // 2
    n = np.maximum(half, 1)
    mean = np.cumsum(x, axis=-1)[..., n - 1] / n
    variance = np.maximum(np.cumsum(x * x, axis=-1)[..., n - 1] / n - mean**2, 0.0) * n / np.maximum(n - 1, 1)
    early = half < _EARLY
    return np.where(early, np.nan, mean), np.where(early, np.nan, np.sqrt(variance / n))


def alarm_reversed(tau: ArrayLike, horizon: int) -> FloatArray:
    """Within-group Kendall τ below 0 on average. Exact."""
    return restarting_log_e(-np.asarray(tau, dtype=np.float64), horizon)


def alarm_second_choice(excess: ArrayLike, horizon: int) -> FloatArray:
    """The favourite is gold's worst more often than the second choice, by more than the margin.

    Exact for any proxy whose gold rises with its score. Half of the level is for an exploit that was there
    from the start, half for one that came later.
    """
    x = (np.asarray(excess, dtype=np.float64) - EXPLOIT_MARGIN) / (1.0 + EXPLOIT_MARGIN)
    return np.asarray(np.maximum(restarting_log_e(x, horizon), betting_log_e(x)) - np.log(2.0))


def alarm_rate_above(rate: ArrayLike, limit: float, horizon: int) -> FloatArray:
    """A rate above a stated limit. Exact."""
    return restarting_rate_log_e(rate, limit, horizon)


def alarm_own_past(
    rate: ArrayLike, alpha: float, horizon: int
) -> tuple[NDArray[np.int64], FloatArray, FloatArray]:
    """A rate above the sharpest upper bound that its own past has given; time, evidence and bound in use.

    Exact for a constant rate: the bound fails at any time with probability alpha/2, and so does the alarm
    above it. Compare the evidence with 2/alpha.
    """
    rate = np.asarray(rate, dtype=np.float64)
    bound = np.clip(past_bound(rate, alpha / 2), 1e-6, 0.99)
    log_e = restarting_rate_log_e(rate, bound, horizon)
    return first_crossing(log_e, alpha / 2), log_e, bound


def past_bound(rate: FloatArray, alpha: float) -> FloatArray:
    """(..., time) running minimum of the sequential upper bound from the groups before; renewed 200 times."""
    t = rate.shape[-1]
    grid = np.unique(np.linspace(1, t, min(t, 200)).astype(np.int64))
    events = np.cumsum(rate, axis=-1)[..., grid - 1]
    bound = np.minimum.accumulate(rate_upper_bound(events, grid, alpha), axis=-1)
    known = np.searchsorted(grid, np.arange(t), side="right") - 1  # bounds from groups 0..t−1
    return np.where(known >= 0, bound[..., np.maximum(known, 0)], 0.99)


def alarm_fall(
    x: ArrayLike, margin: float, alpha: float, horizon: int
) -> tuple[NDArray[np.int64], FloatArray]:
    """A mean in [0, 1] more than `margin` below the best it has been; time and evidence (against 2/alpha).

    Half of alpha rests on block means of 50 and more groups being about normal, half is exact.
    """
    log_e = drop_log_e(x, margin, horizon, alpha)
    return first_crossing(log_e, alpha / 2), log_e
