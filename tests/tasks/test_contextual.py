"""The contextual task is what its description says, family by family."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from trueup.tasks.contextual import FAMILIES, REVERSED_FAMILY, make_contextual_task, read_proxy


@pytest.fixture(scope="module")
def task():  # type: ignore[no-untyped-def]
    return make_contextual_task()


def _rank_correlation(task, proxy, family, honest_only=True):  # type: ignore[no-untyped-def]
    mine = (task.family == family)[:, None] & (~task.trick | (not honest_only))
    return spearmanr(task.gold[mine], proxy[mine]).statistic


def test_shapes_and_ranges(task) -> None:  # type: ignore[no-untyped-def]
    assert task.gold.shape == task.benign.shape == task.exploit.shape == task.trick.shape == (64, 20)
    assert task.features.shape == (64, 20, 9)
    assert np.bincount(task.family).tolist() == [16] * len(FAMILIES)
    for table in (task.gold, task.benign, task.exploit):
        assert ((table >= 0) & (table <= 1)).all()


def test_it_is_the_same_task_every_time() -> None:
    first, second = make_contextual_task(), make_contextual_task()
    np.testing.assert_array_equal(first.gold, second.gold)
    np.testing.assert_array_equal(first.exploit, second.exploit)
    assert not np.array_equal(first.gold, make_contextual_task(seed=1).gold)


def test_the_benign_proxy_is_in_about_the_right_order_in_every_family(task) -> None:  # type: ignore[no-untyped-def]
    assert min(_rank_correlation(task, task.benign, f, honest_only=False) for f in range(4)) > 0.85


def test_the_exploit_proxy_reverses_one_family_and_only_that(task) -> None:  # type: ignore[no-untyped-def]
    found = [_rank_correlation(task, task.exploit, f) for f in range(4)]
    assert found[REVERSED_FAMILY] < -0.85
    assert min(found[:REVERSED_FAMILY]) > 0.85


def test_the_trick_is_in_half_of_every_family_and_loved_and_worthless(task) -> None:  # type: ignore[no-untyped-def]
    has_trick = task.trick.any(axis=1)
    for family in range(4):
        assert has_trick[task.family == family].sum() == 8
    assert task.gold[task.trick].max() <= 0.1
    rank = (task.exploit > task.exploit[task.trick].min()).sum(axis=1)[
        has_trick & (task.family != REVERSED_FAMILY)
    ]
    assert np.median(rank) <= 4  # of 20 completions: the trick is near the top
    np.testing.assert_array_equal(task.features[..., -1], task.trick)


def test_a_reading_is_noisy_and_stays_on_the_scale() -> None:
    mean = np.array([0.0, 0.5, 1.0])
    np.testing.assert_allclose(read_proxy(mean, np.zeros(3)), mean)
    low, high = read_proxy(mean, np.full(3, -3.0)), read_proxy(mean, np.full(3, 3.0))
    assert low.min() == 0.0
    assert high.max() == 1.0
    assert low[1] < 0.5 < high[1]
