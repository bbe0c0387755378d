"""The trips demo: what the rewards do to the constraints, on one seed, and the command that shows it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from trueup.cli.demo_trips import trips
from trueup.experiments.trips_demo import ARMS, TripsSettings, World, run_arm, run_trips_demo
from trueup.tasks.trips.edits import OPTIONS, EditSpace, bundled_tasks
from trueup.tasks.trips.soft import gold_soft, judge_soft
from trueup.types import Rollout, Verdict
from trueup.verifiers.plan import RolloutVerifier

SMALL = TripsSettings(n_seeds=1, n_steps=6, group_size=8, refresh_every=3, n_labels=40, n_gold_labels=20)


@pytest.fixture(scope="module")
def world():
    return World(TripsSettings(n_seeds=1, n_steps=40))


def last(run, name):
    return float(np.mean(run.curves[name][-5:]))


def test_the_weighted_sum_buys_constraints_back_and_the_gate_does_not(world):
    summed, gated = (run_arm(world, arm, 0) for arm in ("weighted_sum", "gate"))
    assert last(summed, "judge") > last(gated, "judge"), "it is paid for"
    assert last(summed, "feasible") < 0.7 < 0.85 < last(gated, "feasible")
    assert last(summed, "value") < last(gated, "value") - 0.2


def test_gold_on_a_tenth_of_the_rollouts_closes_the_exploit(world):
    run = run_arm(world, "gate_anchored", 0)
    n_rollouts = 40 * 16 * len(world.spaces)
    assert last(run, "stops") < 0.05
    assert last(run, "feasible") > 0.85
    assert run.gold_queries < 0.2 * n_rollouts


def test_the_results_are_complete_reproducible_and_json():
    first, second = run_trips_demo(SMALL), run_trips_demo(SMALL)
    assert json.dumps(first, allow_nan=False) == json.dumps(second)
    assert tuple(first["arms"]) == ARMS
    for row in first["arms"].values():
        assert all(len(curve["mean"]) == 6 for curve in row["curves"].values())
    assert first["arms"]["gate"]["gold_queries"] == 0
    assert first["arms"]["gate_refreshed"]["gold_queries"] > 0
    assert len(first["reward_model"]["refreshes"]) == 2


def test_the_command_writes_results_and_a_plot(tmp_path):
    result = CliRunner().invoke(trips, ["--out", str(tmp_path), "--seeds", "1", "--steps", "2"])
    assert result.exit_code == 0, result.output
    assert "weighted_sum" in result.output
    assert json.loads((tmp_path / "results.json").read_text())["format"] == "trueup.trips-demo/1"
    assert (tmp_path / "trips.svg").stat().st_size > 1000


@pytest.mark.parametrize("task", bundled_tasks(), ids=lambda t: t.id)
def test_the_bundled_plans_are_feasible_best_and_breakable(task):
    space = EditSpace(task)
    n = len(space.slots)
    keep = space.build((0,) * (n + 1))
    assert keep.report.feasible is True
    assert keep.gold == 1.0
    stops = space.build((OPTIONS.index("stop"),) * n + (0,))
    assert stops.report.feasible is False
    assert stops.judge > keep.judge + 0.1, "the judge can be taken in"
    assert stops.gold == 0.0
    cram = space.build((OPTIONS.index("cram"),) * n + (0,))
    assert {"transit", "dwell"} <= set(cram.report.failed)


def test_soft_scores_stay_in_range_whatever_the_edits():
    rng = np.random.default_rng(0)
    for task in bundled_tasks():
        space = EditSpace(task)
        for _ in range(20):
            e = space.build(tuple(int(rng.integers(k)) for k in space.sizes))
            assert 0.0 <= gold_soft(task, e.plan) == e.gold <= 1.0
            assert 0.0 <= judge_soft(task, e.plan) == e.judge <= 1.0
            assert "claim" not in e.report.failed, "the policy's arithmetic is not at issue here"


def test_a_loop_can_use_the_plan_checks_as_its_hard_constraints():
    from trueup.loop import AnchoredReward

    (task, *_) = bundled_tasks()
    good = json.dumps(task.gold)
    verifier = RolloutVerifier()
    rollouts = [Rollout("q", c, task) for c in (good, "{}", good.replace("trip", "tripp"))]
    assert verifier.verify(rollouts)[:2] == [Verdict.PASS, Verdict.FAIL]
    reward = AnchoredReward(lambda rs: [1.0] * len(rs), lambda rs: [1.0] * len(rs), anchor_fraction=1.0,
                            verifiers=[verifier], seed=0)  # fmt: skip
    advantages = reward.step([rollouts[:2]]).advantages
    assert advantages[0][0] > 0 > advantages[0][1], "the judge's 1.0 does not buy the broken plan back"
