"""What the guard is worth: runs in which something goes wrong in the middle.

Every scenario is a run of the catalogue or of the contextual task with one event. Arms share seeds and luck. Plug-in
arms (`wmrl`) believe the proxy outside their anchors, so a lying proxy costs reward; unbiased ones (`corrected`) do
not, and the guard saves them variance and says what happened. Learning is slower than in the demo: a policy that has
settled before the event would never meet it. What is reported per arm: the exact expected gold reward at the end and
at its lowest after the event, gold queries, and, for guarded arms, the first closing after the event and how often a
family was closed before it (false alarms).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, cast

import numpy as np

from trueup.experiments.scenarios import Scenario, make_scenario
from trueup.experiments.summary import mean_and_se
from trueup.loop import AnchorConfig, AnchoredReward, GuardConfig
from trueup.loop.config import Estimator
from trueup.loop.wmrl import WMRLReward
from trueup.tasks.catalogue import load_programs
from trueup.types import BoolArray, FloatArray, IntArray

__all__ = ["GUARD_ARMS", "GUARD_SCENARIOS", "GuardArm", "GuardScenario", "run_guard_cell"]

GuardScenario = Literal[
    "late_hack",
    "slow_drift",
    "judge_outage",
    "sandbox_outage",
    "new_family",
    "rare_exploit",
    "judge_swap",
]
GuardArm = Literal[
    "proxy", "wmrl", "wmrl_guarded", "corrected", "corrected_guarded", "adaptive_guarded", "gold"
]
GUARD_SCENARIOS: tuple[GuardScenario, ...] = (
    "late_hack",
    "slow_drift",
    "judge_outage",
    "sandbox_outage",
    "new_family",
    "rare_exploit",
    "judge_swap",
)
GUARD_ARMS: tuple[GuardArm, ...] = (
    "gold",
    "proxy",
    "wmrl",
    "wmrl_guarded",
    "corrected",
    "corrected_guarded",
    "adaptive_guarded",
)

N_STEPS = 240
EVENT = 30  # the step at which it happens; new_family: NEW_FAMILY_STEP
NEW_FAMILY_STEP = 40
OUTAGE = range(EVENT, EVENT + 15)
ANCHOR_FRACTION = 0.1
RARE_SHARE = 0.002  # of the completions
_CATALOGUE_RATE, _CONTEXTUAL_RATE = 0.1, 8.0


class _World:
    """A scenario without an event: what proxy and gold say at step t, and which groups there are."""

    event = EVENT

    def __init__(self, pass_rates: tuple[float, ...]) -> None:
        self.base = self.make_base(pass_rates)
        self.everyone = np.arange(self.base.n_groups)

    def make_base(self, pass_rates: tuple[float, ...]) -> Scenario:
        return make_scenario("monotone", load_programs(), np.array(pass_rates))

    @property
    def learning_rate(self) -> float:
        return _CATALOGUE_RATE if self.base.uses_sandbox else _CONTEXTUAL_RATE

    def groups(self, t: int) -> IntArray:
        return self.everyone

    def proxy(self, t: int, completions_GN: IntArray, plain_GN: FloatArray) -> FloatArray:
        return plain_GN

    def gold(self, t: int, truth_GN: FloatArray) -> FloatArray:
        return truth_GN

    def version(self, t: int) -> str | None:
        return None


class _LateHack(_World):
    """The judge reads promises instead of programs from the event on."""

    def __init__(self, pass_rates: tuple[float, ...]) -> None:
        super().__init__(pass_rates)
        hackable = make_scenario("hackable", load_programs(), np.array(pass_rates))
        self.shift_K = hackable.proxy_PK[0] - self.base.proxy_PK[0]

    def turned(self, t: int) -> float:
        return float(t >= EVENT)

    def proxy(self, t: int, completions_GN: IntArray, plain_GN: FloatArray) -> FloatArray:
        turned: FloatArray = plain_GN + self.turned(t) * self.shift_K[completions_GN]
        return np.clip(turned, 0.0, 1.0)


class _SlowDrift(_LateHack):
    """The same over forty steps."""

    def turned(self, t: int) -> float:
        return min(max((t - EVENT) / 40.0, 0.0), 1.0)


class _JudgeSwap(_LateHack):
    """The same at once, and the judge says that it is another one."""

    def version(self, t: int) -> str | None:
        return "hackable" if t >= EVENT else "monotone"


class _JudgeOutage(_World):
    def proxy(self, t: int, completions_GN: IntArray, plain_GN: FloatArray) -> FloatArray:
        return np.full_like(plain_GN, np.nan) if t in OUTAGE else plain_GN


class _SandboxOutage(_World):
    def gold(self, t: int, truth_GN: FloatArray) -> FloatArray:
        return np.full_like(truth_GN, np.nan) if t in OUTAGE else truth_GN


class _NewFamily(_World):
    """A family that nobody has seen comes in, and its proxy ranks in reverse."""

    event = NEW_FAMILY_STEP

    def make_base(self, pass_rates: tuple[float, ...]) -> Scenario:
        return make_scenario("contextual_benign")

    def _is_new(self) -> BoolArray:
        return np.array([family == self.base.families_G[-1] for family in self.base.families_G])

    def groups(self, t: int) -> IntArray:
        return self.everyone if t >= self.event else self.everyone[~self._is_new()]

    def proxy(self, t: int, completions_GN: IntArray, plain_GN: FloatArray) -> FloatArray:
        return np.where(self._is_new()[self.groups(t), None], 1.0 - plain_GN, plain_GN)


class _RareExploit(_World):
    """A few completions of 1,280 carry a trick that the proxy falls for from the event on."""

    def make_base(self, pass_rates: tuple[float, ...]) -> Scenario:
        base = make_scenario("contextual_benign")
        self.trick_PK = np.random.default_rng(5).random(base.gold_PK.shape) < RARE_SHARE
        return replace(base, gold_PK=np.where(self.trick_PK, 0.02, base.gold_PK))

    def proxy(self, t: int, completions_GN: IntArray, plain_GN: FloatArray) -> FloatArray:
        tricked = self.trick_PK[self.base.prompt_G[:, None], completions_GN]
        return np.where(tricked & (t >= EVENT), 0.97, plain_GN)


_WORLDS: dict[GuardScenario, type[_World]] = {
    "late_hack": _LateHack,
    "slow_drift": _SlowDrift,
    "judge_outage": _JudgeOutage,
    "sandbox_outage": _SandboxOutage,
    "new_family": _NewFamily,
    "rare_exploit": _RareExploit,
    "judge_swap": _JudgeSwap,
}


def _make(arm: GuardArm, seed: int) -> WMRLReward | AnchoredReward:
    if arm == "wmrl":
        return WMRLReward(None, None, anchor_fraction=ANCHOR_FRACTION, seed=seed)
    estimator, _, guarded = arm.partition("_")
    return AnchoredReward(
        None,
        None,
        AnchorConfig(
            estimator=cast(Estimator, estimator),
            anchor_fraction=ANCHOR_FRACTION,
            min_anchors_per_step=0,
            seed=seed,
            guard=GuardConfig() if guarded else None,
        ),
    )


def _run(world: _World, arm: GuardArm, seed: int) -> dict[str, Any]:
    base = world.base
    luck = base.draw_luck(N_STEPS, seed)
    policy = base.new_policy()
    reward = _make(arm, seed)
    curve = np.empty(N_STEPS + 1)
    closings: list[int] = []
    n_queries = 0
    for t in range(N_STEPS):
        curve[t] = base.expected(base.gold_PK, policy)
        rows = world.groups(t)
        completions = policy.sample(luck.uniforms_TGN[t])
        plain = base.proxy_scores(completions, luck.normals_TGND[t])
        scores = (
            world.proxy(t, completions[rows], plain[rows]),
            world.gold(t, base.gold_scores(completions)[rows]),
        )
        if isinstance(reward, WMRLReward):
            step = reward.step_arrays(*scores)
        else:
            step = reward.step_arrays(
                *scores,
                families=[base.families_G[g] for g in rows],
                group_ids=rows.tolist(),
                influence=policy.influence(completions)[rows],
                proxy_version=world.version(t),
            )
        advantages = np.full(completions.shape, np.nan)
        advantages[rows] = step.advantages
        policy.update(completions, advantages, world.learning_rate)
        n_queries += step.record.n_gold_queries
        closings += [t for note in step.record.notes if "closed (" in note]
    curve[-1] = base.expected(base.gold_PK, policy)
    late = [t for t in closings if t >= world.event]
    return {
        "final": float(curve[-1]),
        "lowest": float(curve[world.event :].min()),
        "n_queries": n_queries,
        "first_closing": (late[0] - world.event) if late else None,
        "n_false": len(closings) - len(late),
    }


def run_guard_cell(job: tuple[GuardScenario, GuardArm, tuple[float, ...], int]) -> dict[str, Any]:
    """One arm in one scenario over seeds 0 … n − 1, as plain data."""
    name, arm, pass_rates, n_seeds = job
    world = _WORLDS[name](pass_rates)
    runs = [_run(world, arm, seed) for seed in range(n_seeds)]
    out: dict[str, Any] = {"scenario": name, "arm": arm, "n_seeds": n_seeds}
    for figure in ("final", "lowest", "n_queries"):
        mean, se = mean_and_se(np.array([[run[figure]] for run in runs], dtype=np.float64))
        out[figure] = {"mean": float(mean[0]), "se": float(se[0]) if np.isfinite(se[0]) else None}
    seen = [run["first_closing"] for run in runs if run["first_closing"] is not None]
    guarded = arm.endswith("guarded")
    out["seen_share"] = len(seen) / n_seeds if guarded else None
    out["steps_to_closing"] = float(np.median(seen)) if seen else None
    out["false_closings_per_run"] = float(np.mean([run["n_false"] for run in runs])) if guarded else None
    return out
