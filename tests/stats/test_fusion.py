"""The estimators' algebra: what holds exactly, before any simulation."""

import numpy as np
import pytest

from trueup.stats.agreement import within_group_residual
from trueup.stats.fusion import (
    control_variate_advantages,
    corrected_rewards,
    projected_correction,
    shrinkage,
    within_group_variance,
)


def test_the_expectation_of_a_corrected_reward_is_gold_exactly():
    rng = np.random.default_rng(0)
    f, r, pi = rng.random(50), rng.random(50), rng.uniform(0.05, 1, 50)
    for coefficient in (0.0, 0.7, 1.0):
        yes = corrected_rewards(f, r, np.ones(50, bool), pi, coefficient)
        no = corrected_rewards(f, r, np.zeros(50, bool), pi, coefficient)
        np.testing.assert_allclose(pi * yes + (1 - pi) * no, r, atol=1e-12)


def test_clipping_bounds_the_correction_and_nothing_else():
    x = corrected_rewards(np.zeros(2), np.array([1.0, 0.1]), np.ones(2, bool), np.full(2, 0.1), clip=2.0)
    np.testing.assert_allclose(x, [2.0, 1.0])


def test_an_anchor_without_gold_has_no_corrected_reward():
    x = corrected_rewards(np.zeros(2), np.array([np.nan, np.nan]), np.array([True, False]), np.full(2, 0.5))
    assert np.isnan(x[0])
    assert x[1] == 0.0


def test_the_group_difference_estimator_is_exact_in_expectation():
    rng = np.random.default_rng(1)
    f, r, pi = rng.normal(size=(6, 4)), rng.normal(size=(6, 4)), np.full(6, 0.3)
    for coefficient in (0.0, 0.5, 1.0):
        yes = control_variate_advantages(f, r, np.ones(6, bool), pi, coefficient)
        no = control_variate_advantages(f, r, np.zeros(6, bool), pi, coefficient)
        np.testing.assert_allclose(0.3 * yes + 0.7 * no, r, atol=1e-12)


def test_the_within_group_variance_is_unbiased_for_independent_draws():
    rng = np.random.default_rng(2)
    r, f = rng.random((5, 6)), rng.random((5, 6))
    pi = rng.uniform(0.2, 0.9, (5, 6))
    truth = r.var(axis=1, ddof=1).sum()
    estimates = []
    for _ in range(20_000):
        anchored = rng.random((5, 6)) < pi
        gold = np.where(anchored, r, np.nan)
        x = corrected_rewards(f, gold, anchored, pi)
        estimates.append(within_group_variance(f, gold, anchored, pi, x)[0])
    error = np.std(estimates) / np.sqrt(len(estimates))
    assert abs(np.mean(estimates) - truth) < 4 * error
    assert error < 0.02 * truth


@pytest.mark.parametrize(("gold_of", "slope"), [(lambda a: a, 0.0), (lambda a: -a, -2.0)])
def test_the_projected_correction_reads_right_and_reversed(gold_of, slope):
    a = np.random.default_rng(3).normal(size=(20, 8))
    cross, square = projected_correction(gold_of(a) - a, a)
    assert cross / square == pytest.approx(slope)


def test_shrinkage_trusts_the_correction_only_where_bias_is_seen():
    assert shrinkage(mean=-1.0, variance=0.01, n_effective=30) > 0.98
    assert shrinkage(mean=0.01, variance=1.0, n_effective=30) == 0.0
    assert shrinkage(mean=0.0, variance=0.0, n_effective=30) == 1.0


def test_a_pooled_error_can_hide_what_happens_within_groups():
    rng = np.random.default_rng(4)
    group = np.repeat(np.arange(200), 4)
    offset = rng.normal(size=200)[group]
    gold = offset + 0.1 * rng.normal(size=800)
    before = within_group_residual(np.zeros(800), gold, group)
    after = within_group_residual(offset + 0.3 * rng.normal(size=800), gold, group)
    assert np.mean((gold - offset) ** 2) < np.mean(gold**2)  # a pooled error would call it better
    assert after.bias2 + after.variance > 3 * (before.bias2 + before.variance)


def test_a_residual_report_separates_slope_from_noise():
    rng = np.random.default_rng(5)
    group = np.repeat(np.arange(500), 6)
    f = rng.normal(size=3000)
    report = within_group_residual(f, -f + 0.5 * rng.normal(size=3000) + 2.0, group)
    assert report.slope == pytest.approx(-2.0, abs=0.05)
    assert report.offset == pytest.approx(2.0, abs=0.1)
    assert report.variance == pytest.approx(0.25, rel=0.1)
    assert report.bias2 == pytest.approx(4.0, rel=0.1)


def test_a_report_of_nothing_is_empty_not_zero():
    empty = within_group_residual(np.empty(0), np.empty(0), np.empty(0, int))
    assert (empty.n_pairs, empty.offset, empty.variance) == (0, None, None)
    alone = within_group_residual(np.zeros(2), np.ones(2), np.array([1, 2]))
    assert (alone.n_groups, alone.offset, alone.bias2) == (0, 1.0, None)
