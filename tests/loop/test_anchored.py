"""AnchoredReward: the contract, the fault boundary, the transaction, resuming."""

import asyncio
import json
import logging
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trueup
from trueup.errors import ConfigError, GroupError, InfrastructureError, ScorerContractError, StateError

ESTIMATORS = ["corrected", "control_variate", "wmrl", "gold", "proxy", "gold_budget", "mse", "adaptive"]


def groups_of(n_groups=4, group_size=3, seed=0, families=("default",)):
    rng = np.random.default_rng(seed)
    return [
        [
            trueup.Rollout(
                "p",
                "x" * int(rng.integers(1, 20)),
                {"gold": float(rng.random())},
                families[g % len(families)],
            )
            for _ in range(group_size)
        ]
        for g in range(n_groups)
    ]


def proxy(rollouts):
    return [len(r.completion) / 20 for r in rollouts]


def gold(rollouts):
    return [r.task["gold"] for r in rollouts]


def test_a_step_gives_one_advantage_per_rollout():
    step = trueup.AnchoredReward(proxy, gold, anchor_fraction=0.5).step(groups_of(4, 3))
    assert step.advantages.shape == step.rewards.shape == step.propensities.shape == (4, 3)
    assert np.isfinite(step.advantages).all()
    assert len(step.anchor_ids) == step.record.n_gold_queries == 6


def test_ragged_groups_give_a_list_of_arrays():
    groups = groups_of(3, 4)
    groups[1] = groups[1][:2]
    step = trueup.AnchoredReward(proxy, gold, anchor_fraction=0.5).step(groups)
    assert [len(a) for a in step.advantages] == [4, 2, 4]
    whole = trueup.AnchoredReward(proxy, gold, estimator="gold").step([groups[1]])
    np.testing.assert_allclose(
        trueup.AnchoredReward(proxy, gold, estimator="gold").step(groups).advantages[1], whole.advantages[0]
    )


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_with_all_groups_anchored_is_gold_or_its_own_definition(estimator):
    groups = groups_of(4, 5)
    reward = trueup.AnchoredReward(proxy, gold, estimator=estimator, anchor_fraction=0.5, scaling="mean")
    step = reward.step(groups, anchors=[0, 1, 2, 3])
    truth = np.array([[r.task["gold"] for r in group] for group in groups])
    centred = truth - truth.mean(axis=1, keepdims=True)
    if estimator == "proxy":
        raw = np.array([proxy(group) for group in groups])
        centred = raw - raw.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(step.advantages, centred, atol=1e-12)


def test_fixed_anchors_are_whole_groups_with_their_share_as_propensity():
    step = trueup.AnchoredReward(proxy, gold).step(groups_of(4, 3), anchors=[2, 0])
    assert step.anchor_ids == (0, 2)
    np.testing.assert_array_equal(step.anchored, np.array([[1, 0, 1, 0]]).T * np.ones((1, 3)) > 0)
    np.testing.assert_allclose(step.propensities, 0.5)


def test_gold_is_asked_for_the_anchors_only_and_the_proxy_for_everyone():
    asked = []

    def counting_gold(rollouts):
        asked.append(len(rollouts))
        return gold(rollouts)

    step = trueup.AnchoredReward(proxy, counting_gold, anchor_fraction=0.25).step(groups_of(4, 4))
    assert asked == [4]
    assert step.record.realised_fraction == 0.25
    assert np.isfinite(step.record.proxy).all()


def test_the_corrected_reward_is_a_plain_reward():
    """Centring step.rewards gives step.advantages: a trainer without an advantage hook loses nothing."""
    step = trueup.AnchoredReward(proxy, gold, anchor_fraction=0.3, scaling="mean").step(groups_of(6, 5))
    np.testing.assert_allclose(step.advantages, step.rewards - step.rewards.mean(axis=1, keepdims=True))


# -- faults ---------------------------------------------------------------------------------------------------


def broken(rollouts):
    raise RuntimeError("the judge is on fire")


def test_an_exception_in_the_proxy_is_unscored_with_its_text(caplog):
    with caplog.at_level(logging.CRITICAL):
        step = trueup.AnchoredReward(broken, gold, anchor_fraction=0.34).step(groups_of(2, 3))
    assert set(step.reasons[~step.anchored]) == {"scorer_error"}
    assert np.isnan(step.advantages[~step.anchored]).all()
    assert step.record.metrics["trueup/failure/scorer_error"] == 6
    assert np.isfinite(step.rewards[step.anchored]).all()  # gold was paid for and is used


