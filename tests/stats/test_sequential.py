"""Alarms and bounds, held against scipy, published numbers, and seeded repetitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from trueup.errors import ConfigError
from trueup.stats import sequential as seq


def test_the_vectorised_evidence_is_the_published_recursion_step_by_step():
    rng = np.random.default_rng(0)
    x, horizon = rng.uniform(-1, 1, 60), 60
    wealth = np.zeros(len(seq.BETS))
    expected = []
    for value in x:
        wealth = (wealth + 1 / horizon) * (1 + np.array(seq.BETS) * value)
        expected.append(np.log(wealth.mean()))
    assert seq.restarting_log_e(x, horizon) == pytest.approx(expected, rel=1e-9)


def test_the_streaming_alarm_and_the_array_agree_and_resume_bit_for_bit():
    rng = np.random.default_rng(1)
    x = np.clip(rng.normal(0.1, 0.3, 200), -1, 1)
    whole = seq.restarting_band_log_e(x, 0.05, 500)
    alarm = seq.RestartingAlarm(band=0.05, horizon=500)
    for value in x[:90]:
        alarm.update(value)
    resumed = seq.RestartingAlarm(band=0.05, horizon=500)
    resumed.load_state_dict(alarm.state_dict())
    evidence = []
    for value in x[90:]:
        alarm.update(value)
        resumed.update(value)
        assert alarm.evidence == resumed.evidence
        evidence.append(np.log(resumed.evidence))
    assert whole[90:] == pytest.approx(evidence, rel=1e-9)
    assert resumed.n == 200


def test_a_missing_observation_neither_adds_evidence_nor_spends_budget():
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, 50)
    holed = np.full(100, np.nan)
    holed[::2] = x
    assert seq.restarting_log_e(holed, 100)[::2] == pytest.approx(seq.restarting_log_e(x, 100))
    assert seq.restarting_log_e(holed, 100)[1::2] == pytest.approx(seq.restarting_log_e(x, 100))


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_stationary_runs_on_the_edge_of_the_band_alarm_at_most_as_often_as_stated(alpha):
    rng = np.random.default_rng(3)
    n_runs, horizon = 1500, 400
    x = np.clip(rng.normal(0.0, 0.25, (n_runs, horizon)), -1, 1) + 0.05  # conditional mean on the edge itself
    rate = (seq.first_crossing(seq.restarting_band_log_e(x, 0.05, horizon, bound=1.05), alpha) >= 0).mean()
    assert 0.0 < rate <= alpha + 2.6 * np.sqrt(alpha * (1 - alpha) / n_runs)


def test_a_shift_is_seen_and_soon():
    rng = np.random.default_rng(4)
    x = rng.normal(0.0, 0.25, (200, 800))
    x[:, 300:] += 0.2
    seen = seq.first_crossing(seq.restarting_band_log_e(np.clip(x, -1, 1), 0.02, 1250), 0.05)
    delay = seen[seen >= 300] - 300
    assert (seen >= 300).mean() > 0.95
    assert 15 <= np.median(delay) <= 70


def test_the_rate_alarm_holds_its_level_and_sees_a_rare_exploit():
    rng = np.random.default_rng(5)
    base = rng.random((1500, 600)) < 0.02
    quiet = seq.first_crossing(seq.restarting_rate_log_e(base.astype(float), 0.02, 600), 0.1) >= 0
    assert 0 < quiet.mean() <= 0.1 + 2.6 * np.sqrt(0.09 / 1500)
    loud = rng.random((300, 600)) < 0.10
    seen = seq.first_crossing(seq.restarting_rate_log_e(loud.astype(float), 0.02, 600), 0.1)
    assert (seen >= 0).mean() > 0.98
    assert np.median(seen) < 120


def test_an_observation_that_could_ruin_the_bettor_is_refused():
    with pytest.raises(ConfigError, match="at least -1"):
        seq.restarting_log_e(np.array([0.0, -1.5]), 10)
    with pytest.raises(ConfigError, match="within ±1"):
        seq.RestartingAlarm(band=0.0, horizon=10).update(1.2)
    with pytest.raises(ConfigError, match="horizon"):
        seq.restarting_log_e(np.zeros(3), 0)
    with pytest.raises(ConfigError, match="baseline"):
        seq.restarting_rate_log_e(np.zeros(3), 0.0, 10)


def _miscoverage(bounds, truth):
    lower, upper = bounds
    return ((lower > truth + 1e-9) | (upper < truth - 1e-9)).any(axis=-1).mean()


def test_the_running_mean_sequence_covers_at_all_times_even_when_the_mean_moves():
    rng = np.random.default_rng(6)
    n_runs, steps = 600, 400
    mean = np.linspace(0.2, 0.7, steps)
    x = (rng.random((n_runs, steps)) < mean).astype(float)
    running = np.cumsum(mean) / np.arange(1, steps + 1)
    bounds = seq.running_mean_bounds(x, 0.1)
    assert _miscoverage(bounds, running) <= 0.1 + 2.6 * np.sqrt(0.09 / n_runs)
    width = (bounds[1] - bounds[0])[:, -1].mean()
    hoeffding = 2 * np.sqrt(np.log(2 / 0.1) / (2 * steps))
    assert width < 2.2 * hoeffding  # the price of holding at all times, no more


def test_the_running_mean_sequence_profits_from_a_small_variance():
    rng = np.random.default_rng(7)
    tight = 0.5 + 0.02 * rng.standard_normal((50, 500))
    lower, upper = seq.running_mean_bounds(tight, 0.05)
    assert (upper - lower)[:, -1].mean() < 0.06


def test_the_boundary_is_where_the_mixture_reaches_its_level():
    v = np.array([0.0, 0.3, 5.0, 400.0])
    s = seq._mixture_boundary(v, np.log(40.0))
    lam = seq._LAMBDAS
    psi = -np.log1p(-lam) - lam
    mixture = np.exp(lam[:, None] * s - psi[:, None] * v).mean(axis=0)
    assert mixture == pytest.approx(np.full(4, 40.0), rel=1e-6)


def test_the_betting_sequence_covers_a_constant_mean_and_is_tighter():
    rng = np.random.default_rng(8)
    x = rng.beta(2, 6, (300, 300))
    betting = seq.betting_bounds(x, 0.1)
    assert _miscoverage(betting, 0.25) <= 0.1 + 2.6 * np.sqrt(0.09 / 300)
    bernstein = seq.running_mean_bounds(x, 0.1)
    assert (betting[1] - betting[0])[:, -1].mean() < (bernstein[1] - bernstein[0])[:, -1].mean()


def test_bounds_scale_with_a_declared_range_and_refuse_values_outside_it():
    x = np.array([0.2, 0.9, 0.4])
    low, high = seq.running_mean_bounds(x, 0.05)
    low10, high10 = seq.running_mean_bounds(10 * x - 5, 0.05, low=-5, high=5)
    assert low10 == pytest.approx(10 * low - 5)
    assert high10 == pytest.approx(10 * high - 5)
    with pytest.raises(ConfigError, match=r"lie in \[0, 1\]"):
        seq.running_mean_bounds(np.array([2.0]))


@given(st.integers(0, 200), st.integers(1, 200), st.sampled_from([0.9, 0.95, 0.99]))
def test_clopper_pearson_is_scipys_exact_interval(k, n, confidence):
    k = min(k, n)
    lower, upper = seq.clopper_pearson(k, n, confidence)
    less = stats.binomtest(k, n, alternative="less").proportion_ci(confidence, "exact")
    greater = stats.binomtest(k, n, alternative="greater").proportion_ci(confidence, "exact")
    assert float(upper) == pytest.approx(less.high, abs=1e-9)
    assert float(lower) == pytest.approx(greater.low, abs=1e-9)


def test_without_trials_a_rate_is_unknown_and_not_zero():
    assert [float(b) for b in seq.clopper_pearson(0, 0)] == [0.0, 1.0]
    assert float(seq.rate_upper_bound(0, 0)) == 1.0
    assert float(seq.rate_lower_bound(0, 0)) == 0.0


def test_the_sequential_rate_bounds_hold_at_all_times():
    rng = np.random.default_rng(9)
    n_runs, steps, alpha = 1200, 400, 0.1
    n = np.arange(1, steps + 1)
    for p in (0.02, 0.4):
        k = np.cumsum(rng.random((n_runs, steps)) < p, axis=1)
        # A bound depends on (k, n) alone, so it is computed once for each pair that occurs.
        pairs, where = np.unique(k * 1000 + n, return_inverse=True)
        upper = seq.rate_upper_bound(pairs // 1000, pairs % 1000, alpha)[where].reshape(k.shape)
        lower = seq.rate_lower_bound(pairs // 1000, pairs % 1000, alpha)[where].reshape(k.shape)
        slack = 2.6 * np.sqrt(0.09 / n_runs)
        assert (upper < p).any(axis=1).mean() <= alpha + slack
        assert (lower > p).any(axis=1).mean() <= alpha + slack
        fixed = float(seq.clopper_pearson(p * steps, steps, 0.9)[1])
        assert fixed * 0.8 < float(np.median(upper[:, -1])) < 2.0 * fixed


@given(st.integers(0, 60), st.integers(1, 60))
def test_a_sequential_bound_is_never_sharper_than_the_fixed_time_one_and_holds_the_estimate(k, n):
    k = min(k, n)
    upper, lower = float(seq.rate_upper_bound(k, n, 0.05)), float(seq.rate_lower_bound(k, n, 0.05))
    assert lower <= k / n + 1e-9 <= upper + 2e-9
    assert upper >= float(seq.clopper_pearson(k, n, 0.95)[1]) - 1e-6


def test_e_bh_rejects_as_written_in_the_paper_and_controls_false_discoveries():
    assert seq.e_bh(np.array([100.0, 1.0, 50.0, np.nan]), 0.05).tolist() == [True, False, True, False]
    assert seq.e_bh(np.array([79.0, 1.0, 39.0, 0.0]), 0.05).tolist() == [False] * 4
    rng = np.random.default_rng(10)
    shares = []
    for _ in range(400):
        log_p = np.log(rng.random(20))
        e = 0.5 * np.exp(-0.5 * log_p)  # E = ∫ 0.5 p^-0.5 dp = 1
        e[:5] *= 1e4
        rejected = seq.e_bh(e, 0.1)
        shares.append(rejected[5:].sum() / max(1, rejected.sum()))
    assert np.mean(shares) <= 0.1


def test_thinning_makes_active_anchors_uniform_again():
    rng = np.random.default_rng(11)
    bad = rng.random(40_000) < 0.1
    propensity = np.where(bad, 0.8, 0.2)
    anchored = rng.random(bad.size) < propensity
    kept = seq.thin_to_uniform(propensity[anchored], rng.random(int(anchored.sum())))
    assert bad[anchored].mean() > 0.25
    assert bad[anchored][kept].mean() == pytest.approx(0.1, abs=0.02)
    with pytest.raises(ConfigError, match="could not be chosen"):
        seq.thin_to_uniform(np.array([0.0]), np.array([0.5]))
