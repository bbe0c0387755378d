"""How many anchors, when, and what is reported of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trueup
from trueup.loop.schedule import scheduled_fraction


def run(n_steps, n_groups=10, group_size=8, **config):
    reward = trueup.AnchoredReward(None, None, **config)
    f = np.full((n_groups, group_size), 0.5)
    return [reward.step_arrays(f, f).record for _ in range(n_steps)]


def test_a_fraction_of_an_anchor_is_spent_over_steps():
    records = run(400, estimator="control_variate", anchor_fraction=0.025, min_anchors_per_step=0)
    counts = [r.n_gold_queries // 8 for r in records]
    assert set(counts) == {0, 1}
    assert abs(np.mean(counts) - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 400)


def test_the_floor_raises_the_realised_fraction_and_both_are_reported():
    (record,) = run(1, estimator="control_variate", anchor_fraction=0.025)
    assert record.planned_fraction == 0.025
    assert record.realised_fraction == 0.1


def test_the_cap_lowers_it():
    (record,) = run(1, anchor_fraction=0.5, max_anchors_per_step=7)
    assert record.n_gold_queries == 7


@given(st.floats(0.01, 1.0), st.integers(2, 80), st.integers(1, 5))
@settings(deadline=None)
def test_front_loading_spends_the_same_total(fraction, n_steps, front_steps):
    config = trueup.AnchorConfig(
        anchor_fraction=fraction,
        schedule="front_loaded",
        n_steps=n_steps,
        front_steps=min(front_steps, n_steps),
    )
    fractions = [scheduled_fraction(config, step) for step in range(n_steps)]
    assert sum(fractions) == pytest.approx(fraction * n_steps)
    assert all(0 <= f <= 1 for f in fractions)
    assert fractions[0] >= fractions[-1] - 1e-12


def test_another_seed_gives_other_anchors_and_the_same_seed_the_same():
    def anchors(seed):
        return [r.anchored.tolist() for r in run(5, seed=seed)]

    assert anchors(1) == anchors(1)
    assert anchors(1) != anchors(2)


def test_the_propensities_sum_to_the_budget():
    rng = np.random.default_rng(0)
    reward = trueup.AnchoredReward(None, None, anchor_fraction=0.15)
    for _ in range(30):
        f = rng.random((16, 8))
        step = reward.step_arrays(f, rng.random((16, 8)) * f)
        assert step.propensities.sum() == pytest.approx(0.15 * 128)
        assert step.propensities.min() >= 0.3 * 0.15 - 1e-12
        assert step.record.n_gold_queries in (19, 20)


def test_the_adaptive_fraction_falls_with_a_good_proxy_and_rises_with_a_bad_one():
    def settled(noise):
        reward = trueup.AnchoredReward(None, None, schedule="adaptive", cost_ratio=0.05, anchor_fraction=0.2)
        rng = np.random.default_rng(0)
        for _ in range(60):
            r = rng.random((16, 8))
            step = reward.step_arrays(np.clip(r + noise * rng.normal(size=r.shape), 0, 1), r)
        return step.record.planned_fraction

    assert settled(0.02) < 0.03  # near the floor of 0.02
    assert 0.03 < settled(0.2) < settled(2.0) <= 0.5


def test_the_adaptive_fraction_is_the_cost_optimum():
    reward = trueup.AnchoredReward(
        None, None, schedule="adaptive", cost_ratio=0.2, calibration={"enabled": False}
    )
    rng = np.random.default_rng(1)
    for _ in range(200):
        r = rng.random((32, 8))
        step = reward.step_arrays(np.clip(r + 0.15 * (1 - 2 * (rng.random(r.shape) < 0.5)), 0, 1), r)
    residual = 0.0178  # mean of (clip(r ± 0.15) − r)², by integration: 0.0225 less what clipping takes
    expected = np.sqrt(0.2 * residual / (1 / 12 - residual))
    assert step.record.planned_fraction == pytest.approx(expected, rel=0.25)
