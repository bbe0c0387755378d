"""The exact tilt against what is known of it in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.errors import ConfigError
from trueup.rewardmodel.brake import (
    beta_for_kl,
    effective_sample_size,
    kl_nats,
    over_optimisation_worlds,
    tilt,
)
from trueup.stats.overopt import best_of_n, exponential_tilt

vectors = st.integers(2, 12).flatmap(
    lambda n: st.tuples(
        st.lists(st.floats(0.01, 1), min_size=n, max_size=n),
        st.lists(st.floats(-3, 3), min_size=n, max_size=n),
    )
)


@given(vectors, st.floats(0.05, 20))
def test_no_other_distribution_has_a_better_regularised_reward(rows, beta):
    q, r = np.array(rows[0]) / sum(rows[0]), np.array(rows[1])
    best = tilt(q, r, beta)
    value = best @ r - beta * kl_nats(best, q)
    assert value == pytest.approx(beta * math.log(float(np.sum(q * np.exp(r / beta)))), abs=1e-6)
    rng = np.random.default_rng(0)
    for other in rng.dirichlet(np.ones(q.size), 20):
        assert other @ r - beta * kl_nats(other, q) <= value + 1e-9


@given(vectors, st.floats(0.05, 0.95))
def test_a_budget_fixes_beta(rows, share):
    q, r = np.array(rows[0]) / sum(rows[0]), np.array(rows[1])
    if np.ptp(r) < 1e-3:
        return
    budget = share * -math.log(q[r >= r.max()].sum())
    assert kl_nats(tilt(q, r, beta_for_kl(q, r, budget)), q) == pytest.approx(budget, rel=1e-4, abs=1e-6)


@given(vectors)
def test_a_smaller_beta_goes_further_and_leaves_fewer_effective_samples(rows):
    q, r = rows
    far, near = tilt(q, r, 0.3), tilt(q, r, 3.0)
    assert kl_nats(far, q) >= kl_nats(near, q) - 1e-12
    assert effective_sample_size(far, q) <= effective_sample_size(near, q) + 1e-12
    assert effective_sample_size(q, q) == pytest.approx(1.0)


@given(vectors, st.floats(0.2, 5))
def test_the_weights_agree_with_the_curve(rows, beta):
    q, r = np.array(rows[0]), np.array(rows[1])
    p = tilt(q, r, beta)
    d, proxy, _ = exponential_tilt(q, r, r, [1 / beta])
    assert d[0] ** 2 == pytest.approx(kl_nats(p, q), abs=1e-9)
    assert proxy[0] == pytest.approx(p @ r, abs=1e-9)


def test_gaussian_gold_rises_for_ever_and_the_others_have_their_true_peak():
    worlds = {w.name: w for w in over_optimisation_worlds(2001)}
    assert set(worlds) == {"gaussian", "t3", "rare_exploit", "tail_penalty"}
    for name, world in worlds.items():
        around = world.peak_strength * np.array([0.8, 1.0, 1.25])
        if name == "gaussian":
            _, _, gold = world.curve([0.25, 0.5, 1.0])
            # Jointly normal with correlation .6: gold rises by .6 · strength · sd², as far as n outcomes allow.
            np.testing.assert_allclose(gold, 0.6 * np.array([0.25, 0.5, 1.0]), atol=0.08)
            continue
        _, proxy, gold = world.curve(around)
        assert gold[1] >= max(gold[0], gold[2])
        assert proxy[0] < proxy[1] < proxy[2], "the proxy goes on rising past gold's peak"
        assert 0 < world.peak_d < 5


def test_the_tail_penaltys_peak_is_where_calculus_puts_it():
    """For a normal proxy z the tilt by t is normal with mean t, so gold's peak solves 1 = 3 · E[(t+z−1)⁺]."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    def slope(t):
        a = t - 1.0
        return 1.0 - 3.0 * (a * norm.cdf(a) + norm.pdf(a))

    world = next(w for w in over_optimisation_worlds(20_001) if w.name == "tail_penalty")
    assert world.peak_strength == pytest.approx(brentq(slope, -2, 3), abs=0.02)


def test_best_of_n_previews_the_same_world():
    world = over_optimisation_worlds(1001)[0]
    d, proxy, _ = best_of_n(world.reference, world.proxy, world.gold, [1, 4, 16])
    assert d[0] == pytest.approx(0.0, abs=1e-6)
    assert np.all(np.diff(proxy) > 0)


@pytest.mark.parametrize("beta", [0.0, -1.0, math.inf, math.nan])
def test_a_beta_that_is_none_is_refused(beta):
    with pytest.raises(ConfigError):
        tilt([0.5, 0.5], [0.0, 1.0], beta)


@pytest.mark.parametrize("budget", [0.0, -1.0, 0.7, math.nan])
def test_a_budget_that_cannot_be_met_or_used_up_is_refused(budget):
    with pytest.raises(ConfigError, match="between 0 and"):
        beta_for_kl([0.5, 0.5], [0.0, 1.0], budget)


def test_outcomes_without_a_finite_reward_are_refused():
    with pytest.raises(ConfigError):
        tilt([0.5, 0.5], [0.0, math.nan], 1.0)
    assert kl_nats([0.5, 0.5], [1.0, 0.0]) == math.inf
