"""Monte-Carlo proofs: which estimators are unbiased for a random, a reversed and a hacked proxy, and which are not.

A fixed step is anchored many times with different seeds. Its advantages are projected on fixed directions (a random
"gradient" per rollout) and averaged; an unbiased estimator meets the all-gold projection within three standard
errors on every direction (Bonferroni over the directions: 3 → 4.2 for 16 of them at the same level).
"""

import numpy as np
import pytest

import trueup

N_GROUPS, GROUP_SIZE, N_DIRECTIONS = 12, 6, 16
Z_LIMIT = 4.2


def fixed_step(kind):
    rng = np.random.default_rng(11)
    gold = rng.choice([0.0, 0.25, 0.5, 1.0], size=(N_GROUPS, GROUP_SIZE))
    if kind == "random":
        proxy = rng.random(gold.shape)
    elif kind == "reversed":
        proxy = np.clip(1 - gold + 0.1 * rng.normal(size=gold.shape), 0, 1)
    else:  # hacked: right, except for rollouts that please the judge and fail
        proxy = np.clip(gold + 0.05 * rng.normal(size=gold.shape), 0, 1)
        proxy[gold == 0.0] = 0.97
    return proxy, gold


def projections(advantages, directions):
    return np.tensordot(directions, np.nan_to_num(advantages), axes=([1, 2], [0, 1])) / N_GROUPS


def run(kind, n_draws, warm=30, **settings):
    """Mean projection and its standard error over draws, and the all-gold projection."""
    proxy, gold = fixed_step(kind)
    directions = np.random.default_rng(5).normal(size=(N_DIRECTIONS, *gold.shape))
    reward = trueup.AnchoredReward(None, None, **settings)
    for _ in range(warm):  # a real state: calibrated, with variances, scale and λ learned
        reward.step_arrays(proxy, gold)
    state = reward.state_dict()
    target_settings = {"estimator": "gold", "scaling": reward.config.advantage_scaling}
    truth_reward = trueup.AnchoredReward(None, None, **target_settings)
    truth_state = truth_reward.state_dict() | {
        name: state[name] for name in ("calibrator", "predictables", "families")
    }
    truth_reward.load_state_dict(truth_state)
    truth = projections(truth_reward.step_arrays(proxy, gold).advantages, directions)
    samples = np.empty((n_draws, N_DIRECTIONS))
    for draw in range(n_draws):
        state["step_index"] = 1_000 + draw  # another draw from the same state
        reward.load_state_dict(state)
        samples[draw] = projections(reward.step_arrays(proxy, gold).advantages, directions)
    return samples, truth


def z_scores(samples, truth):
    return (samples.mean(axis=0) - truth) / (samples.std(axis=0, ddof=1) / np.sqrt(len(samples)))


UNBIASED = [
    {"estimator": "corrected", "propensity": "active"},
    {"estimator": "corrected", "propensity": "uniform"},
    {"estimator": "corrected", "unit": "group"},
    {"estimator": "corrected", "coefficient": 0.4, "scaling": "mean"},
    {"estimator": "control_variate", "propensity": "uniform"},
    {"estimator": "control_variate", "propensity": "active"},
    {"estimator": "control_variate", "scaling": "mean", "coefficient": 1.0},
]


def _name(settings):
    return "-".join(str(v) for v in settings.values())


@pytest.mark.parametrize("kind", ["random", "reversed", "hacked"])
@pytest.mark.parametrize("settings", UNBIASED, ids=_name)
def test_it_meets_the_all_gold_gradient_for_any_proxy(kind, settings):
    samples, truth = run(kind, 800, anchor_fraction=0.25, seed=3, **settings)
    assert np.abs(z_scores(samples, truth)).max() < Z_LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["random", "reversed", "hacked"])
@pytest.mark.parametrize("settings", UNBIASED, ids=_name)
def test_it_meets_the_all_gold_gradient_in_a_long_run(kind, settings):
    samples, truth = run(kind, 20_000, anchor_fraction=0.1, seed=4, **settings)
    assert np.abs(z_scores(samples, truth)).max() < Z_LIMIT