@pytest.mark.parametrize("estimator", ["corrected", "control_variate", "wmrl", "gold", "gold_budget", "mse"])
def test_without_any_gold_answer_nothing_is_trained(estimator, caplog):
    with caplog.at_level(logging.CRITICAL):
        step = trueup.AnchoredReward(proxy, broken, estimator=estimator).step(groups_of(4, 3))
    assert np.isnan(step.advantages).all()
    assert np.isnan(step.rewards).all()
    assert all(reason is not None for reason in step.reasons.ravel())
    assert "unscored rather than trained on the proxy alone" in step.record.notes[0]


def test_a_lost_gold_answer_is_left_out_and_keeps_its_reason():
    def partly(rollouts):
        answers = gold(rollouts)
        return [trueup.Score.unscored("timeout_infrastructure", "slow disk"), *answers[1:]]

    step = trueup.AnchoredReward(proxy, partly, anchor_fraction=0.5).step(groups_of(4, 4))
    lost = step.reasons == "timeout_infrastructure"
    assert lost.sum() == 1
    assert np.isnan(step.advantages[lost]).all()
    assert np.isfinite(step.advantages[~lost]).all()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (InfrastructureError("down", reason="sandbox_unavailable"), "sandbox_unavailable"),
        (TimeoutError("late"), "timeout_infrastructure"),
        (KeyError("bug"), "scorer_error"),
    ],
)
def test_each_fault_of_a_scorer_has_its_reason(error, reason, caplog):
    def failing(rollouts):
        raise error

    with caplog.at_level(logging.CRITICAL):
        step = trueup.AnchoredReward(failing, gold, estimator="proxy").step(groups_of(2, 2))
    assert set(step.reasons.ravel()) == {reason}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda rs: [0.5] * (len(rs) - 1), "one score per rollout"),
        (lambda rs: [2.0] * len(rs), r"declared range \[0, 1\], got 2 .*AnchorConfig\(proxy_range"),
        (lambda rs: ["high"] * len(rs), "Score, float or None"),
        (lambda rs: 0.5, "must return a list"),
    ],
)
def test_a_scorer_that_breaks_its_contract_raises_and_changes_nothing(answer, message):
    reward = trueup.AnchoredReward(answer, gold)
    before = json.dumps(reward.state_dict())
    with pytest.raises(ScorerContractError, match=message):
        reward.step(groups_of())
    assert json.dumps(reward.state_dict()) == before


def test_a_score_out_of_range_by_rounding_is_clipped():
    step = trueup.AnchoredReward(lambda rs: [1.0 + 1e-12] * len(rs), gold, estimator="proxy").step(
        groups_of()
    )
    assert (step.rewards == 1.0).all()


def test_a_proxy_on_another_scale_starts_on_golds():
    reward = trueup.AnchoredReward(
        lambda rs: [10.0 * len(r.completion) / 20 for r in rs], gold, proxy_range=(0, 10), anchor_fraction=0.5
    )
    step = reward.step(groups_of())
    np.testing.assert_allclose(step.record.calibrated, step.record.proxy / 10)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([], "at least one group"),
        ([[]], "at least one rollout"),
        ("ab", "list of groups"),
        ([trueup.Rollout("p", "c")], "list of groups of Rollout, got Rollout"),
        ([["text"]], "trueup.Rollout objects, got str"),
        ([trueup.Group([trueup.Rollout("p", "c")], id="a")] * 2, "unique within a step, got 'a' twice"),
        ([[trueup.Rollout("p", "c", id=1), trueup.Rollout("p", "c")]], "Either all rollouts"),
        ([[trueup.Rollout("p", "c", id=1), trueup.Rollout("p", "d", id=1)]], "Rollout ids must be unique"),
        ([[trueup.Rollout("p", "c", family=3)]], "family must be a str"),
    ],
)
def test_groups_that_cannot_be_right_are_refused(groups, message):
    with pytest.raises(GroupError, match=message):
        trueup.AnchoredReward(proxy, gold).step(groups)


@pytest.mark.parametrize("anchors", [[0, 0], [9], [-1], [0.5], [True]])
def test_anchors_that_are_no_groups_are_refused(anchors):
    with pytest.raises(GroupError, match="anchors must be"):
        trueup.AnchoredReward(proxy, gold).step(groups_of(), anchors=anchors)


