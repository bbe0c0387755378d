"""The policies' gradients, influences and samples against independent computations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.experiments.policies import LinearPolicy, TabularPolicy


def _linear(seed: int = 0, n_prompts: int = 6, n_completions: int = 5) -> LinearPolicy:
    rng = np.random.default_rng(seed)
    return LinearPolicy(rng.standard_normal((n_prompts, n_completions, 3)), np.arange(n_prompts) % 2)


def _trained(policy, groups: int, seed: int):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(seed)
    for _ in range(3):
        chosen = policy.sample(rng.random((groups, 4)))
        policy.update(chosen, rng.standard_normal((groups, 4)), 0.7)
    return policy


CASES = [(lambda: _trained(TabularPolicy(5), 3, 1), 3), (lambda: _trained(_linear(), 6, 1), 6)]


@pytest.mark.parametrize(("make", "groups"), CASES)
def test_an_update_follows_the_gradient_of_the_log_probability(make, groups) -> None:  # type: ignore[no-untyped-def]
    """A small step must raise Σ A log π / n by lr · ‖gradient‖², to first order."""
    rng = np.random.default_rng(2)
    policy = make()
    prompt = np.arange(groups)[:, None] if policy.probabilities().shape[0] > 1 else np.zeros((groups, 1), int)
    chosen = policy.sample(rng.random((groups, 4)))
    advantages = rng.standard_normal((groups, 4))

    def objective() -> float:
        return float((advantages * np.log(policy.probabilities()[prompt, chosen])).mean())

    parameters = "_logits_K" if isinstance(policy, TabularPolicy) else "_theta_FD"
    before, start = objective(), getattr(policy, parameters).copy()
    policy.update(chosen, advantages, 1e-5)
    gradient = (getattr(policy, parameters) - start) / 1e-5
    assert (objective() - before) / 1e-5 == pytest.approx((gradient**2).sum(), rel=1e-3)


@pytest.mark.parametrize(("make", "groups"), CASES)
def test_influence_is_the_squared_norm_of_the_score_function(make, groups) -> None:  # type: ignore[no-untyped-def]
    """One rollout with advantage 1 and rate 1 moves the parameters by exactly its score function."""
    policy = make()
    chosen = policy.sample(np.random.default_rng(3).random((groups, 2)))
    claimed = policy.influence(chosen)
    parameters = "_logits_K" if isinstance(policy, TabularPolicy) else "_theta_FD"
    for g in range(groups):
        for n in range(2):
            fresh = make()
            start = getattr(fresh, parameters).copy()
            only = np.full((groups, 2), np.nan)
            only[g, n] = 1.0
            fresh.update(chosen, only, 1.0)
            moved = ((getattr(fresh, parameters) - start) ** 2).sum()
            assert claimed[g, n] == pytest.approx(moved)


def test_samples_follow_the_probabilities() -> None:
    policy = _trained(TabularPolicy(5), 3, 4)
    counts = np.bincount(policy.sample(np.random.default_rng(5).random((1, 200_000))).ravel(), minlength=5)
    np.testing.assert_allclose(counts / 200_000, policy.probabilities()[0], atol=0.005)
    linear = _trained(_linear(), 6, 4)
    chosen = linear.sample(np.random.default_rng(6).random((6, 100_000)))
    for prompt in range(6):
        share = np.bincount(chosen[prompt], minlength=5) / 100_000
        np.testing.assert_allclose(share, linear.probabilities()[prompt], atol=0.008)


@given(st.floats(0, 1, exclude_max=True))
def test_a_larger_uniform_number_never_gives_an_earlier_completion(u: float) -> None:
    policy = _trained(TabularPolicy(5), 3, 4)
    low, high = policy.sample(np.array([[u * 0.5, u]]))[0]
    assert low <= high <= 4


@pytest.mark.parametrize("make", [lambda: TabularPolicy(5), _linear])
def test_an_unscored_rollout_is_left_out_and_not_counted_as_zero(make) -> None:  # type: ignore[no-untyped-def]
    groups = 6
    chosen = make().sample(np.random.default_rng(7).random((groups, 4)))
    advantages = np.random.default_rng(8).standard_normal((groups, 4))
    with_gap, without, as_zero = make(), make(), make()
    holed = advantages.copy()
    holed[:, 3] = np.nan
    with_gap.update(chosen, holed, 1.0)
    without.update(chosen[:, :3], advantages[:, :3], 1.0)
    as_zero.update(chosen, np.nan_to_num(holed), 1.0)
    np.testing.assert_allclose(with_gap.probabilities(), without.probabilities())
    assert not np.allclose(with_gap.probabilities(), as_zero.probabilities())


@pytest.mark.parametrize("make", [lambda: TabularPolicy(5), _linear])
def test_a_step_without_any_score_changes_nothing(make) -> None:  # type: ignore[no-untyped-def]
    policy = make()
    before = policy.probabilities().copy()
    policy.update(np.zeros((6, 4), np.int64), np.full((6, 4), np.nan), 1.0)
    np.testing.assert_array_equal(policy.probabilities(), before)


def test_families_do_not_share_parameters() -> None:
    policy = _linear()
    advantages = np.full((6, 4), np.nan)
    advantages[::2] = np.random.default_rng(9).standard_normal((3, 4))  # family 0 only
    policy.update(policy.sample(np.random.default_rng(10).random((6, 4))), advantages, 5.0)
    uniform = np.full(5, 0.2)
    np.testing.assert_allclose(policy.probabilities()[1::2], np.tile(uniform, (3, 1)))
    assert np.abs(policy.probabilities()[::2] - uniform).max() > 0.05
