"""One `step` without scorers, beside the published method's per-group loop on the same input.

Scores come as arrays (`step_arrays`), so that what is measured is the step: choosing anchors, calibrating, forming
advantages, learning. The `rollouts` variants add what reading the `Rollout` objects costs both methods.

    make bench ARGS='-k step'
"""

import numpy as np
import pytest

import trueup
from trueup.loop.wmrl import WMRLReward

SIZES = [(64, 8), (1_024, 16), (4_096, 16)]
METHODS = ["corrected", "control_variate", "wmrl", "published WMRL"]


def make_scores(n_groups, group_size):
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 21, (n_groups, group_size)) / 20
    return np.clip(gold + 0.1 * rng.normal(size=gold.shape), 0, 1), gold


def make_reward(method, proxy=None, gold=None):
    if method == "published WMRL":
        return WMRLReward(proxy, gold, anchor_fraction=0.1)
    return trueup.AnchoredReward(proxy, gold, estimator=method, anchor_fraction=0.1)


@pytest.mark.parametrize(("n_groups", "group_size"), SIZES)
@pytest.mark.parametrize("method", METHODS)
def test_step(benchmark, method, n_groups, group_size):
    benchmark.group = f"step {n_groups} x {group_size}"
    proxy, gold = make_scores(n_groups, group_size)
    reward = make_reward(method)
    for _ in range(5):
        reward.step_arrays(proxy, gold)
    benchmark(reward.step_arrays, proxy, gold)


@pytest.mark.parametrize(("n_groups", "group_size"), SIZES)
@pytest.mark.parametrize("method", ["corrected", "published WMRL"])
def test_step_of_rollouts(benchmark, method, n_groups, group_size):
    benchmark.group = f"step of rollouts {n_groups} x {group_size}"
    proxy, gold = (scores.reshape(-1) for scores in make_scores(n_groups, group_size))
    groups = [
        [trueup.Rollout("p", "c", g * group_size + i) for i in range(group_size)] for g in range(n_groups)
    ]
    reward = make_reward(
        method, lambda rs: proxy[[r.task for r in rs]], lambda rs: gold[[r.task for r in rs]]
    )
    for _ in range(5):
        reward.step(groups)
    benchmark(reward.step, groups)