@pytest.mark.parametrize("influence", [[1.0], [-1.0] * 12, [np.nan] * 12])
def test_influence_must_fit_the_rollouts(influence):
    with pytest.raises(GroupError, match="influence must be"):
        trueup.AnchoredReward(proxy, gold).step(groups_of(), influence=influence)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"anchor_fraction": 1.5}, "anchor_fraction must be less than or equal to 1, got 1.5"),
        ({"anchor_frction": 0.5}, "anchor_frction is not a setting.*Known settings: estimator"),
        ({"estimator": "magic"}, "estimator must be 'corrected'"),
        ({"scaling": "std"}, "not linear"),
        ({"estimator": "control_variate", "unit": "rollout"}, "whole groups"),
        ({"schedule": "front_loaded"}, "n_steps must be given"),
        ({"gold_range": (1, 0)}, "gold_range must be two finite numbers"),
    ],
)
def test_bad_settings_are_refused_before_any_scoring(settings, message):
    with pytest.raises(ConfigError, match=message):
        trueup.AnchoredReward(proxy, gold, **settings)


def test_settings_come_in_one_form():
    with pytest.raises(ConfigError, match="one form"):
        trueup.AnchoredReward(proxy, gold, trueup.AnchorConfig(), seed=3)


def test_a_scorer_must_be_callable():
    with pytest.raises(ConfigError, match="Pass the function itself"):
        trueup.AnchoredReward([0.5], gold)


# -- verifiers ------------------------------------------------------------------------------------------------


def test_no_score_buys_back_a_failed_constraint():
    asked = []

    def delighted(rollouts):
        asked.extend(rollouts)
        return [1.0] * len(rollouts)

    def rule(rollouts):
        return ["fail" if i % 3 == 0 else "pass" for i in range(len(rollouts))]

    for estimator in ESTIMATORS:
        asked.clear()
        reward = trueup.AnchoredReward(
            delighted, lambda rs: [0.8] * len(rs), estimator=estimator, anchor_fraction=0.5, verifiers=[rule]
        )
        step = reward.step(groups_of(4, 3))
        scored = np.isfinite(step.rewards[:, 0])
        assert (step.rewards[scored, 0] == 0.0).all()
        assert scored.any()
        assert (step.advantages[scored, 0] <= 0).all()
        assert not step.anchored[:, 0].any()


def test_an_undecided_constraint_is_unscored_not_zero():
    def unsure(rollouts):
        return [trueup.Verdict.UNKNOWN, *["pass"] * (len(rollouts) - 1)]

    step = trueup.AnchoredReward(proxy, gold, estimator="gold", verifiers=[unsure]).step(groups_of(2, 3))
    assert np.isnan(step.advantages[0, 0])
    assert step.reasons[0, 0] == "verifier_unknown"
    assert np.isfinite(step.advantages[0, 1:]).all()


def test_a_verifier_that_raises_decides_nothing(caplog):
    with caplog.at_level(logging.CRITICAL):
        step = trueup.AnchoredReward(proxy, gold, verifiers=[broken]).step(groups_of(2, 3))
    assert set(step.reasons.ravel()) == {"verifier_unknown"}


def test_a_soft_result_does_not_gate():
    def soft(rollouts):
        return [trueup.VerifierResult("style", trueup.Verdict.FAIL, hard=False)] * len(rollouts)

    step = trueup.AnchoredReward(proxy, gold, estimator="gold", verifiers=[soft]).step(groups_of(2, 3))
    assert (step.rewards > 0).any()


@pytest.mark.parametrize(
    ("answers", "message"), [([True, True], "bare bool"), (["pass"], "one verdict per rollout")]
)
def test_a_verifier_that_breaks_its_contract_raises(answers, message):
    with pytest.raises(ScorerContractError, match=message):
        trueup.AnchoredReward(proxy, gold, verifiers=[lambda rs: answers]).step(groups_of(1, 2))


# -- concurrency ----------------------------------------------------------------------------------------------


class AsyncScorer:
    def __init__(self, function):
        self.function = function
        self.loops = set()

    async def score(self, rollouts):
        self.loops.add(id(asyncio.get_running_loop()))
        await asyncio.sleep(0)
        return self.function(rollouts)


