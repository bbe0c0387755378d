"""Centring and scaling with missing scores, against NumPy on the scored entries."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trueup.stats.advantages import center, linear_advantages, standardized_advantages

rewards = arrays(
    np.float64, st.tuples(st.integers(1, 5), st.integers(1, 7)), elements=st.floats(-5, 5) | st.just(np.nan)
)


@given(rewards)
@settings(deadline=None)
def test_each_group_is_centred_over_its_scored_rollouts_only(rewards_GN):
    advantages = center(rewards_GN)
    for row, got in zip(rewards_GN, advantages, strict=True):
        scored = np.isfinite(row)
        if scored.sum() < 2:
            assert np.isnan(got).all()
        else:
            np.testing.assert_allclose(got[scored], row[scored] - row[scored].mean(), atol=1e-12)
            assert np.isnan(got[~scored]).all()


def test_linear_advantages_are_the_leave_one_out_baseline():
    row = np.array([0.1, 0.9, 0.4, 0.4])
    leave_one_out = [row[i] - np.delete(row, i).mean() for i in range(4)]
    np.testing.assert_allclose(linear_advantages(row[None], 0.5)[0], np.array(leave_one_out) / 0.5)


def test_standardised_advantages_are_grpos():
    row = np.array([0.1, 0.9, 0.4, 0.4])
    expected = (row - row.mean()) / (row.std(ddof=1) + 1e-4)
    np.testing.assert_allclose(standardized_advantages(row[None])[0], expected)


def test_a_group_without_spread_has_zero_advantage_not_nan():
    np.testing.assert_array_equal(standardized_advantages(np.full((1, 3), 0.5)), np.zeros((1, 3)))


def test_a_group_of_one_has_no_advantage():
    assert np.isnan(linear_advantages(np.array([[0.7]]))).all()


def test_leading_axes_are_independent_runs():
    rng = np.random.default_rng(0)
    rewards_SGN = rng.random((3, 4, 5))
    whole = standardized_advantages(rewards_SGN)
    for s in range(3):
        np.testing.assert_array_equal(whole[s], standardized_advantages(rewards_SGN[s]))


@pytest.mark.parametrize("function", [center, linear_advantages, standardized_advantages])
def test_a_lost_score_never_becomes_zero(function):
    advantages = function(np.array([[0.2, np.nan, 0.8]]))
    assert np.isnan(advantages[0, 1])
