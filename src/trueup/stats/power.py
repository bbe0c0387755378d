"""How much evidence is enough: anchors needed to see something, and what a number of anchors can show.

Asked before a run, these decide the anchor fraction; asked during one, they say what its silence means.
"""

from __future__ import annotations

import math

import numpy as np

from trueup.errors import ConfigError
from trueup.stats.sequential import BETS

__all__ = [
    "anchors_to_see",
    "cost_optimal_fraction",
    "groups_to_see",
    "prevalence_visible",
    "units_to_see_shift",
]


def _check_open(**chances: float) -> None:
    for name, value in chances.items():
        if not 0.0 < value < 1.0:
            raise ConfigError(
                f"{name} must lie between 0 and 1, both excluded, got {value}. No finite number of anchors "
                "follows from it. Give for instance 0.01 for one rollout in a hundred."
            )


def anchors_to_see(prevalence: float, confidence: float) -> int:
    """Anchors (independent random rollouts) needed to see at least one event: ⌈ln(1 − c) / ln(1 − p)⌉.

    The smallest n with 1 − (1 − p)ⁿ >= c. Prevalence 1 % at 95 %: 299.
    """
    _check_open(prevalence=prevalence, confidence=confidence)
    n = math.log1p(-confidence) / math.log1p(-prevalence)
    nearest = round(n)
    return max(1, nearest if abs(n - nearest) < 1e-9 * max(1.0, n) else math.ceil(n))


def groups_to_see(prevalence: float, confidence: float, group_size: int, correlation: float = 0.0) -> int:
    """Whole groups needed instead, with `correlation` of the event within a group.

    Rollouts of one group count for n / (1 + (n − 1) ρ) independent ones (design effect, Kish 1965). Groups
    of 8 at 1 % and 95 %: 38 if independent, 169 at ρ = 0.5.
    """
    if group_size < 1 or not 0.0 <= correlation <= 1.0:
        raise ConfigError(
            f"group_size must be at least 1 and correlation within [0, 1], got {group_size} and "
            f"{correlation}. Give the size of the trainer's groups."
        )
    effect = 1.0 + (group_size - 1) * correlation
    return math.ceil(anchors_to_see(prevalence, confidence) * effect / group_size - 1e-12)


def prevalence_visible(n_anchors: int, confidence: float) -> float:
    """The least prevalence of which n anchors show at least one event with `confidence`; 1 for none."""
    if n_anchors <= 0:
        return 1.0
    _check_open(confidence=confidence)
    return -math.expm1(math.log1p(-confidence) / n_anchors)


def units_to_see_shift(
    shift: float,
    sd: float,
    *,
    band: float = 0.0,
    alpha: float = 0.01,
    horizon: int = 10_000,
    bound: float = 1.0,
) -> float:
    """About how many units (groups) the restarting alarm needs after the mean moves by `shift`; inf if never.

    Money put on the best bet at the change must grow from 1/(horizon · n_bets) to 1/alpha at the rate
    g = max_L E log(1 + L (x − band)/(bound + band)), x normal and clipped to ±bound, integrated by
    Gauss-Hermite. It ignores what starts before and after the change, so it errs on the long side.
    """
    if sd < 0 or band < 0 or bound <= 0:
        raise ConfigError(f"sd, band and bound must not be negative, got {sd}, {band} and {bound}.")
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    x = np.clip(abs(shift) + sd * nodes, -bound, bound)
    gain = (x - band) / (bound + band)
    growth = max(float((np.log1p(bet * gain) * weights).sum() / weights.sum()) for bet in BETS)
    if growth <= 0:
        return math.inf
    return math.log(2 * len(BETS) * horizon / alpha) / growth


def cost_optimal_fraction(variance_gold: float, variance_residual: float, cost_ratio: float) -> float:
    """Anchor fraction that buys the least variance of a corrected mean per unit of cost.

    Variance V_r + (1/f − 1) V_e at cost c + f gives f* = √(c V_e / (V_r − V_e)), at most 1; `cost_ratio` c is
    the cost of generating and proxy-scoring one rollout over that of one gold query. A residual that varies
    as much as gold itself makes the proxy worthless: 1.
    """
    if variance_residual >= variance_gold:
        return 1.0
    return min(1.0, math.sqrt(max(cost_ratio, 0.0) * variance_residual / (variance_gold - variance_residual)))