def test_async_scorers_give_what_sync_ones_give_and_keep_their_loop():
    slow_proxy, slow_gold = AsyncScorer(proxy), AsyncScorer(gold)
    first = trueup.AnchoredReward(slow_proxy, slow_gold, seed=1)
    second = trueup.AnchoredReward(proxy, gold, seed=1)
    for seed in range(3):
        groups = groups_of(seed=seed)
        np.testing.assert_array_equal(first.step(groups).advantages, second.step(groups).advantages)
    assert len(slow_proxy.loops | slow_gold.loops) == 1


def test_proxy_and_gold_run_side_by_side_where_the_plan_allows():
    meeting = threading.Barrier(2, timeout=10)

    def meets(function):
        def scorer(rollouts):
            meeting.wait()  # breaks unless the other scorer is running at the same time
            return function(rollouts)

        return scorer

    reward = trueup.AnchoredReward(meets(proxy), meets(gold), estimator="control_variate")
    assert np.isfinite(reward.step(groups_of()).advantages).all()


def test_step_inside_a_running_loop_points_to_astep():
    reward = trueup.AnchoredReward(proxy, gold, seed=2)

    async def inside():
        with pytest.raises(ConfigError, match=r"await reward\.astep"):
            reward.step(groups_of())
        return await reward.astep(groups_of())

    expected = trueup.AnchoredReward(proxy, gold, seed=2).step(groups_of())
    np.testing.assert_array_equal(asyncio.run(inside()).advantages, expected.advantages)


def test_an_awaitable_from_a_plain_function_is_explained():
    later = AsyncScorer(proxy)
    with pytest.raises(ScorerContractError, match="declared with `async def`"):
        trueup.AnchoredReward(lambda rs: later.score(rs), gold).step(groups_of())


def test_steps_of_several_threads_do_not_disturb_each_other():
    expected = trueup.AnchoredReward(proxy, gold, estimator="control_variate").step(groups_of()).advantages
    results = []

    def work():
        reward = trueup.AnchoredReward(AsyncScorer(proxy), gold, estimator="control_variate")
        results.append(reward.step(groups_of()).advantages)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    for advantages in results:
        np.testing.assert_array_equal(advantages, expected)


def test_an_interrupt_leaves_the_state_as_it_was():
    def interrupted(rollouts):
        raise KeyboardInterrupt

    reward = trueup.AnchoredReward(interrupted, gold)
    before = json.dumps(reward.state_dict())
    with pytest.raises(KeyboardInterrupt):
        reward.step(groups_of())
    assert json.dumps(reward.state_dict()) == before


# -- purity and state -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_resumed_run_is_the_same_run_bit_for_bit(estimator):
    make = lambda: trueup.AnchoredReward(  # noqa: E731
        proxy,
        gold,
        estimator=estimator,
        anchor_fraction=0.5,
        seed=7,
        calibration={"min_pairs": 30, "refit_every": 8},
    )
    straight, stopped = make(), make()
    for seed in range(12):
        groups = groups_of(6, 4, seed, ("short", "long"))
        expected = straight.step(groups)
        saved = json.loads(json.dumps(stopped.state_dict()))
        stopped = make()
        stopped.load_state_dict(saved)
        got = stopped.step(groups)
        np.testing.assert_array_equal(got.advantages, expected.advantages)
        assert got.anchor_ids == expected.anchor_ids
        assert json.dumps(got.record.to_json()) == json.dumps(expected.record.to_json())
    assert stopped.state_dict() == straight.state_dict()


def test_a_state_of_another_configuration_is_refused():
    state = trueup.AnchoredReward(proxy, gold, seed=1).state_dict()
    with pytest.raises(StateError, match="got different seed"):
        trueup.AnchoredReward(proxy, gold, seed=2).load_state_dict(state)
    with pytest.raises(StateError, match="version 1, got 99"):
        trueup.AnchoredReward(proxy, gold, seed=1).load_state_dict(state | {"version": 99})


def test_anchors_do_not_depend_on_the_order_of_the_groups():
    groups = [trueup.Group(g, id=f"prompt-{i}") for i, g in enumerate(groups_of(8, 3))]
    settings = {"estimator": "control_variate", "anchor_fraction": 0.4, "seed": 5}
    forward = trueup.AnchoredReward(proxy, gold, **settings).step(groups)
    backward = trueup.AnchoredReward(proxy, gold, **settings).step(groups[::-1])
    assert set(forward.anchor_ids) == set(backward.anchor_ids)
    np.testing.assert_allclose(forward.advantages, backward.advantages[::-1])


