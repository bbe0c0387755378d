"""Runs are paired, budgets are kept, and the arms come out in the order that the theory gives."""

from __future__ import annotations

import numpy as np
import pytest

from trueup.experiments.arms import ARMS
from trueup.experiments.runs import Plan, run_cell, run_once
from trueup.experiments.scenarios import SCENARIOS, make_scenario
from trueup.experiments.summary import mean_and_se
from trueup.tasks.catalogue import load_programs

SHORT = Plan(n_seeds=2, n_tuning_seeds=1, n_steps=20)


def _scenario(name, rates):  # type: ignore[no-untyped-def]
    return make_scenario(name, load_programs(), np.array(rates.pass_rate))


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_runs_in_every_scenario_and_starts_from_the_same_policy(name, arm, rates) -> None:  # type: ignore[no-untyped-def]
    scenario = _scenario(name, rates)
    trace = run_once(scenario, arm, scenario.learning_rates[0], 0, Plan(n_steps=4))
    assert trace.gold.shape == trace.proxy.shape == (5,)
    assert np.isfinite(trace.gold).all()
    assert trace.gold[0] == pytest.approx(scenario.gold_PK.mean())


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("name", ["hackable", "contextual_exploit"])
def test_gold_queries_are_what_the_budget_says(arm, name, rates) -> None:  # type: ignore[no-untyped-def]
    scenario = _scenario(name, rates)
    plan = Plan(n_steps=20, anchor_fraction=0.1)
    paid = run_once(scenario, arm, 1.0, 3, plan).n_gold_queries
    everything = 20 * scenario.n_rollouts
    if arm == "gold":
        assert paid == everything
    elif arm == "proxy":
        assert paid == 0
    else:
        assert paid == pytest.approx(0.1 * everything, rel=0.07)  # WMRL rounds 6.4 groups to 6


@pytest.mark.parametrize("arm", ["gold_budget", "control_variate", "corrected"])
def test_front_loading_costs_no_more(arm, rates) -> None:  # type: ignore[no-untyped-def]
    scenario = _scenario("hackable", rates)
    plans = Plan(n_steps=20), Plan(n_steps=20, schedule="front_loaded")
    constant, front = (
        np.mean([run_once(scenario, arm, 1.0, seed, plan).n_gold_queries for seed in range(12)])
        for plan in plans
    )
    # Ten groups at once, then about half a group per step: the total varies by two groups, its mean by 5 rollouts.
    assert front == pytest.approx(constant, abs=15)


