"""Six ways to reward a planning policy, on the bundled trips: who keeps the constraints, who finds the exploit.

The policy chooses edits of a good plan, independently per slot (softmax), and learns by policy gradient on
centred advantages. Every arm goes through `AnchoredReward`, so they differ in the reward alone:

    verifiers      gate(verdicts): 1 for feasible, partial credit below
    weighted_sum   share of checks passed + the judge's score: what most people write first
    gate           gate(verdicts, judge)
    gate_anchored  the same, corrected by gold on a tenth of the rollouts
    gate_rm        gate(verdicts, reward model trained on the judge's labels)
    gate_refreshed the same model, refreshed from gold labels of what the policy found

What is reported is what the policy samples: the share that is feasible, and the gold soft value of all rollouts
with infeasible ones counted 0 (a trip that cannot be made is not enjoyed).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trueup.loop import AnchorConfig, AnchoredReward
from trueup.rewardmodel.fit import Labelled, auroc_within, fit_scores
from trueup.rewardmodel.refresh import RefreshConfig, Refresher
from trueup.rewards import SoftMap, gate, weighted_sum
from trueup.scorers.features import HashedWords
from trueup.scorers.reward_model import RewardModel
from trueup.tasks.trips.edits import OPTIONS, EditedPlan, EditSpace, bundled_tasks
from trueup.types import Rollout, Score

__all__ = ["ARMS", "ArmRun", "TripsSettings", "World", "run_arm", "run_trips_demo"]

FloatArray: TypeAlias = NDArray[np.float64]
SoftScore: TypeAlias = Callable[[Sequence[EditedPlan]], Sequence[float]]

ARMS = ("verifiers", "weighted_sum", "gate", "gate_anchored", "gate_rm", "gate_refreshed")
CURVES = ("feasible", "value", "judge", "stops")
_START = (0.6, 0.0, -1.0, 0.0, -0.5)  # logits: an untrained policy rarely says "highlight"


@dataclass(frozen=True)
class TripsSettings:
    """Sizes of the experiment. `learning_rate` multiplies advantages that are scaled to unit spread."""

    n_seeds: int = 8
    n_steps: int = 60
    group_size: int = 16
    learning_rate: float = 1.5
    anchor_fraction: float = 0.1
    refresh_every: int = 10
    n_labels: int = 150  # judge labels per task for the first reward model
    n_gold_labels: int = 40  # gold labels per task that the refresher starts with


@dataclass
class ArmRun:
    """One arm, one seed: curves over steps, and the refreshes of the reward model if there were any."""

    curves: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in CURVES})
    gold_queries: int = 0
    refreshes: list[dict[str, Any]] = field(default_factory=list)


class _Policy:
    """Independent softmax per slot of each task."""

    def __init__(self, spaces: Sequence[EditSpace]) -> None:
        self.logits = [
            [np.array(_START[:size] if size == len(OPTIONS) else (1.0, -1.0)) for size in space.sizes]
            for space in spaces
        ]

    def sample(self, task: int, n: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
        columns = [rng.choice(z.size, size=n, p=_softmax(z)) for z in self.logits[task]]
        return [tuple(int(c[i]) for c in columns) for i in range(n)]

    def learn(self, task: int, actions: list[tuple[int, ...]], advantages: FloatArray, rate: float) -> None:
        """One policy-gradient step on a group; unscored rollouts (NaN) take no part."""
        scored = np.isfinite(advantages)
        if not scored.any():
            return
        for slot, z in enumerate(self.logits[task]):
            p = _softmax(z)
            step = np.zeros_like(z)
            for action, advantage in zip(actions, advantages, strict=True):
                if np.isfinite(advantage):
                    step -= advantage * p
                    step[action[slot]] += advantage
            z += rate * step / int(scored.sum())


def _softmax(z: FloatArray) -> FloatArray:
    e = np.exp(z - z.max())
    out: FloatArray = e / e.sum()
    return out


class World:
    """Tasks, the calibration sample of the untrained policy, and what was fitted on it."""

    def __init__(self, settings: TripsSettings) -> None:
        self.settings = settings
        self.spaces = [EditSpace(task) for task in bundled_tasks(max_level=3)]
        rng = np.random.default_rng(12345)
        first = _Policy(self.spaces)
        self.sample = [
            [space.build(a) for a in first.sample(t, settings.n_labels, rng)]
            for t, space in enumerate(self.spaces)
        ]
        flat = [e for row in self.sample for e in row]
        questions = tuple(t for t, row in enumerate(self.sample) for _ in row)
        by_judge = Labelled(tuple(e.text for e in flat), np.array([e.judge for e in flat]), questions)
        features = HashedWords(1024)
        self.first_model = fit_scores(by_judge, features, l2=1e-3)
        few = [i for t in range(len(self.spaces)) for i in range(t * settings.n_labels,
               t * settings.n_labels + settings.n_gold_labels)]  # fmt: skip
        by_gold = Labelled(by_judge.texts, np.array([e.gold for e in flat]), questions)
        self.gold_labels = by_gold.take(few)
        self.quality_of_first = {
            "auroc_within_judge": auroc_within(self.first_model.raw(by_judge.texts), by_judge),
            "auroc_within_gold": auroc_within(self.first_model.raw(by_gold.texts), by_gold),
        }


def run_trips_demo(
    settings: TripsSettings | None = None, progress: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """Run all arms on all seeds; plain data for results.json."""
    settings = settings or TripsSettings()
    world = World(settings)
    runs: dict[str, list[ArmRun]] = {arm: [] for arm in ARMS}
    for seed in range(settings.n_seeds):
        for arm in ARMS:
            runs[arm].append(run_arm(world, arm, seed))
            if progress is not None:
                progress(1)
    return {
        "format": "trueup.trips-demo/1",
        "settings": dataclasses.asdict(settings),
        "tasks": [space.task.id for space in world.spaces],
        "reward_model": world.quality_of_first | _refresh_summary(runs["gate_refreshed"]),
        "arms": {arm: _summary(rows, settings) for arm, rows in runs.items()},
    }


def run_arm(world: World, arm: str, seed: int) -> ArmRun:
    """One training run."""
    s = world.settings
    rng = np.random.default_rng([seed, ARMS.index(arm)])
    policy, run = _Policy(world.spaces), ArmRun()
    refresher = Refresher.start(world.gold_labels, world.first_model, RefreshConfig(per_question=16))
    reward = _reward(world, arm, seed, lambda: refresher.model)
    for step in range(s.n_steps):
        actions = [policy.sample(t, s.group_size, rng) for t in range(len(world.spaces))]
        built = [[space.build(a) for a in row] for space, row in zip(world.spaces, actions, strict=True)]
        groups = [
            [Rollout(t, e.text, e, family="trips", id=(step, t, i)) for i, e in enumerate(row)]
            for t, row in enumerate(built)
        ]
        result = reward.step(groups)
        run.gold_queries += result.record.n_gold_queries
        advantages = np.asarray(result.advantages, np.float64)
        for t, row in enumerate(actions):
            policy.learn(t, row, advantages[t], s.learning_rate)
        _note(run, built, actions)
        if arm == "gate_refreshed" and (step + 1) % s.refresh_every == 0:
            run.gold_queries += _refresh(refresher, built, step, run)
    return run


def _reward(world: World, arm: str, seed: int, model: Callable[[], RewardModel]) -> AnchoredReward:
    size = world.settings.group_size

    def judged(rollouts: Sequence[Rollout]) -> list[Score]:
        edits = [r.task for r in rollouts]
        if arm == "verifiers":
            return [gate(e.report, group_size=size) for e in edits]
        if arm == "weighted_sum":
            return [weighted_sum(e.report, e.judge, weight_hard=0.5, weight_soft=0.5) for e in edits]
        if arm in ("gate", "gate_anchored"):
            return [gate(e.report, e.judge, group_size=size, soft_map=_UNIT) for e in edits]
        scores = model().predict([e.text for e in edits])
        return [
            gate(e.report, float(x), group_size=size, soft_map=_UNIT)
            for e, x in zip(edits, scores, strict=True)
        ]

    def gold(rollouts: Sequence[Rollout]) -> list[Score]:
        return [gate(r.task.report, r.task.gold, group_size=size, soft_map=_UNIT) for r in rollouts]

    anchored = arm == "gate_anchored"
    config = AnchorConfig(
        estimator="corrected" if anchored else "proxy",
        anchor_fraction=world.settings.anchor_fraction if anchored else 0.0,
        scaling="predictable",
        seed=seed,
    )
    return AnchoredReward(judged, gold, config)


_UNIT = SoftMap((0.0, 1.0), (0.0, 1.0))  # judge and gold lie in [0, 1] already


def _refresh(refresher: Refresher, built: list[list[EditedPlan]], step: int, run: ArmRun) -> int:
    edits = [(t, e) for t, row in enumerate(built) for e in row]

    def label(indices: Sequence[int]) -> list[Score]:
        return [Score(edits[i][1].gold) for i in indices]

    record = refresher.refresh([e.text for _, e in edits], [t for t, _ in edits], label, step + 1)
    run.refreshes.append(record.to_json())
    return record.n_labelled


def _note(run: ArmRun, built: list[list[EditedPlan]], actions: list[list[tuple[int, ...]]]) -> None:
    flat = [e for row in built for e in row]
    run.curves["feasible"].append(float(np.mean([e.report.feasible is True for e in flat])))
    run.curves["value"].append(float(np.mean([e.gold * (e.report.feasible is True) for e in flat])))
    run.curves["judge"].append(float(np.mean([e.judge for e in flat])))
    stop = OPTIONS.index("stop")
    run.curves["stops"].append(float(np.mean([x == stop for row in actions for a in row for x in a[:-1]])))


def _summary(runs: list[ArmRun], settings: TripsSettings) -> dict[str, Any]:
    """Mean and standard error over seeds, per step and over the last tenth of the steps."""
    tail = max(settings.n_steps // 10, 1)
    curves, final = {}, {}
    for name in CURVES:
        grid = np.array([run.curves[name] for run in runs])
        ends = grid[:, -tail:].mean(axis=1)
        curves[name] = {"mean": grid.mean(axis=0).round(5).tolist(), "se": _se(grid).round(5).tolist()}
        final[name] = {"mean": round(float(ends.mean()), 4), "se": round(float(_se(ends[:, None])[0]), 4)}
    return {"curves": curves, "final": final, "gold_queries": float(np.mean([r.gold_queries for r in runs]))}


def _se(grid: FloatArray) -> FloatArray:
    n = grid.shape[0]
    out: FloatArray = grid.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.zeros(grid.shape[1])
    return out


def _refresh_summary(runs: list[ArmRun]) -> dict[str, Any]:
    """Before the first and after the last refresh, averaged over seeds; and the first seed's record."""
    rows = [run.refreshes for run in runs if run.refreshes]
    if not rows:
        return {"refreshes": []}

    def mean(key: str, which: int) -> float:
        return round(float(np.mean([r[which][key] for r in rows])), 4)

    return {
        "auroc_within_before": mean("auroc_before", 0),
        "auroc_within_after": mean("auroc_after", -1),
        "exploits_beaten_before": mean("exploits_beaten_before", 0),
        "exploits_beaten_after": mean("exploits_beaten_after", -1),
        "exploits_found": round(float(np.mean([sum(x["n_new_exploits"] for x in r) for r in rows])), 1),
        "accepted": round(float(np.mean([np.mean([x["accepted"] for x in r]) for r in rows])), 4),
        "refreshes": rows[0],
    }
