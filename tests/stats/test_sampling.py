"""Propensities, the draw, and its purity."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog
from scipy.stats import chisquare

from trueup.stats.sampling import (
    active_propensities,
    hash_keys,
    mix_keys,
    systematic_sample,
    uniform_start,
    waterfill,
)

weights = arrays(np.float64, st.integers(1, 40), elements=st.floats(0, 10))


@given(weights, st.floats(0, 45))
@settings(deadline=None)
def test_waterfill_spends_the_budget_within_the_cap(weights_P, budget):
    filled = waterfill(weights_P, budget)
    assert (filled >= 0).all()
    assert (filled <= 1 + 1e-12).all()
    assert filled.sum() == pytest.approx(min(budget, weights_P.size), abs=1e-9)


@given(weights.filter(lambda w: (w > 1e-3).all()), st.floats(0.1, 30))
@settings(deadline=None)
def test_waterfill_is_proportional_below_the_cap(weights_P, budget):
    filled = waterfill(weights_P, budget)
    below = filled < 1 - 1e-9
    if below.sum() >= 2:
        ratio = filled[below] / weights_P[below]
        np.testing.assert_allclose(ratio, ratio[0], rtol=1e-6)
        assert (weights_P[~below] * ratio[0] >= 1 - 1e-6).all()


def test_propensities_minimise_the_variance_of_the_correction():
    # Σ v/π is convex in π; compare with a solver on a grid of tangent lines (an outside optimum).
    rng = np.random.default_rng(3)
    v = rng.random(6) + 0.01
    ours = waterfill(np.sqrt(v), 2.0)
    grid = np.geomspace(0.02, 1.0, 400)
    n, k = v.size, grid.size
    a_ub = np.zeros((n * k, 2 * n))
    b_ub = np.zeros(n * k)
    for i in range(n):
        for j, p in enumerate(grid):  # t_i >= v/p - v/p² (π - p)
            a_ub[i * k + j, i] = -v[i] / p**2
            a_ub[i * k + j, n + i] = -1.0
            b_ub[i * k + j] = -2 * v[i] / p
    solved = linprog(
        np.r_[np.zeros(n), np.ones(n)],
        A_ub=a_ub,
        b_ub=b_ub,
        A_eq=np.r_[np.ones(n), np.zeros(n)][None],
        b_eq=[2.0],
        bounds=[(0.02, 1.0)] * n + [(0, None)] * n,
    )
    assert (v / ours).sum() == pytest.approx(solved.fun, rel=1e-3)


@given(weights, st.floats(0.01, 1.0), st.floats(0.1, 1.0))
@settings(deadline=None)
def test_no_propensity_falls_below_its_floor(variance_P, fraction, mix):
    budget = fraction * variance_P.size
    pi = active_propensities(variance_P, None, budget, mix)
    assert (pi >= mix * fraction * (1 - 1e-9)).all()


def test_influence_moves_anchors_to_where_the_gradient_is():
    pi = active_propensities(np.ones(4), np.array([4.0, 1.0, 1.0, 0.0]), 1.0, 0.3)
    assert pi[0] > pi[1] == pi[2] > pi[3] > 0


def test_inclusion_frequencies_are_the_propensities():
    rng = np.random.default_rng(0)
    pi = waterfill(rng.random(12) + 0.05, 4.5)
    keys = hash_keys(range(12))
    counts = np.zeros(12)
    totals = set()
    n_steps = 20_000
    for step in range(n_steps):
        chosen = systematic_sample(pi, mix_keys(keys, 7, step), uniform_start(7, step))
        counts += chosen
        totals.add(int(chosen.sum()))
    assert totals == {4, 5}
    z = (counts - n_steps * pi) / np.sqrt(n_steps * pi * (1 - pi) + 1e-9)
    assert np.abs(z).max() < 4.0


def test_every_subset_of_a_uniform_draw_is_equally_likely():
    keys = hash_keys(range(5))
    seen: dict[tuple[int, ...], int] = {}
    for step in range(10_000):
        chosen = systematic_sample(np.full(5, 0.4), mix_keys(keys, 1, step), uniform_start(1, step))
        key = tuple(np.flatnonzero(chosen).tolist())
        seen[key] = seen.get(key, 0) + 1
    assert len(seen) == 10
    assert chisquare(list(seen.values())).pvalue > 1e-3


def test_certain_units_are_always_taken_and_impossible_ones_never():
    pi = np.array([1.0, 0.0, 0.5, 1.0, 0.5])
    keys = hash_keys(range(5))
    for step in range(500):
        chosen = systematic_sample(pi, mix_keys(keys, 0, step), uniform_start(0, step))
        assert chosen[0]
        assert chosen[3]
        assert not chosen[1]


def test_the_draw_does_not_depend_on_the_order_of_the_units():
    ids = [f"prompt-{i}" for i in range(20)]
    order = np.random.default_rng(0).permutation(20)
    pi = np.linspace(0.05, 0.6, 20)
    first = systematic_sample(pi, mix_keys(hash_keys(ids), 3, 11), uniform_start(3, 11))
    second = systematic_sample(
        pi[order], mix_keys(hash_keys([ids[i] for i in order]), 3, 11), uniform_start(3, 11)
    )
    np.testing.assert_array_equal(first[order], second)


def test_keys_are_the_same_in_another_process():
    ids = ["a", ("b", 2), 3]
    code = f"from trueup.stats.sampling import hash_keys; print(hash_keys({ids!r}).tolist())"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == str(hash_keys(ids).tolist())


def test_starts_are_uniform_and_differ_between_seeds():
    starts = np.array([uniform_start(seed, step) for seed in range(40) for step in range(50)])
    assert chisquare(np.histogram(starts, bins=20, range=(0, 1))[0]).pvalue > 1e-3
    assert np.unique(starts).size == starts.size