def test_a_run_repeats_exactly_and_depends_on_its_seed(rates) -> None:  # type: ignore[no-untyped-def]
    scenario = _scenario("hackable", rates)
    first, again, other = (run_once(scenario, "corrected", 1.0, seed, SHORT).gold for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_arms_with_one_seed_share_their_luck(rates) -> None:  # type: ignore[no-untyped-def]
    """Before the arms' policies part, they sample the same completions and hear the same judge."""
    scenario = _scenario("hackable", rates)
    a, b = scenario.draw_luck(5, 11), scenario.draw_luck(5, 11)
    np.testing.assert_array_equal(a.uniforms_TGN, b.uniforms_TGN)
    np.testing.assert_array_equal(a.normals_TGND, b.normals_TGND)
    assert not np.array_equal(a.uniforms_TGN, scenario.draw_luck(5, 12).uniforms_TGN)


def test_a_longer_run_begins_like_a_shorter_one_of_gold(rates) -> None:  # type: ignore[no-untyped-def]
    """All gold uses no anchors and no judge, so its curve is a matter of samples and updates alone; a policy
    gradient written out here must trace it."""
    scenario = _scenario("monotone", rates)
    luck = scenario.draw_luck(10, 0)
    gold = np.array(rates.pass_rate)
    logits = np.zeros(20)
    curve = []
    for t in range(10):
        p = np.exp(logits) / np.exp(logits).sum()
        curve.append(p @ gold)
        chosen = np.searchsorted(np.cumsum(p), luck.uniforms_TGN[t], side="right").clip(max=19)
        r = gold[chosen]
        a = (r - r.mean(1, keepdims=True)) / (r.std(1, ddof=1, keepdims=True) + 1e-4)
        step = np.zeros(20)
        for k, weight in zip(chosen.ravel(), a.ravel(), strict=True):
            step += weight * (np.eye(20)[k] - p)
        logits = logits + 1.0 * step / r.size
    trace = run_once(scenario, "gold", 1.0, 0, Plan(n_steps=10))
    np.testing.assert_allclose(trace.gold[:10], curve, rtol=1e-9)


def test_the_cell_reports_the_grid_and_the_rate_that_won_it(rates) -> None:  # type: ignore[no-untyped-def]
    scenario = _scenario("hackable", rates)
    cell = run_cell(scenario, "corrected", SHORT)
    grid = {float(rate): value for rate, value in cell["learning_rates"].items()}
    assert tuple(grid) == scenario.learning_rates
    assert cell["summary"]["learning_rate"] == max(grid, key=grid.__getitem__)
    assert cell["summary"]["final_gold_reward"]["mean"] == pytest.approx(
        np.mean(cell["summary"]["final_gold_by_seed"])
    )
    assert len(cell["summary"]["curve"]["step"]) == len(cell["summary"]["curve"]["gold_mean"]) == 21


def test_reliability_counts_every_rollout_of_the_steps_with_a_fitted_map(rates) -> None:  # type: ignore[no-untyped-def]
    """Eight anchors a step and 200 pairs to the first fit: the map is in force from step 25 of 30 on."""
    cell = run_cell(_scenario("hackable", rates), "corrected", Plan(n_seeds=2, n_tuning_seeds=1, n_steps=30))
    assert sum(cell["calibration"]["n"]) == 2 * 5 * 80
    short = run_cell(_scenario("hackable", rates), "corrected", SHORT)
    assert short["calibration"]["n"] == []


def test_tuning_never_sees_a_reported_seed(rates, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    from trueup.experiments import runs

    seen: dict[bool, set[int]] = {True: set(), False: set()}
    calls = 0
    true_run = runs.run_once

    def spy(scenario, arm, rate, seed, plan):  # type: ignore[no-untyped-def]
        nonlocal calls
        calls += 1
        seen[calls <= len(scenario.learning_rates) * plan.n_tuning_seeds].add(seed)
        return true_run(scenario, arm, rate, seed, plan)

    monkeypatch.setattr(runs, "run_once", spy)
    run_cell(_scenario("hackable", rates), "gold", Plan(n_seeds=3, n_tuning_seeds=2, n_steps=2))
    assert seen[False] == {0, 1, 2}
    assert not seen[True] & seen[False]


def test_the_error_of_one_seed_is_unknown_and_not_0() -> None:
    mean, se = mean_and_se([0.5])
    assert mean == 0.5
    assert np.isnan(se)
    assert mean_and_se([1.0, 3.0]) == (2.0, pytest.approx(1.0))


def _finals(name, arm, rate, rates, seeds, **plan):  # type: ignore[no-untyped-def]
    scenario = _scenario(name, rates)
    return np.array([run_once(scenario, arm, rate, seed, Plan(**plan)).gold[-1] for seed in seeds])


def test_a_hackable_judge_ruins_the_proxy_and_not_the_unbiased_arms(rates) -> None:  # type: ignore[no-untyped-def]
    """The reduced form of the slow test below: 6 seeds, the arms whose gaps are wide."""
    seeds = range(6)
    proxy = _finals("hackable", "proxy", 1.0, rates, seeds).mean()
    assert proxy < 0.4
    for arm, rate in (("gold_budget", 1.4), ("control_variate", 1.4), ("corrected", 1.4)):
        assert _finals("hackable", arm, rate, rates, seeds).mean() > 0.93, arm
    assert _finals("hackable", "gold", 4.0, rates, seeds).mean() > 0.995


def test_a_reversed_family_and_an_exploit_ruin_the_plug_in_and_not_the_corrected_rewards(rates) -> None:  # type: ignore[no-untyped-def]
    seeds = range(2)
    corrected = _finals("contextual_exploit", "corrected", 20.0, rates, seeds, anchor_fraction=0.05)
    wmrl = _finals("contextual_exploit", "wmrl", 20.0, rates, seeds, anchor_fraction=0.05)
    assert corrected.mean() > wmrl.mean() + 0.1
    assert corrected.mean() > 0.86


@pytest.mark.slow
def test_the_arms_come_out_in_the_expected_order(rates) -> None:  # type: ignore[no-untyped-def]
    """Paired differences beyond two standard errors, each arm at the rate that its grid gives it."""
    seeds = range(24)

    def assert_better(name, better, worse, **plan):  # type: ignore[no-untyped-def]
        gap = _finals(name, *better, rates, seeds, **plan) - _finals(name, *worse, rates, seeds, **plan)
        assert gap.mean() > 2 * gap.std(ddof=1) / np.sqrt(gap.size), (name, better, worse, gap.mean())

    assert_better("hackable", ("wmrl", 0.7), ("proxy", 1.0))
    assert_better("hackable", ("control_variate", 1.4), ("wmrl", 0.7))
    assert_better("hackable", ("gold", 4.0), ("corrected", 2.0))
    for worse in (("wmrl", 20.0), ("gold_budget", 20.0), ("control_variate", 20.0)):
        assert_better("contextual_exploit", ("corrected", 50.0), worse, anchor_fraction=0.05)
    corrected = _finals("contextual_benign", "corrected", 120.0, rates, seeds, anchor_fraction=0.1)
    wmrl = _finals("contextual_benign", "wmrl", 120.0, rates, seeds, anchor_fraction=0.1)
    assert corrected.mean() > wmrl.mean() - 0.002
