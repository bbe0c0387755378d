"""Within-group agreement, held against scipy and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score

from trueup.errors import DataError
from trueup.stats.ranking import rank_groups


@given(st.integers(2, 9), st.integers(0, 10_000), st.integers(1, 6))
def test_tau_is_scipys_tau_b_and_auroc_is_scikit_learns_in_every_group(n, seed, levels):
    rng = np.random.default_rng(seed)
    proxy = rng.integers(0, levels + 1, 3 * n) / levels
    gold = rng.integers(0, 2, 3 * n).astype(float)
    group = rng.permutation(np.repeat([7, 3, 11], n))
    got = rank_groups(proxy, gold, group)
    assert got.group.tolist() == list(dict.fromkeys(group.tolist()))
    for i, g in enumerate(got.group):
        p, r = proxy[group == g], gold[group == g]
        if np.ptp(p) and np.ptp(r):
            assert got.tau[i] == pytest.approx(stats.kendalltau(p, r).statistic)
        else:
            assert np.isnan(got.tau[i])
        if np.ptp(r):
            assert got.auroc[i] == pytest.approx(roc_auc_score(r, p))
        else:
            assert np.isnan(got.auroc[i])


def test_a_large_group_takes_another_road_to_the_same_numbers():
    rng = np.random.default_rng(1)
    gold = rng.integers(0, 2, 300).astype(float)
    proxy = np.round(gold + rng.normal(0, 1, 300), 1)
    got = rank_groups(proxy, gold, np.zeros(300, dtype=int))
    assert got.tau[0] == pytest.approx(stats.kendalltau(proxy, gold).statistic)
    assert got.auroc[0] == pytest.approx(roc_auc_score(gold, proxy))


def test_regret_and_exploit_by_hand():
    proxy = np.array([0.9, 0.5, 0.1, 0.9, 0.9, 0.2])
    gold = np.array([0.0, 1.0, 0.5, 0.0, 1.0, 0.0])
    got = rank_groups(proxy, gold, np.array([0, 0, 0, 1, 1, 1]))
    assert got.regret.tolist() == [1.0, 0.5]
    assert got.exploit.tolist() == [1.0, 0.5]  # the second group's favourites are tied, one of them worst
    assert got.runner_up[0] == 0.0
    assert np.isnan(got.runner_up[1])  # only one rollout is better than the worst: no second place to fill
    assert got.chance == pytest.approx([1 / 3, 2 / 3])


def test_pooled_agreement_hides_what_the_groups_show():
    rng = np.random.default_rng(2)
    level = np.repeat(rng.normal(0, 3, 200), 8)
    gold = (level + rng.normal(0, 1, 1600) > 0).astype(float)
    proxy = level + rng.normal(0, 1, 1600)  # knows the prompt, nothing of the rollout
    assert roc_auc_score(gold, proxy) > 0.9
    within = rank_groups(proxy, gold, np.repeat(np.arange(200), 8)).auroc
    assert np.nanmean(within) == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("skill", [0.0, 0.5, 2.0])
def test_an_honest_proxys_favourite_is_no_more_often_the_worst_than_its_second_choice(skill):
    rng = np.random.default_rng(3)
    gold = rng.integers(0, 2, (6000, 6)).astype(float)
    proxy = skill * gold + rng.normal(0, 1, gold.shape)
    got = rank_groups(proxy.ravel(), gold.ravel(), np.repeat(np.arange(6000), 6))
    difference = (got.exploit - got.runner_up)[~np.isnan(got.runner_up)]
    assert difference.mean() <= 3 * difference.std() / np.sqrt(difference.size)


def test_an_exploit_turns_that_around():
    rng = np.random.default_rng(4)
    gold = rng.integers(0, 2, (3000, 6)).astype(float)
    proxy = gold + rng.normal(0, 0.3, gold.shape)
    hack = rng.random(gold.shape) < 0.03
    gold[hack], proxy[hack] = 0.0, 5.0 + rng.random(int(hack.sum()))
    got = rank_groups(proxy.ravel(), gold.ravel(), np.repeat(np.arange(3000), 6))
    difference = (got.exploit - got.runner_up)[~np.isnan(got.runner_up)]
    assert difference.mean() > 4 * difference.std() / np.sqrt(difference.size)


def test_unscored_rollouts_leave_their_group_and_a_group_of_one_says_nothing():
    got = rank_groups(
        np.array([0.1, np.nan, 0.3, 0.5]), np.array([0.0, 1.0, 1.0, 1.0]), np.array([0, 0, 0, 1])
    )
    assert got.n.tolist() == [2, 1]
    assert got.tau[0] == 1.0
    assert np.isnan([got.tau[1], got.auroc[1], got.regret[1], got.exploit[1]]).all()
    assert rank_groups(np.zeros(0), np.zeros(0), np.zeros(0, dtype=int)).n.size == 0


def test_arrays_that_do_not_line_up_are_refused():
    with pytest.raises(DataError, match="flat arrays of one length"):
        rank_groups(np.zeros(3), np.zeros(4), np.zeros(3))
