"""The sweep's restated parts against their originals, and its findings against theory."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from trueup.experiments.estimator_sweep import (
    SWEEP_ARMS,
    SweepPoint,
    default_points,
    full_points,
    gradient_errors,
    run_point,
    systematic_samples,
    train,
)
from trueup.experiments.sweep_memory import Memory, binned_isotonic
from trueup.stats.sampling import systematic_sample


def test_the_vectorised_isotonic_fit_agrees_with_scipy() -> None:
    rng = np.random.default_rng(0)
    means, weights = rng.random((40, 10)), rng.random((40, 10)) + 0.05
    fitted = binned_isotonic(means * weights, weights)
    for row in range(40):
        np.testing.assert_allclose(fitted[row], isotonic_regression(means[row], weights=weights[row]).x)


def test_empty_bins_take_no_part_in_the_fit() -> None:
    weights = np.array([[2.0, 0.0, 1.0, 0.0, 3.0]])
    means = np.array([[0.5, 9.0, 0.2, -9.0, 0.9]])
    fitted = binned_isotonic(means * weights, weights)
    np.testing.assert_allclose(fitted[0, [0, 2, 4]], [0.4, 0.4, 0.9])
    assert (np.diff(fitted[0]) >= 0).all()


def test_the_vectorised_draw_agrees_with_the_loops() -> None:
    rng = np.random.default_rng(1)
    pi = rng.random((30, 17))
    pi[0], pi[1] = 1.0, 0.0
    lottery, start = rng.random(pi.shape), rng.random(30)
    drawn = systematic_samples(pi, lottery, start)
    for run in range(30):
        keys = np.argsort(np.argsort(lottery[run])).astype(np.uint64) << np.uint64(48)  # sorted by high bits
        np.testing.assert_array_equal(drawn[run], systematic_sample(pi[run], keys, start[run]))


def test_gold_has_no_gradient_error_and_a_perfect_proxy_has_none_either() -> None:
    errors = gradient_errors(SweepPoint(rank_correlation=1.0), range(8))
    assert errors["gold"].max() == 0.0
    assert errors["proxy"].max() < 1e-12
    assert errors["control_variate"].max() < 1e-3
    assert errors["gold_budget"].mean() > 1.0


def test_a_better_proxy_helps_the_arms_that_use_it_and_no_other() -> None:
    poor, good = (gradient_errors(SweepPoint(rank_correlation=r), range(48)) for r in (0.0, 0.95))
    for arm in ("proxy", "wmrl_cap", "control_variate", "corrected_uniform", "corrected"):
        assert good[arm].mean() < 0.5 * poor[arm].mean(), arm
    np.testing.assert_array_equal(poor["gold_budget"], good["gold_budget"])


def test_a_reversed_proxy_ruins_the_proxy_and_not_the_control_variate() -> None:
    point = SweepPoint(rank_correlation=-0.3)
    proxy, unbiased, gold = (
        train(point, arm, 1.0, range(12), 60).mean() for arm in ("proxy", "control_variate", "gold")
    )
    assert proxy < 0.5
    assert unbiased > 0.88
    assert gold > 0.95


def test_runs_do_not_depend_on_which_others_share_their_array() -> None:
    point = SweepPoint()
    for arm in SWEEP_ARMS:
        together = train(point, arm, 1.0, range(6), 30)
        alone = np.concatenate([train(point, arm, 1.0, [seed], 30) for seed in range(6)])
        np.testing.assert_allclose(together, alone, rtol=1e-9, err_msg=arm)


def test_a_point_gives_one_row_per_arm_with_errors_and_the_grid() -> None:
    rows = run_point(SweepPoint(n_groups=4), n_seeds=4, n_steps=5)
    assert tuple(row["arm"] for row in rows) == SWEEP_ARMS
    for row in rows:
        assert row["n_groups"] == 4
        assert row["final_gold_reward"]["se"] > 0
        grid = {float(rate): value for rate, value in row["learning_rates"].items()}
        assert row["learning_rate"] == max(grid, key=grid.__getitem__)
    assert next(row for row in rows if row["arm"] == "gold_budget")["gradient_error"][
        "mean"
    ] == pytest.approx(1.0)


def test_the_sweep_covers_what_it_says() -> None:
    for points in (default_points(), full_points()):
        assert {-0.3, 0.99} <= {p.rank_correlation for p in points}
        assert {0.005, 0.5} <= {p.anchor_fraction for p in points}
        assert len(set(points)) == len(points)
        assert len({p.noise for p in points}) == len({p.n_groups for p in points}) == 3


def test_memory_is_the_identity_until_200_pairs_and_monotone_after() -> None:
    rng = np.random.default_rng(4)
    memory = Memory(2)
    proxy = rng.random((2, 10, 8))
    gold = 0.5 * proxy**2
    everyone, pi = np.ones(proxy.shape, np.bool_), np.ones(proxy.shape)
    for _ in range(2):
        memory.learn_pairs(proxy, proxy, gold, everyone, pi)  # 80 pairs, then 160
        np.testing.assert_array_equal(memory.calibrate(proxy), proxy)
    memory.learn_pairs(proxy, proxy, gold, everyone, pi)
    calibrated = memory.calibrate(proxy)
    np.testing.assert_allclose(calibrated, gold, atol=0.05)
    for run in range(2):
        order = np.argsort(proxy[run].ravel())
        assert (np.diff(calibrated[run].ravel()[order]) >= -1e-12).all()


def test_the_coefficient_starts_at_1_and_follows_the_regression_of_gold_on_the_proxy() -> None:
    rng = np.random.default_rng(5)
    memory = Memory(3)
    np.testing.assert_array_equal(memory.coefficient(), 1.0)
    slopes = np.array([1.0, 0.4, -0.5])[:, None, None]
    for _ in range(60):
        proxy = rng.standard_normal((3, 10, 8))
        gold = slopes * proxy + 0.1 * rng.standard_normal(proxy.shape)
        memory.learn_coefficient(proxy, gold, np.ones((3, 10), np.bool_))
    np.testing.assert_allclose(memory.coefficient(), [1.0, 0.4, 0.0], atol=0.02)  # never below 0
