"""Fidelity of a proxy, against scikit-learn where it has the same figure and against cases counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from trueup.stats.fidelity import auroc, calibration_error, measure_fidelity, status_of

NAN = float("nan")


@given(st.integers(0, 2**31), st.integers(2, 60))
@settings(max_examples=50, deadline=None)
def test_auroc_is_that_of_scikit_learn_ties_included(seed, n):
    rng = np.random.default_rng(seed)
    score = rng.integers(0, 5, n) / 4
    positive = rng.random(n) < 0.5
    if positive.all() or not positive.any():
        assert auroc(score, positive) is None
    else:
        assert auroc(score, positive) == pytest.approx(roc_auc_score(positive, score))


def test_a_calibrated_score_has_a_small_calibration_error_and_a_shifted_one_its_shift():
    rng = np.random.default_rng(0)
    p = rng.random(40_000)
    gold = (rng.random(p.size) < p).astype(float)
    assert calibration_error(p, gold, 0.0, 1.0) < 0.015
    half = np.full(10_000, 0.5)
    assert calibration_error(half + 0.2, (rng.random(10_000) < 0.5).astype(float), 0.0, 1.0) == pytest.approx(
        0.2, abs=0.02
    )


def test_unscored_cases_are_counted_and_enter_no_mean():
    proxy = [1.0, NAN, 0.0, 0.5, NAN, 0.9]
    gold = [1.0, 1.0, 1.0, NAN, NAN, 0.0]
    report = measure_fidelity(proxy, gold, ["a", "a", "a", "b", "b", "b"])
    assert (report.n_cases, report.n_both, report.proxy_unscored, report.gold_unscored) == (6, 3, 2, 2)
    assert report.mae == pytest.approx((0 + 1 + 0.9) / 3)
    assert report.confusion["unscored"] == {"pass": 1, "part": 0, "fail": 0, "unscored": 1}
    assert report.confusion["pass"] == {"pass": 1, "part": 0, "fail": 1, "unscored": 0}
    assert sum(sum(row.values()) for row in report.confusion.values()) == 6


def test_agreement_within_groups_is_not_fooled_by_differences_between_groups():
    proxy = [0.9, 0.8, 0.2, 0.1]
    gold = [0.8, 1.0, 0.0, 0.1]
    report = measure_fidelity(proxy, gold, ["easy", "easy", "hard", "hard"])
    assert report.tau_within_group == -1.0
    assert report.auroc == pytest.approx(2 / 3)


def test_nothing_in_common_is_unknown_and_not_zero():
    report = measure_fidelity([NAN, 0.5], [0.5, NAN], [0, 0])
    assert (report.mae, report.ece, report.auroc, report.tau_within_group) == (None,) * 4


def test_statuses_follow_the_declared_range():
    assert status_of(np.array([10.0, 8.5, 5.0, 1.0, NAN]), 0.0, 10.0) == [
        "pass",
        "part",
        "part",
        "fail",
        "unscored",
    ]
