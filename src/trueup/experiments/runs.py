"""One run, and one cell: what an arm achieves in a scenario.

A *run* trains a fresh policy for T steps with one seed. A *cell* is one arm in one scenario: it chooses the
arm's learning rate from the scenario's grid on seeds of their own, then runs the seeds that are reported. No
seed is used for both, so the choice cannot flatter the result; every arm has the same grid and the same seeds.

What is reported is the exact expected gold reward under the policy, not a sample of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trueup.experiments.arms import ArmName, Schedule, make_step
from trueup.experiments.scenarios import Scenario
from trueup.experiments.summary import mean_and_se, none_if_nan
from trueup.types import FloatArray, IntArray

__all__ = ["Plan", "RunTrace", "run_cell", "run_once"]

_TUNING_SEEDS = 1_000_000  # tuning uses seeds from here on, reports use seeds from 0 on
_N_BINS = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """What all cells of one experiment have in common."""

    n_seeds: int = 32
    n_tuning_seeds: int = 8
    n_steps: int = 60
    anchor_fraction: float = 0.1
    schedule: Schedule = "constant"


@dataclass(slots=True)
class _Reliability:
    """Sums per bin of the raw proxy score, for the reliability plot before and after calibration.

    Only steps with a fitted map count; before the first fit the map is the identity and there is no "after".
    Every rollout of such a step counts, since an experimenter knows all gold: both scores are out of sample.
    """

    n: IntArray = field(default_factory=lambda: np.zeros(_N_BINS, np.int64))
    sums: FloatArray = field(default_factory=lambda: np.zeros((4, _N_BINS)))  # proxy, calibrated, gold, gold²

    def add(self, proxy: FloatArray, calibrated: FloatArray, gold: FloatArray) -> None:
        place = np.minimum((proxy * _N_BINS).astype(np.int64), _N_BINS - 1)
        self.n += np.bincount(place, minlength=_N_BINS)
        for row, values in enumerate((proxy, calibrated, gold, gold * gold)):
            self.sums[row] += np.bincount(place, values, minlength=_N_BINS)

    def merge(self, other: _Reliability) -> None:
        self.n += other.n
        self.sums += other.sums

    def to_json(self) -> dict[str, Any]:
        """Means per bin that holds at least one rollout. The standard error of gold takes rollouts for
        independent, which within one run they are not quite."""
        held = self.n > 0
        n = self.n[held]
        proxy, calibrated, gold, square = self.sums[:, held] / n
        spread = np.sqrt(np.maximum(square - gold**2, 0.0) / np.maximum(n - 1, 1))
        edges = np.linspace(0.0, 1.0, _N_BINS + 1)
        centres = (0.5 * (edges[:-1] + edges[1:]))[held]
        return {
            "bins": centres.tolist(),
            "proxy_mean": proxy.tolist(),
            "calibrated_mean": calibrated.tolist(),
            "gold_mean": gold.tolist(),
            "gold_se": spread.tolist(),
            "n": n.tolist(),
        }


@dataclass(frozen=True, slots=True)
class RunTrace:
    """One run of T steps. Index 0 of a curve is the untrained policy, index T the final one."""

    gold: FloatArray  # (T + 1,) exact expected gold reward
    proxy: FloatArray  # (T + 1,) exact expected opinion of the proxy
    n_gold_queries: int
    reliability: _Reliability


def run_once(
    scenario: Scenario,
    arm: ArmName,
    learning_rate: float,
    seed: int,
    plan: Plan,
) -> RunTrace:
    """Train a fresh policy for `plan.n_steps` steps."""
    luck = scenario.draw_luck(plan.n_steps, seed)
    step = make_step(arm, scenario, plan.anchor_fraction, plan.schedule, plan.n_steps, seed)
    policy = scenario.new_policy()
    gold_curve = np.empty(plan.n_steps + 1)
    proxy_curve = np.empty(plan.n_steps + 1)
    reliability = _Reliability()
    n_queries = 0
    for t in range(plan.n_steps):
        gold_curve[t] = scenario.expected(scenario.gold_PK, policy)
        proxy_curve[t] = scenario.expected(scenario.proxy_PK, policy)
        completions = policy.sample(luck.uniforms_TGN[t])
        proxy = scenario.proxy_scores(completions, luck.normals_TGND[t])
        gold = scenario.gold_scores(completions)
        result = step(proxy, gold, policy.influence(completions))
        policy.update(completions, np.asarray(result.advantages), learning_rate)
        n_queries += result.record.n_gold_queries
        if arm == "corrected" and not np.array_equal(result.record.calibrated, proxy.ravel()):
            reliability.add(proxy.ravel(), result.record.calibrated, gold.ravel())
    gold_curve[-1] = scenario.expected(scenario.gold_PK, policy)
    proxy_curve[-1] = scenario.expected(scenario.proxy_PK, policy)
    return RunTrace(gold_curve, proxy_curve, n_queries, reliability)


def run_cell(scenario: Scenario, arm: ArmName, plan: Plan) -> dict[str, Any]:
    """Tune, run, and sum up, as plain data for results.json."""
    grid = {
        rate: float(
            np.mean([run_once(scenario, arm, rate, seed, plan).gold[-1] for seed in _tuning_seeds(plan)])
        )
        for rate in scenario.learning_rates
    }
    best = max(grid, key=lambda rate: grid[rate])
    traces = [run_once(scenario, arm, best, seed, plan) for seed in range(plan.n_seeds)]
    gold_ST = np.array([trace.gold for trace in traces])
    proxy_ST = np.array([trace.proxy for trace in traces])
    finals = gold_ST[:, -1]
    gold_mean, gold_se = mean_and_se(gold_ST)
    proxy_mean, proxy_se = mean_and_se(proxy_ST)
    summary = {
        "final_gold_reward": {"mean": float(gold_mean[-1]), "se": none_if_nan(gold_se[-1])},
        "final_gold_by_seed": finals.tolist(),
        "gold_queries": float(np.mean([trace.n_gold_queries for trace in traces])),
        "auc": float(gold_mean.mean()),
        "learning_rate": best,
        "curve": {
            "step": list(range(plan.n_steps + 1)),
            "gold_mean": gold_mean.tolist(),
            "gold_se": [none_if_nan(value) for value in gold_se],
            "proxy_mean": proxy_mean.tolist(),
            "proxy_se": [none_if_nan(value) for value in proxy_se],
        },
    }
    calibration = None
    if arm == "corrected":
        total = _Reliability()
        for trace in traces:
            total.merge(trace.reliability)
        calibration = total.to_json()
    return {
        "scenario": scenario.name,
        "arm": arm,
        "summary": summary,
        "learning_rates": {str(rate): value for rate, value in grid.items()},
        "calibration": calibration,
    }


def _tuning_seeds(plan: Plan) -> range:
    return range(_TUNING_SEEDS, _TUNING_SEEDS + plan.n_tuning_seeds)