@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 5), st.sampled_from(ESTIMATORS))
@settings(max_examples=60, deadline=None)
def test_every_advantage_is_a_number_or_has_a_reason(seed, n_groups, group_size, estimator):
    rng = np.random.default_rng(seed)

    def flaky(rollouts):
        return [None if rng.random() < 0.3 else float(rng.random()) for _ in rollouts]

    groups = groups_of(n_groups, group_size, seed)
    step = trueup.AnchoredReward(flaky, flaky, estimator=estimator, anchor_fraction=0.5, seed=seed).step(
        groups
    )
    unscored = ~np.isfinite(step.rewards)
    assert np.isnan(step.advantages[unscored]).all()
    assert all(isinstance(reason, str) for reason in step.reasons[unscored])
    assert all(reason is None for reason in step.reasons[~unscored])
    finite = np.where(np.isfinite(step.advantages), step.advantages, 0.0)
    if estimator in ("corrected", "adaptive", "gold", "proxy", "gold_budget", "wmrl"):
        assert np.abs(finite.sum(axis=1)).max() < 1e-9


def test_arrays_and_rollouts_give_the_same_step():
    groups = groups_of(5, 4)
    f = np.array([proxy(g) for g in groups])
    r = np.array([gold(g) for g in groups])
    for estimator in ESTIMATORS:
        by_objects = trueup.AnchoredReward(proxy, gold, estimator=estimator, seed=3).step(groups)
        by_arrays = trueup.AnchoredReward(None, None, estimator=estimator, seed=3).step_arrays(
            f, lambda i: r.ravel()[i]
        )
        np.testing.assert_array_equal(by_objects.advantages, by_arrays.advantages)


def test_only_the_anchors_entries_of_gold_are_read():
    f = np.linspace(0, 1, 40).reshape(10, 4)
    read = []

    def gold_of(index):
        read.extend(index.tolist())
        return np.zeros(index.size)

    step = trueup.AnchoredReward(None, None, anchor_fraction=0.2).step_arrays(f, gold_of)
    assert sorted(read) == np.flatnonzero(step.anchored.ravel()).tolist()
    assert len(read) == 8


def test_the_anchor_weight_moves_with_disagreement_after_the_warm_up():
    reward = trueup.AnchoredReward(
        None, None, estimator="wmrl", anchor_fraction=0.5, calibration={"enabled": False}
    )
    rng = np.random.default_rng(0)

    def weights(noise, n_steps):
        out = []
        for _ in range(n_steps):
            r = rng.random((8, 8))
            out.append(
                reward.step_arrays(np.clip(r + noise * rng.normal(size=r.shape), 0, 1), r).anchor_weight
            )
        return out

    quiet = weights(0.1, 20)
    assert quiet[:8] == [1.0] * 8  # 4 anchor groups a step: 32 are seen after the eighth
    assert quiet[8] == pytest.approx(2.0)
    assert weights(1.0, 60)[-1] == 4.0


def test_the_calibration_is_fixed_within_a_step_and_refitted_after_it():
    reward = trueup.AnchoredReward(
        None, None, anchor_fraction=1.0, calibration={"min_pairs": 100, "refit_every": 64}
    )
    rng = np.random.default_rng(0)
    for n_steps in range(1, 6):
        f = rng.random((16, 4))
        step = reward.step_arrays(f, f**2)
        if n_steps <= 2:
            np.testing.assert_array_equal(step.record.calibrated, f.ravel())  # identity: 64, then 128 pairs
    assert np.abs(step.record.calibrated - f.ravel() ** 2).max() < 0.05
    assert step.record.refit is not None
    assert step.record.refit["calibrated"]["variance"] < step.record.refit["proxy"]["bias2"]


def test_a_slow_gold_does_not_stop_the_clock_of_an_async_caller():
    def slow_gold(rollouts):
        time.sleep(0.05)
        return gold(rollouts)

    ticks = []

    async def tick():
        while True:
            ticks.append(1)
            await asyncio.sleep(0.005)

    async def main():
        clock = asyncio.create_task(tick())
        await trueup.AnchoredReward(proxy, slow_gold).astep(groups_of())
        clock.cancel()

    asyncio.run(main())
    assert len(ticks) > 2


