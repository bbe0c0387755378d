"""WMRLReward against the inputs and outputs of the published method's public release, and against its own promises."""

import gzip
import json
import logging
from pathlib import Path

import numpy as np
import pytest

import trueup
from trueup.errors import ConfigError, GroupError, InfrastructureError, ScorerContractError, StateError
from trueup.loop.wmrl import WMRLReward
from trueup.loop.wmrl_parts import (
    AnchorWeighter,
    OnlineCalibration,
    anchor_count,
    apply_knots,
    disagreement,
    fit_binned,
    pooled_bias,
    step_advantages,
)

REFERENCE = json.loads(
    gzip.decompress((Path(__file__).parents[1] / "data" / "wmrl_reference.json.gz").read_bytes())
)
TOLERANCE = {"rtol": 0.0, "atol": 1e-9, "strict": True}
CONFIG_KEYS = [
    "anchor_fraction",
    "min_anchor_groups",
    "min_pairs",
    "refit_every",
    "bins",
    "cap",
    "half_life",
    "warmup",
    "w_max",
    "target_weight",
    "standardize",
    "eps",
]


def array(values):
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


# -- the parts, as released ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", REFERENCE["calibration"])
def test_the_binned_map_and_its_pooled_bias_are_the_released_ones(case):
    proxy, gold = array(case["proxy"]), array(case["real"])
    knots = fit_binned(proxy, gold, case["bins"])
    if case["knots"] is None:
        assert knots is None
    else:
        np.testing.assert_allclose(np.stack(knots), np.array(case["knots"]), **TOLERANCE)
    np.testing.assert_allclose(apply_knots(knots, array(case["query"])), array(case["mapped"]), **TOLERANCE)
    before, after = pooled_bias(proxy, gold), pooled_bias(apply_knots(knots, proxy), gold)
    assert before == pytest.approx(case["bias_before"], rel=0, abs=1e-9)
    assert after == pytest.approx(case["bias_after"], rel=0, abs=1e-9)
    buffer = OnlineCalibration(min_pairs=len(proxy), refit_every=64, n_bins=case["bins"], capacity=5000)
    assert [buffer.push(*pair) for pair in zip(proxy, gold, strict=True)][-1]
    assert buffer.report()["pooled_bias_reduction"] == pytest.approx(case["reduction"], rel=0, abs=1e-9)


@pytest.mark.parametrize("case", REFERENCE["disagreement"])
def test_the_disagreement_of_a_group_is_the_released_one(case):
    value = disagreement(array(case["proxy"]), array(case["real"]))
    assert value == (None if case["value"] is None else pytest.approx(case["value"], rel=0, abs=1e-9))


@pytest.mark.parametrize("case", REFERENCE["weighter"])
def test_the_weight_follows_the_released_sequence(case):
    weighter = AnchorWeighter(
        half_life=case["half_life"],
        warmup=case["warmup"],
        w_max=case["w_max"],
        target_weight=case["target_weight"],
    )
    weights = []
    for value in case["disagreements"]:
        weighter.update(value)
        weights.append(weighter.weight)
    np.testing.assert_allclose(np.array(weights), np.array(case["weights"]), **TOLERANCE)
    assert weighter.c == pytest.approx(case["c"], rel=0, abs=1e-9)


@pytest.mark.parametrize("case", REFERENCE["advantages"])
def test_advantages_and_their_counts_are_the_released_ones(case):
    rewards = [array(g["rewards"]) for g in case["groups"]]
    anchored = [g["source"] == "env" for g in case["groups"]]
    advantages, stats = step_advantages(
        rewards, anchored, case["anchor_weight"], case["standardize"], case["eps"]
    )
    for mine, released in zip(advantages, case["advantages"], strict=True):
        np.testing.assert_allclose(mine, array(released), **TOLERANCE)
    assert {name: getattr(stats, name) for name in case["stats"]} == case["stats"]


@pytest.mark.parametrize("case", REFERENCE["anchors"])
def test_the_number_of_anchor_groups_is_the_released_one(case):
    count = anchor_count(
        case["fraction"], case["n_groups"], case["min_per_step"], case["max_concurrent"], case["in_flight"]
    )
    assert [count] * len(case["counts"]) == case["counts"]
    assert count / case["n_groups"] == case["realized"]


