"""R(d) fits against exact tilts of finite sets, where the true peak is known."""

from __future__ import annotations

import numpy as np
import pytest

from trueup.errors import ConfigError, DataError
from trueup.stats.overopt import best_of_n, exponential_tilt, fit_overoptimisation, predict_gold


def test_the_tilt_and_best_of_n_are_exact_on_a_set_small_enough_to_enumerate():
    base, proxy, gold = np.array([0.5, 0.3, 0.2]), np.array([0.0, 1.0, 1.0]), np.array([0.0, 1.0, 0.0])
    d, p, r = exponential_tilt(base, proxy, gold, np.array([0.0, np.log(2)]))
    weights = base * np.array([1, 2, 2])
    policy = weights / weights.sum()
    assert d[0] == 0.0
    assert d[1] ** 2 == pytest.approx((policy * np.log(policy / base)).sum())
    assert [p[1], r[1]] == pytest.approx([policy @ proxy, policy @ gold])
    d, p, r = best_of_n(base, proxy, gold, np.array([1, 2]))
    assert [d[0], p[0], r[0]] == pytest.approx([0.0, 0.5, 0.3])
    assert [p[1], r[1]] == pytest.approx([0.75, 0.75 * 0.6])
    assert d[1] ** 2 <= np.log(2) - 0.5 + 1e-12


def test_best_of_n_reaches_the_textbook_kl_when_no_scores_are_tied():
    n = np.array([2, 4, 8])
    values = np.linspace(0, 1, 20_000)
    d, _, _ = best_of_n(np.ones(values.size), values, values, n)
    assert d**2 == pytest.approx(np.log(n) - (n - 1) / n, rel=1e-3)


@pytest.mark.parametrize(("form", "peak"), [("rl", np.exp(1.2 / 0.8 - 1)), ("best_of_n", 1.2 / 1.6)])
def test_a_curve_of_the_assumed_form_gives_back_its_parameters_and_a_covering_interval(form, peak):
    rng = np.random.default_rng(0)
    d = np.linspace(0.05, 2.2 * peak, 80)
    bend = np.log(d) if form == "rl" else d
    gold = 0.3 + d * (1.2 - 0.8 * bend) + rng.normal(0, 0.02, d.size)
    fit = fit_overoptimisation(d, gold, form)
    assert fit.identifiable, fit.refusal
    assert [fit.alpha, fit.beta, fit.offset] == pytest.approx([1.2, 0.8, 0.3], abs=0.08)
    assert fit.peak == pytest.approx(peak, rel=0.06)
    assert fit.peak_interval[0] <= fit.peak <= fit.peak_interval[1]
    assert predict_gold(fit, d) == pytest.approx(0.3 + d * (1.2 - 0.8 * bend), abs=0.05)


def test_a_peak_that_was_never_passed_is_refused_however_good_the_fit():
    d = np.linspace(0.02, 0.8, 40)
    gold = d * (1.2 - 0.8 * np.log(d)) + np.random.default_rng(1).normal(0, 0.002, 40)
    fit = fit_overoptimisation(d, gold)
    assert fit.r_squared > 0.99
    assert not fit.identifiable
    assert "beyond the data" in fit.refusal


def test_monotone_gold_is_refused():
    d = np.linspace(0, 2, 30)
    fit = fit_overoptimisation(d, 0.4 * d + 0.01 * np.random.default_rng(2).standard_normal(30), "best_of_n")
    assert fit.peak is None
    assert fit.peak_interval is None
    assert fit.refusal


def _hackable_world(seed):
    """Outcomes whose proxy follows gold, but for a rare one that the proxy loves and gold hates."""
    rng = np.random.default_rng(seed)
    gold = rng.beta(2, 2, 60)
    proxy = np.clip(gold + rng.normal(0, rng.uniform(0.02, 0.2), 60), 0, 1)
    base = rng.dirichlet(np.ones(60))
    hack = int(np.argmin(base))
    base[hack], gold[hack], proxy[hack] = 10.0 ** rng.uniform(-6, -1.5), 0.0, rng.uniform(1.02, 1.5)
    return base / base.sum(), proxy, gold


def _bending_world(seed):
    """Outcomes whose gold bends down smoothly while the proxy rises."""
    rng = np.random.default_rng(1000 + seed)
    proxy = np.sort(rng.normal(0, 1, 400))
    gold = proxy - rng.uniform(0.2, 0.5) * proxy**2 + rng.normal(0, 0.1, 400)
    return np.full(400, 1 / 400), proxy, gold


def test_on_exact_tilts_a_named_peak_is_near_the_truth_where_an_unguarded_fit_is_not():
    strengths = np.concatenate([[0.0], np.geomspace(0.05, 60, 60)])
    unguarded, guarded, refused_good_fits = [], [], 0
    worlds = [_hackable_world(seed) for seed in range(40)] + [_bending_world(seed) for seed in range(20)]
    for world in worlds:
        d, _, gold = exponential_tilt(*world, strengths)
        true_peak = d[int(np.argmax(gold))]
        for share in (0.5, 1.0):
            seen = d <= share * d.max()
            fit = fit_overoptimisation(d[seen], gold[seen], n_boot=40)
            plain = np.exp(min(fit.alpha / fit.beta - 1, 5)) if fit.beta > 0 else np.inf
            error = abs(plain - true_peak) / true_peak
            unguarded.append(error)
            if fit.identifiable:
                guarded.append(abs(fit.peak - true_peak) / true_peak)
            elif fit.r_squared > 0.9:
                refused_good_fits += 1
    assert np.mean(np.array(unguarded) > 0.4) > 0.3  # what the refusal is for
    assert refused_good_fits > 5
    assert len(guarded) >= 5  # it does not refuse everything
    assert max(guarded) < 0.4


def test_too_little_or_impossible_data_raise():
    with pytest.raises(DataError, match="at least 3 points"):
        fit_overoptimisation(np.array([0.1, 0.2]), np.array([0.0, 1.0]))
    with pytest.raises(DataError, match="at least 3 points"):
        fit_overoptimisation(np.array([0.1, -0.2, 1.0, 2.0]), np.zeros(4))
    with pytest.raises(ConfigError, match="best_of_n"):
        fit_overoptimisation(np.ones(4), np.ones(4), "ppo")