# -- arrays, states and overlapping steps ---------------------------------------------------------------------

GRID = np.linspace(0, 1, 12).reshape(4, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"proxy": "x", "gold": GRID}, "proxy must be an array of numbers"),
        ({"proxy": [[1, 2], [3]], "gold": GRID}, "proxy must be an array of numbers"),
        ({"proxy": GRID[0], "gold": GRID}, r"shape \(n_groups, group_size\)"),
        ({"proxy": GRID, "gold": GRID.T}, r"gold must have the proxy's shape \(4, 3\), got \(3, 4\)"),
        ({"proxy": GRID, "gold": None}, "gold must"),
        ({"proxy": GRID, "gold": GRID, "families": ["a"]}, "one entry per group"),
        ({"proxy": GRID, "gold": GRID, "group_ids": [1, 1, 2, 3]}, "ids unique"),
        ({"proxy": GRID, "gold": GRID, "features": "many"}, "features must be"),
        ({"proxy": GRID, "gold": GRID, "features": np.ones((3, 3, 2))}, "features must be finite"),
        ({"proxy": GRID, "gold": GRID, "anchors": 0}, "anchors must be a list"),
    ],
)
def test_arrays_that_cannot_be_right_are_refused(arguments, message):
    with pytest.raises(GroupError, match=message):
        trueup.AnchoredReward(None, None).step_arrays(**arguments)


def test_array_scores_have_the_fault_boundary_of_scorers(caplog):
    with pytest.raises(ScorerContractError, match="declared range"):
        trueup.AnchoredReward(None, None).step_arrays(GRID, 5 * GRID + 1)
    with pytest.raises(ScorerContractError, match="declared range"):
        trueup.AnchoredReward(None, None).step_arrays(5 * GRID, GRID)
    with caplog.at_level(logging.CRITICAL):
        step = trueup.AnchoredReward(None, None).step_arrays(GRID, lambda index: 1 / 0)
    assert set(step.reasons[step.anchored]) == {"scorer_error"}


def test_features_of_another_width_are_refused_before_anything_changes():
    reward = trueup.AnchoredReward(None, None, anchor_fraction=0.5)
    reward.step_arrays(GRID, GRID, features=np.ones((4, 3, 2)))
    before = json.dumps(reward.state_dict())
    for features in (None, np.ones((4, 3, 3))):
        with pytest.raises(GroupError, match=r"as many features as the ones before it \(2\)"):
            reward.step_arrays(GRID, GRID, features=features)
    assert json.dumps(reward.state_dict()) == before


def test_two_steps_at_once_are_refused_and_the_first_one_stands():
    async def main():
        reward = trueup.AnchoredReward(AsyncScorer(proxy), AsyncScorer(gold))
        first = asyncio.create_task(reward.astep(groups_of()))
        await asyncio.sleep(0)
        with pytest.raises(StateError, match="finished before the next one starts"):
            await reward.astep(groups_of())
        await first
        await reward.astep(groups_of())
        return reward.step_index

    assert asyncio.run(main()) == 2


@pytest.mark.parametrize("broken_state", [None, {}, {"version": 1}, {"version": 1, "config": None}])
def test_a_state_that_cannot_be_read_changes_nothing(broken_state):
    reward = trueup.AnchoredReward(None, None, anchor_fraction=0.5)
    reward.step_arrays(GRID, GRID)
    before = json.dumps(reward.state_dict())
    with pytest.raises(StateError):
        reward.load_state_dict(broken_state)
    half = reward.state_dict()
    del half["predictables"]
    with pytest.raises(StateError, match="cannot be read"):
        reward.load_state_dict(half)
    assert json.dumps(reward.state_dict()) == before


def test_no_anchors_by_the_callers_choice_is_noted():
    step = trueup.AnchoredReward(None, None).step_arrays(GRID, GRID, anchors=[])
    assert "trains on the proxy alone" in step.record.notes[0]


def test_a_fraction_of_zero_asks_gold_for_nothing():
    step = trueup.AnchoredReward(None, None, anchor_fraction=0.0).step_arrays(GRID, GRID)
    assert step.record.n_gold_queries == 0


def test_ids_that_print_their_address_are_refused():
    groups = [trueup.Group(g, id=object()) for g in groups_of(2)]
    with pytest.raises(GroupError, match="prints its address"):
        trueup.AnchoredReward(proxy, gold).step(groups)
