"""From a step's rollouts to its anchors: which unit, what is eligible, what the guard raises, what the caller fixed.

Two ways. Where the propensities do not depend on the proxy the plan comes first (`plan_ahead`), and proxy and gold can
be asked side by side. Active propensities need the proxy's scores (`plan_active`), and gold waits for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trueup.errors import GroupError
from trueup.loop.batch import Batch
from trueup.loop.config import AnchorConfig
from trueup.loop.schedule import AnchorPlan, plan_anchors
from trueup.types import BoolArray, FloatArray

__all__ = ["Eligible", "anchored_rollouts", "plan_active", "plan_ahead"]


@dataclass(frozen=True, slots=True)
class Eligible:
    """What a plan may choose from. Vectors are flat over rollouts."""

    batch: Batch
    open_P: BoolArray  # no hard constraint has settled the rollout already
    raised_P: BoolArray  # the guard does not trust its family's proxy

    @property
    def open_G(self) -> BoolArray:
        return np.logical_or.reduceat(self.open_P, self.batch.starts_G)

    @property
    def raised_G(self) -> BoolArray:
        return np.logical_or.reduceat(self.raised_P, self.batch.starts_G)


def plan_ahead(
    config: AnchorConfig, step: int, fraction: float, eligible: Eligible, anchors: Sequence[int] | None
) -> AnchorPlan | None:
    """The plan, where it does not depend on the proxy; None where it does."""
    batch = eligible.batch
    if config.scores_all_with_gold or config.estimator == "proxy":
        share = float(config.scores_all_with_gold)
        return AnchorPlan("group", np.full(batch.n_groups, share), np.full(batch.n_groups, share > 0), share)
    if anchors is not None:
        return _fixed(anchors, batch.n_groups, fraction)
    if config.is_active:
        return None
    if config.anchor_unit == "rollout":
        keys, open_U, raised_U = batch.rollout_keys, eligible.open_P, eligible.raised_P
    else:
        keys, open_U, raised_U = batch.group_keys, eligible.open_G, eligible.raised_G
    return plan_anchors(config, step, fraction, keys, open_U, raised_U=raised_U)


def plan_active(
    config: AnchorConfig,
    step: int,
    fraction: float,
    eligible: Eligible,
    variance_P: FloatArray,
    influence_P: FloatArray | None,
) -> AnchorPlan:
    """The plan by expected squared residuals `variance_P` and, where known, influence."""
    batch = eligible.batch
    if config.anchor_unit == "rollout":
        keys, open_U, raised_U = batch.rollout_keys, eligible.open_P, eligible.raised_P
        return plan_anchors(config, step, fraction, keys, open_U, variance_P, influence_P, raised_U)
    if influence_P is not None:
        variance_P = variance_P * influence_P
    variance_G = np.add.reduceat(np.where(eligible.open_P, variance_P, 0.0), batch.starts_G)
    return plan_anchors(
        config, step, fraction, batch.group_keys, eligible.open_G, variance_G, raised_U=eligible.raised_G
    )


def anchored_rollouts(plan: AnchorPlan, batch: Batch) -> BoolArray:
    """The plan's anchors as rollouts."""
    return plan.anchored_U if plan.unit == "rollout" else plan.anchored_U[batch.group_P]


def _fixed(anchors: Sequence[int], n_groups: int, planned: float) -> AnchorPlan:
    index = list(anchors)
    if any(isinstance(i, bool) or not isinstance(i, (int, np.integer)) for i in index):
        raise GroupError(f"anchors must be indices of groups, got {index!r}. Nothing was scored.")
    if len(set(index)) < len(index) or any(not 0 <= i < n_groups for i in index):
        raise GroupError(
            f"anchors must be distinct indices of groups from 0 to {n_groups - 1}, got {index}. "
            "A group would be counted twice or not at all. Nothing was scored."
        )
    anchored = np.zeros(n_groups, np.bool_)
    anchored[index] = True
    return AnchorPlan("group", np.full(n_groups, len(index) / n_groups), anchored, planned)
