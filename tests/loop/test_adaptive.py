"""The adaptive estimator leans on an honest proxy and falls back on a lying one, family by family."""

import numpy as np
import pytest

import trueup
from trueup.errors import ConfigError
from trueup.loop.weighting import Leaning


def kappas(proxy_of, n_steps, seed=0):
    """κ per family (two of them) after each step; `proxy_of(r, family, rng)` is the proxy."""
    rng = np.random.default_rng(seed)
    reward = trueup.AnchoredReward(None, None, estimator="adaptive", anchor_fraction=0.1, seed=seed)
    out = []
    for _ in range(n_steps):
        r = rng.random((32, 8))
        f = np.stack([np.clip(proxy_of(row, g % 2, rng), 0, 1) for g, row in enumerate(r)])
        reward.step_arrays(f, r, families=["a", "b"] * 16)
        out.append(reward._state.predictables.leaning.kappa(np.array([0, 1])))
    return np.array(out)


def honest(r, family, rng):
    return r + 0.1 * rng.normal(size=r.shape)


def lying_in_b(r, family, rng):
    return honest(1 - r if family else r, family, rng)


def test_without_evidence_it_is_corrected():
    assert kappas(honest, 2)[0].tolist() == [1.0, 1.0]


def test_it_leans_on_an_honest_proxy():
    late = np.mean([kappas(honest, 30, seed)[-1] for seed in range(12)], axis=0)
    assert (late < 0.65).all()


def test_it_falls_back_in_the_family_where_the_proxy_lies():
    finals = np.array([kappas(lying_in_b, 30, seed)[-1] for seed in range(12)])
    assert (finals[:, 1] > 0.9).all()
    assert finals[:, 0].mean() < 0.7


def test_a_found_bias_is_not_forgotten():
    leaning = Leaning(horizon=30)
    for _ in range(40):
        leaning.update(0, -0.8)
    rng = np.random.default_rng(0)
    for _ in range(2_000):
        leaning.update(0, float(rng.normal(0, 0.3)))
    assert leaning.kappa(np.zeros(1, np.int64))[0] == 1.0


def test_at_full_leaning_anchors_are_plugged_in_and_at_none_they_are_corrected():
    r, f = np.array([[1.0, 0.0, 0.5, 0.2]]), np.array([[0.5, 0.5, 0.4, 0.1]])
    reward = trueup.AnchoredReward(
        None, None, estimator="adaptive", anchor_fraction=0.5, propensity="uniform"
    )
    first = reward.step_arrays(f, r)
    expected = np.where(first.anchored, f + (r - f) / 0.5, f)
    np.testing.assert_allclose(first.rewards, expected)
    sure = Leaning(horizon=1e12)
    for ratio in (0.3, -0.3) * 50:
        sure.update(0, ratio)
    reward._state.predictables.leaning = sure
    second = reward.step_arrays(f, r)
    np.testing.assert_allclose(second.rewards, np.where(second.anchored, r, f), atol=1e-6)


def test_whole_groups_are_refused():
    with pytest.raises(ConfigError, match="unit must be 'rollout' for estimator 'adaptive'"):
        trueup.AnchoredReward(None, None, estimator="adaptive", unit="group")
