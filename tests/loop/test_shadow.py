"""Shadow mode trains on gold and learns beside it what the proxy would have done."""

import numpy as np

import trueup


def test_shadow_trains_on_gold_and_scores_the_proxy_for_everything():
    r = np.random.default_rng(0).random((6, 8))
    f = 1 - r
    shadow = trueup.AnchoredReward(None, None, mode="shadow", scaling="mean").step_arrays(f, r)
    gold = trueup.AnchoredReward(None, None, estimator="gold", scaling="mean").step_arrays(f, r)
    np.testing.assert_array_equal(shadow.advantages, gold.advantages)
    np.testing.assert_array_equal(shadow.record.proxy.reshape(r.shape), f)
    assert shadow.record.n_gold_queries == 48
    assert np.isnan(gold.record.proxy).all()


def test_shadow_calibrates_as_an_anchored_run_would():
    reward = trueup.AnchoredReward(None, None, mode="shadow")
    rng = np.random.default_rng(1)
    for _ in range(8):
        f = rng.random((8, 8))
        step = reward.step_arrays(f, f**2)
    assert np.abs(step.record.calibrated - f.ravel() ** 2).max() < 0.1


def test_a_lost_proxy_costs_a_shadow_run_nothing():
    r = np.random.default_rng(2).random((4, 8))
    step = trueup.AnchoredReward(None, None, mode="shadow").step_arrays(np.full_like(r, np.nan), r)
    assert np.isfinite(step.advantages).all()


def test_both_scorers_run_side_by_side_in_shadow():
    proxy = lambda rs: [0.5] * len(rs)  # noqa: E731
    gold = lambda rs: [r.task for r in rs]  # noqa: E731
    groups = [[trueup.Rollout("p", "c", i / 4) for i in range(4)]]
    step = trueup.AnchoredReward(proxy, gold, mode="shadow").step(groups)
    np.testing.assert_allclose(step.rewards, [[0.0, 0.25, 0.5, 0.75]])