@pytest.mark.parametrize(
    "settings",
    [{"estimator": "wmrl"}, {"estimator": "mse"}, {"estimator": "corrected", "correction_clip": 0.2}],
    ids=_name,
)
def test_the_biased_ones_are_caught_by_the_same_test(settings):
    samples, truth = run("hacked", 800, anchor_fraction=0.25, seed=3, **settings)
    assert np.abs(z_scores(samples, truth)).max() > Z_LIMIT


@pytest.mark.parametrize("kind", ["random", "reversed", "hacked"])
def test_the_estimated_coefficient_is_no_worse_than_zero_or_one(kind):
    def variance(**extra):
        samples, _ = run(kind, 600, estimator="control_variate", anchor_fraction=0.25, seed=3, **extra)
        return samples.var(axis=0, ddof=1).sum()

    best = min(variance(coefficient=0.0), variance(coefficient=1.0))
    assert variance() < 1.1 * best  # 600 draws of 16 directions: the ratio's own error is about 3 %


def test_active_propensities_have_less_variance_than_uniform_ones_on_a_hacked_proxy():
    active, _ = run("hacked", 600, estimator="corrected", propensity="active", anchor_fraction=0.25)
    uniform, _ = run("hacked", 600, estimator="corrected", propensity="uniform", anchor_fraction=0.25)
    assert active.var(axis=0).sum() < 0.9 * uniform.var(axis=0).sum()


def test_lost_gold_does_not_bias_what_remains():
    """With answers lost at random, the kept rollouts' rewards are still gold in expectation."""
    proxy, gold = fixed_step("hacked")
    rng = np.random.default_rng(0)
    total, count = np.zeros(gold.shape), np.zeros(gold.shape)
    squares = np.zeros(gold.shape)
    settings = {"anchor_fraction": 0.5, "propensity": "uniform", "calibration": {"enabled": False}}
    for draw in range(2_000):
        reward = trueup.AnchoredReward(None, None, seed=draw, **settings)
        lossy = np.where(rng.random(gold.shape) < 0.3, np.nan, gold)
        x = reward.step_arrays(proxy, lossy).rewards
        kept = np.isfinite(x)
        total += np.where(kept, x, 0.0)
        squares += np.where(kept, x, 0.0) ** 2
        count += kept
    mean = total / count
    error = np.sqrt((squares / count - mean**2) / count)
    # π′ uses the step's own share of answers, a ratio estimate: its O(1/anchors) bias is far below the 0.03 allowed
    assert np.abs(mean - gold).max() < 0.03 + 4.2 * error.max()
    assert np.abs((mean - gold) / (error + 0.01)).mean() < 2.0


@pytest.mark.parametrize("propensity", ["uniform", "active"])
def test_a_rollout_that_the_proxy_lost_keeps_its_expectation(propensity):
    f, r = np.array([[np.nan, 0.9, 0.8, 0.9]]), np.array([[0.2, 0.1, 0.3, 0.0]])
    kept = []
    for seed in range(1_500):
        reward = trueup.AnchoredReward(None, None, anchor_fraction=0.5, seed=seed, propensity=propensity)
        kept.append(reward.step_arrays(f, r).rewards[0])
    kept = np.array(kept)
    error = np.nanstd(kept, axis=0) / np.sqrt(np.isfinite(kept).sum(axis=0))
    assert np.isnan(kept[:, 0]).any()
    assert (np.abs(np.nanmean(kept, axis=0) - r[0]) < 4.2 * error + 1e-12).all()


def test_without_any_proxy_the_rewards_are_gold():
    r = np.random.default_rng(0).random((4, 6))
    x = trueup.AnchoredReward(None, None, anchor_fraction=0.5).step_arrays(np.full_like(r, np.nan), r).rewards
    np.testing.assert_array_equal(x[np.isfinite(x)], r[np.isfinite(x)])