# -- the whole loop, as released ----------------------------------------------------------------------------------


def released_run(run):
    """The run's settings, and its steps as (groups of rollouts that carry their scores, anchors, expectation)."""
    settings = {name: run[name] for name in CONFIG_KEYS}
    steps = []
    for step in run["steps"]:
        groups = [
            [trueup.Rollout("p", "c", {"proxy": f, "gold": r}) for f, r in zip(proxy, gold, strict=True)]
            for proxy, gold in zip(step["proxy"], step["real"], strict=True)
        ]
        steps.append((groups, step["anchor_ids"], step))
    return settings, steps


def carried(name):
    """A scorer that reads the score that a rollout carries."""
    return lambda rollouts: [r.task[name] for r in rollouts]


@pytest.mark.parametrize("run", REFERENCE["loop"])
def test_a_whole_released_run_of_sixty_steps_is_reproduced(run):
    settings, steps = released_run(run)
    reward = WMRLReward(carried("proxy"), carried("gold"), **settings)
    for groups, anchors, expected in steps:
        step = reward.step(groups, anchors=anchors)
        assert step.anchor_ids == tuple(anchors)
        assert step.anchor_weight == pytest.approx(expected["anchor_weight"], rel=0, abs=1e-9)
        released = np.stack([array(row) for row in expected["advantages"]])
        np.testing.assert_allclose(step.advantages, released, **TOLERANCE)
    assert reward.calibration.n_fits == run["n_fits"]
    assert reward.weighter.weight == pytest.approx(run["final_weight"], rel=0, abs=1e-9)


@pytest.mark.parametrize("run", REFERENCE["loop"])
def test_step_arrays_gives_the_same_as_step(run):
    settings, steps = released_run(run)
    by_objects = WMRLReward(carried("proxy"), carried("gold"), **settings)
    by_arrays = WMRLReward(None, None, **settings)
    for groups, anchors, expected in steps:
        proxy, gold = (np.stack([array(row) for row in expected[name]]) for name in ("proxy", "real"))
        a = by_objects.step(groups, anchors=anchors)
        b = by_arrays.step_arrays(proxy, gold, anchors=anchors)
        np.testing.assert_array_equal(a.advantages, b.advantages)
        np.testing.assert_array_equal(a.record.gold, b.record.gold)
    assert by_objects.state_dict() == by_arrays.state_dict()


def test_the_published_defaults_are_the_defaults():
    c = WMRLReward(None, None).config
    assert (c.anchor_fraction, c.min_anchor_groups, c.max_concurrent, c.standardize, c.eps) == (
        0.1,
        1,
        None,
        True,
        1e-4,
    )
    assert (c.min_pairs, c.refit_every, c.bins, c.cap) == (200, 64, 10, 5000)
    assert (c.half_life, c.warmup, c.w_max, c.target_weight) == (64, 32, 4.0, 2.0)


# -- what is ours: faults, order, resuming -------------------------------------------------------------------------


