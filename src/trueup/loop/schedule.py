"""How many anchors this step, and which.

The number is a rate, not a rounded count: with ten groups and 2.5 % anchors a step has a quarter of an anchor, and
systematic sampling turns that into one anchored group in four steps, each with π = 0.025. Rounding up to one per
step would quadruple the bill, which is what `min_anchors_per_step` does when it is asked to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trueup.loop.config import AnchorConfig
from trueup.stats.sampling import active_propensities, mix_keys, systematic_sample, uniform_start, waterfill
from trueup.types import BoolArray, FloatArray

__all__ = ["AnchorPlan", "plan_anchors", "scheduled_fraction"]


@dataclass(frozen=True, slots=True)
class AnchorPlan:
    """The anchors of one step, decided before any gold is seen. Arrays are over units (rollouts or groups)."""

    unit: Literal["rollout", "group"]
    propensity_U: FloatArray
    anchored_U: BoolArray
    planned_fraction: float  # what the schedule asks for at this step, before floor and cap


def scheduled_fraction(config: AnchorConfig, step: int) -> float:
    """Fraction of units that the schedule wants anchored at `step` (from 0)."""
    fraction = config.anchor_fraction
    if config.schedule != "front_loaded" or config.n_steps is None or fraction >= 1.0:
        return fraction
    total = fraction * config.n_steps  # in steps' worth of gold
    front = min(float(config.front_steps), total)
    if step < front:
        return min(1.0, front - step)
    later_steps = config.n_steps - int(np.ceil(front))
    return (total - front) / later_steps if later_steps > 0 else 0.0


def plan_anchors(
    config: AnchorConfig,
    step: int,
    fraction: float,
    keys_U: NDArray[np.uint64],
    eligible_U: BoolArray,
    variance_U: FloatArray | None = None,
    influence_U: FloatArray | None = None,
    raised_U: BoolArray | None = None,
) -> AnchorPlan:
    """Choose the anchors of `step` among the eligible units.

    fraction: what the schedule wants anchored. keys_U: one 64-bit key per unit, from its id
    (`stats.sampling.hash_keys`). variance_U, influence_U: as `stats.sampling.active_propensities`; None draws
    uniformly. raised_U: units whose proxy the guard does not trust; they are anchored with the guard's ceiling, outside
    the budget of the others. Pure: the same arguments give the same anchors.
    """
    raised = np.zeros(eligible_U.size, np.bool_) if raised_U is None else raised_U & eligible_U
    propensity_U = _propensities(config, fraction, eligible_U & ~raised, variance_U, influence_U)
    if raised.any():
        assert config.guard is not None
        propensity_U[raised] = max(config.guard.ceiling, fraction)
        cap, total = config.max_anchors_per_step, float(propensity_U.sum())
        if cap is not None and total > cap:
            propensity_U *= cap / total
    anchored_U = np.zeros(eligible_U.size, np.bool_)
    keys = mix_keys(keys_U[eligible_U], config.seed, step)
    anchored_U[eligible_U] = systematic_sample(
        propensity_U[eligible_U], keys, uniform_start(config.seed, step)
    )
    return AnchorPlan(config.anchor_unit, propensity_U, anchored_U, fraction)


def _propensities(
    config: AnchorConfig,
    fraction: float,
    eligible_U: BoolArray,
    variance_U: FloatArray | None,
    influence_U: FloatArray | None,
) -> FloatArray:
    """Propensities of the eligible units under the budget; 0 for the others."""
    n = int(eligible_U.sum())
    budget = max(fraction * n, min(float(config.min_anchors_per_step), n)) if fraction > 0 else 0.0
    if config.max_anchors_per_step is not None:
        budget = min(budget, float(config.max_anchors_per_step))
    if variance_U is None:
        propensities = waterfill(np.ones(n), budget)
    else:
        influence = None if influence_U is None else influence_U[eligible_U]
        propensities = active_propensities(variance_U[eligible_U], influence, budget, config.uniform_mix)
    propensity_U = np.zeros(eligible_U.size)
    propensity_U[eligible_U] = propensities
    return propensity_U
