"""The arms: one way of turning scores into advantages each, all through the public reward classes.

Every arm has the same budget: the same expected number of gold queries at one anchor fraction (except `gold`,
which pays for everything, and `proxy`, which pays for nothing). Floors that would round a small budget up to
one anchor per step are therefore off, for the published method too; all its other settings are as published.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np

from trueup.experiments.scenarios import Scenario
from trueup.loop import AnchorConfig, AnchoredReward
from trueup.loop.wmrl import WMRLReward
from trueup.types import FloatArray, IntArray, Rollout, StepResult

__all__ = ["ARMS", "ArmName", "Schedule", "StepFunction", "make_step"]

ArmName = Literal["gold", "proxy", "gold_budget", "wmrl", "control_variate", "corrected", "mse"]
ARMS: tuple[ArmName, ...] = get_args(ArmName)
Schedule = Literal["constant", "front_loaded"]

StepFunction = Callable[[IntArray, FloatArray, FloatArray, FloatArray], StepResult]
"""(completions, proxy, gold, influence), all (G, N), to the step's result. Only the anchors' gold is read."""


def make_step(
    arm: ArmName, scenario: Scenario, anchor_fraction: float, schedule: Schedule, n_steps: int, seed: int
) -> StepFunction:
    """A fresh reward object of this arm, as a function of one step's arrays.

    `schedule` concerns the arms that draw their anchors by it; the published method has none.
    """
    if arm == "wmrl":
        return _published(scenario, anchor_fraction, seed)
    config = AnchorConfig(
        estimator=arm,
        anchor_fraction=anchor_fraction,
        schedule=schedule,
        n_steps=n_steps,
        min_anchors_per_step=0,
        seed=seed,
    )
    reward = AnchoredReward(None, None, config)

    def step(completions: IntArray, proxy: FloatArray, gold: FloatArray, influence: FloatArray) -> StepResult:
        return reward.step_arrays(proxy, gold, families=scenario.families_G, influence=influence)

    return step


def _published(scenario: Scenario, anchor_fraction: float, seed: int) -> StepFunction:
    """World Model RL as released. Its class takes rollouts and scorers, so the step's arrays are looked up."""
    current: dict[str, FloatArray] = {}

    def proxy(rollouts: Sequence[Rollout]) -> FloatArray:
        return current["proxy"]

    def gold(rollouts: Sequence[Rollout]) -> FloatArray:
        return np.array([scenario.gold_PK[rollout.task] for rollout in rollouts])

    reward = WMRLReward(proxy, gold, anchor_fraction=anchor_fraction, min_anchor_groups=0, seed=seed)
    rows = [scenario.rollouts_PK[p] for p in scenario.prompt_G]

    def step(
        completions: IntArray, proxy_GN: FloatArray, gold_GN: FloatArray, influence: FloatArray
    ) -> StepResult:
        current["proxy"] = proxy_GN.ravel()
        return reward.step([[row[k] for k in ks] for row, ks in zip(rows, completions.tolist(), strict=True)])

    return step