def random_steps(n_steps=40, n_groups=8, size=6, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(n_steps):
        gold = rng.integers(0, 21, (n_groups, size)) / 20
        proxy = np.clip(np.sqrt(gold) + rng.normal(0, 0.15, gold.shape), 0, 1)
        proxy[rng.random(gold.shape) < 0.02] = np.nan
        gold[rng.random(gold.shape) < 0.02] = np.nan
        yield proxy, gold


def test_a_run_stopped_after_any_step_resumes_bit_for_bit():
    whole = WMRLReward(None, None, anchor_fraction=0.5, warmup=8, seed=3)
    steps = list(random_steps())
    for stop, (proxy, gold) in enumerate(steps):
        state = json.loads(json.dumps(whole.state_dict()))
        resumed = WMRLReward(None, None, anchor_fraction=0.5, warmup=8, seed=3)
        resumed.load_state_dict(state)
        expected = whole.step_arrays(proxy, gold)
        got = resumed.step_arrays(proxy, gold)
        assert got.anchor_ids == expected.anchor_ids, stop
        np.testing.assert_array_equal(got.advantages, expected.advantages)
        assert got.record.to_json() == expected.record.to_json()
        assert resumed.state_dict() == whole.state_dict()
    assert whole.calibration.n_fits > 3
    assert whole.weighter.c is not None


def test_a_state_of_another_configuration_is_refused():
    state = WMRLReward(None, None, seed=1).state_dict()
    with pytest.raises(StateError, match="config"):
        WMRLReward(None, None, seed=2).load_state_dict(state)
    with pytest.raises(StateError, match="version"):
        WMRLReward(None, None, seed=1).load_state_dict(state | {"version": 0})


def two_groups():
    return [[trueup.Rollout("p", f"{g}{i}", i / 4) for i in range(4)] for g in range(2)]


def by_task(rollouts):
    return [r.task for r in rollouts]


def test_gold_is_asked_for_anchor_groups_only_and_the_proxy_for_all():
    asked = {"proxy": [], "gold": []}

    def spy(name):
        def score(rollouts):
            asked[name] += [r.completion for r in rollouts]
            return by_task(rollouts)

        return score

    step = WMRLReward(spy("proxy"), spy("gold")).step(two_groups(), anchors=[1])
    assert asked["gold"] == ["10", "11", "12", "13"]
    assert len(asked["proxy"]) == 8
    assert step.record.n_gold_queries == 4
    np.testing.assert_array_equal(step.propensities, 0.5)
    np.testing.assert_array_equal(step.anchored, [[False] * 4, [True] * 4])


@pytest.mark.parametrize("lost", [None, float("nan"), trueup.Score.unscored("sandbox_unavailable")])
def test_a_lost_grade_is_never_zero(lost):
    def gold(rollouts):
        return [lost, *by_task(rollouts)[1:]]

    reward = WMRLReward(by_task, gold)
    step = reward.step(two_groups(), anchors=[0])
    assert np.isnan(step.advantages[0, 0])
    assert np.isnan(step.rewards[0, 0])
    assert step.reasons[0, 0] is not None
    assert step.advantages[0, 1:].mean() == pytest.approx(0)  # centred without the lost one
    assert len(reward.calibration) == 3


@pytest.mark.parametrize(
    ("error", "reason"),
    [(RuntimeError("gone"), "scorer_error"), (InfrastructureError("gone", "cancelled"), "cancelled")],
)
def test_a_gold_that_fails_leaves_its_groups_unscored_and_the_others_whole(error, reason, caplog):
    def gold(rollouts):
        raise error

    reward = WMRLReward(by_task, gold)
    with caplog.at_level(logging.CRITICAL):
        step = reward.step(two_groups(), anchors=[0])
    assert np.isnan(step.advantages[0]).all()
    assert np.isfinite(step.advantages[1]).all()
    assert set(step.reasons[0]) == {reason}
    assert len(reward.calibration) == 0


def test_a_programmers_fault_raises_and_changes_nothing():
    reward = WMRLReward(by_task, lambda rollouts: [0.5])
    before = reward.state_dict()
    with pytest.raises(ScorerContractError, match="one score per rollout"):
        reward.step(two_groups(), anchors=[0])
    with pytest.raises(GroupError, match="distinct group indices"):
        reward.step(two_groups(), anchors=[2])
    with pytest.raises(GroupError, match="distinct group indices"):
        reward.step(two_groups(), anchors=[0, 0])
    assert reward.state_dict() == before


def test_groups_of_one_and_ragged_groups_keep_their_places():
    groups = two_groups()
    groups[0] = groups[0][:1]
    step = WMRLReward(by_task, by_task).step(groups, anchors=[])
    assert [a.shape for a in step.advantages] == [(1,), (4,)]
    assert np.isnan(step.advantages[0]).all()  # nothing to compare with, but scored
    assert step.rewards[0][0] == 0.0
    assert step.reasons[0][0] is None
    assert step.anchor_ids == ()
    assert step.record.metrics["trueup/wmrl/n_groups"] == 1


def test_a_group_of_equal_scores_gets_zero_advantages_and_is_counted():
    groups = [[trueup.Rollout("p", "c", 0.1) for _ in range(3)], two_groups()[0]]
    step = WMRLReward(by_task, by_task).step(groups, anchors=[0])
    np.testing.assert_allclose(step.advantages[0], 0.0, atol=1e-9)
    assert step.record.metrics["trueup/wmrl/n_degenerate"] == 1


def test_anchors_depend_on_seed_step_and_ids_alone():
    def drawn(seed, order, n_steps=30):
        reward = WMRLReward(by_task, by_task, anchor_fraction=0.25, seed=seed)
        groups = [trueup.Group([trueup.Rollout("p", "c", 0.5)] * 2, id=f"g{i}") for i in order]
        return [frozenset(reward.step(groups).anchor_ids) for _ in range(n_steps)]

    first = drawn(0, range(8))
    assert first == drawn(0, [3, 1, 4, 0, 5, 7, 2, 6])
    assert first != drawn(1, range(8))
    assert all(len(ids) == 2 for ids in first)
    assert len(set(first)) > 10


def test_every_group_is_drawn_equally_often():
    reward = WMRLReward(None, None, anchor_fraction=0.25)
    scores = np.zeros((8, 1))
    counts = np.zeros(8)
    for _ in range(2000):
        counts[list(reward.step_arrays(scores, scores).anchor_ids)] += 1
    # 2,000 draws of π = 1/4: standard deviation 19.4
    np.testing.assert_allclose(counts, 500, atol=4 * 19.4)


def test_a_refit_in_the_middle_of_a_step_is_said_in_the_record():
    reward = WMRLReward(None, None, min_pairs=10, anchor_fraction=1.0)
    rng = np.random.default_rng(0)
    scores = rng.random((4, 8))
    step = reward.step_arrays(scores, scores**2, anchors=[1])
    assert step.record.notes == ()
    assert step.record.refit is None
    step = reward.step_arrays(scores, scores**2, anchors=[1])
    assert "within group 1" in step.record.notes[0]
    assert step.record.refit["n_pairs"] == 16  # reported at the end of the step, over the whole buffer
    np.testing.assert_array_equal(step.rewards[0], scores[0])  # before the refit: the identity
    assert not np.array_equal(step.rewards[2], scores[2])
    np.testing.assert_array_equal(step.record.calibrated, scores.reshape(-1))  # the map before the step


def test_the_buffer_forgets_the_oldest_pairs_first():
    buffer = OnlineCalibration(min_pairs=2, refit_every=1, n_bins=10, capacity=3)
    for value in (0.0, 0.2, 0.4, 0.6):
        buffer.push(value, value)
    assert buffer.state_dict()["proxy"] == [0.2, 0.4, 0.6]


@pytest.mark.parametrize("setting", [{"anchor_fraction": 2}, {"bins": 1}, {"eps": 0.0}, {"bin": 10}])
def test_a_wrong_setting_is_refused_by_name(setting):
    with pytest.raises(ConfigError, match=next(iter(setting))):
        WMRLReward(None, None, **setting)


def test_async_scorers_are_refused_with_the_remedy():
    async def proxy(rollouts):
        return by_task(rollouts)

    with pytest.raises(ConfigError, match="AnchoredReward"):
        WMRLReward(proxy, by_task)


def test_the_pooled_bias_can_fall_while_the_error_within_groups_grows():
    """Between groups the proxy reads the level well, within groups it reverses: the map is fitted to the level."""
    rng = np.random.default_rng(0)
    level = np.repeat(rng.uniform(0.2, 0.8, 400), 8)
    signal = rng.normal(0, 0.02, level.size)
    gold = level + signal
    proxy = np.sqrt(np.clip(level - 0.2 * signal, 0, 1)) * 0.5
    knots = fit_binned(proxy, gold, 10)
    mapped = apply_knots(knots, proxy)

    def within(values):
        difference = (values - gold).reshape(-1, 8)
        return float(np.mean((difference - difference.mean(axis=1, keepdims=True)) ** 2))

    assert pooled_bias(mapped, gold) < 0.5 * pooled_bias(proxy, gold)
    assert within(mapped) > within(proxy)
