"""The arms: one way of turning scores into advantages each, all through the public reward classes.

Every arm has the same budget: the same expected number of gold queries at one anchor fraction, except `gold`,
which pays for everything, and `proxy`, which pays for nothing. Our own floor of one anchor per step is off, since
it would raise a small budget. The published method keeps all its defaults: it rounds to whole groups and never
takes fewer than one, which at the demo's default is the budget and below 10 % of ten groups is more than that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from trueup.experiments.scenarios import Scenario
from trueup.loop import AnchorConfig, AnchoredReward
from trueup.loop.wmrl import WMRLReward
from trueup.types import FloatArray, StepResult

__all__ = ["ARMS", "ArmName", "Schedule", "StepFunction", "make_step"]

ArmName = Literal["gold", "proxy", "gold_budget", "wmrl", "control_variate", "corrected", "mse"]
ARMS: tuple[ArmName, ...] = get_args(ArmName)
Schedule = Literal["constant", "front_loaded"]

StepFunction = Callable[[FloatArray, FloatArray, FloatArray], StepResult]
"""(proxy, gold, influence), all (G, N), to the step's result. Only the anchors' gold is read."""


def make_step(
    arm: ArmName, scenario: Scenario, anchor_fraction: float, schedule: Schedule, n_steps: int, seed: int
) -> StepFunction:
    """A fresh reward object of this arm, as a function of one step's arrays.

    `schedule` concerns the arms that draw their anchors by it; the published method has none.
    """
    if arm == "wmrl":
        return _published(anchor_fraction, seed)
    config = AnchorConfig(
        estimator=arm,
        anchor_fraction=anchor_fraction,
        schedule=schedule,
        n_steps=n_steps,
        min_anchors_per_step=0,
        seed=seed,
    )
    reward = AnchoredReward(None, None, config)

    def step(proxy: FloatArray, gold: FloatArray, influence: FloatArray) -> StepResult:
        return reward.step_arrays(proxy, gold, families=scenario.families_G, influence=influence)

    return step


def _published(anchor_fraction: float, seed: int) -> StepFunction:
    """World Model RL as released."""
    reward = WMRLReward(None, None, anchor_fraction=anchor_fraction, seed=seed)

    def step(proxy: FloatArray, gold: FloatArray, influence: FloatArray) -> StepResult:
        return reward.step_arrays(proxy, gold)

    return step
