"""One `step` without scorers, beside the published method's per-group loop on the same input.

    make bench ARGS='-k step'
"""

import numpy as np
import pytest

import trueup
from trueup.loop.wmrl import WMRLReward

SIZES = [(64, 8), (1_024, 16), (4_096, 16)]


def make_input(n_groups, group_size):
    """Groups of rollouts and array scorers that cost next to nothing."""
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 21, n_groups * group_size) / 20
    proxy = np.clip(gold + 0.1 * rng.normal(size=gold.size), 0, 1)
    groups = [
        [trueup.Rollout("p", "c", g * group_size + i) for i in range(group_size)] for g in range(n_groups)
    ]
    return groups, lambda rs: proxy[[r.task for r in rs]], lambda rs: gold[[r.task for r in rs]]


def warmed(reward, groups):
    for _ in range(5):
        reward.step(groups)
    return reward


@pytest.mark.parametrize(("n_groups", "group_size"), SIZES)
@pytest.mark.parametrize("estimator", ["corrected", "control_variate", "wmrl"])
def test_step(benchmark, estimator, n_groups, group_size):
    benchmark.group = f"step {n_groups} x {group_size}"
    groups, proxy, gold = make_input(n_groups, group_size)
    reward = warmed(trueup.AnchoredReward(proxy, gold, estimator=estimator, anchor_fraction=0.1), groups)
    benchmark(reward.step, groups)


@pytest.mark.parametrize(("n_groups", "group_size"), SIZES)
def test_step_of_the_published_method(benchmark, n_groups, group_size):
    benchmark.group = f"step {n_groups} x {group_size}"
    groups, proxy, gold = make_input(n_groups, group_size)
    reward = warmed(WMRLReward(proxy, gold, anchor_fraction=0.1), groups)
    benchmark(reward.step, groups)
