"""Every alarm keeps its level on stationary data and sees a change; the table says what was measured."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from trueup.cli import main
from trueup.errors import MissingExtraError
from trueup.experiments import alarms as bench
from trueup.experiments import river_alarms
from trueup.monitor import alarms
from trueup.stats.running_best import best_lower_bound, drop_log_e, jump_down
from trueup.stats.sequential import betting_log_e, first_crossing

OURS = [a for a in bench.ALARMS if a.ours]


def _row(alarm, **settings):
    return next(r for r in bench.measure(alarm, seed=1, **settings) if not isinstance(r, int))


@pytest.mark.parametrize("alarm", OURS, ids=lambda a: a.name)
def test_no_alarm_of_ours_cries_wolf_more_often_than_stated(alarm):
    alpha, n = 0.1, 30 if alarm.max_runs else 120
    row = _row(alarm, n_steps=600, n_seeds=n, alpha=alpha)
    assert row["n_runs"] == n
    assert row["false_alarm_rate"] <= alpha + 2.6 * math.sqrt(alpha * (1 - alpha) / n)


@pytest.mark.slow
@pytest.mark.parametrize("alarm", OURS, ids=lambda a: a.name)
def test_no_alarm_of_ours_cries_wolf_more_often_than_stated_over_a_long_run(alarm):
    row = _row(alarm, n_steps=5000, n_seeds=400, alpha=0.05)
    assert row["false_alarm_rate"] <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / row["n_runs"])


def test_what_our_alarms_are_compared_with_does_cry_wolf():
    by_name = {a.name: a for a in bench.ALARMS}
    for name, least in (
        ("repeated z-test", 0.05),
        ("z-test over the last 50", 0.5),
        ("our drift alarm on rollouts", 0.5),
    ):
        assert _row(by_name[name], n_steps=1000, n_seeds=60, alpha=0.01)["false_alarm_rate"] > least


def test_shifts_are_seen_and_the_larger_one_sooner():
    by_name = {a.name: a for a in bench.ALARMS}
    for name in (
        "drift: residual outside its band",
        "rank reversal: τ below 0",
        "exploit: above a limit of 0.02",
    ):
        row = _row(by_name[name], n_steps=1200, n_seeds=50, alpha=0.05)
        assert row["shift_0.2"]["seen"] > 0.98
        assert row["shift_0.2"]["median_delay"] < row["shift_0.1"]["median_delay"] < 500


def test_a_delay_is_measured_from_the_change_and_a_miss_is_no_number():
    assert bench._delays(np.array([100, 119, -1, 40]), 100) == {
        "median_delay": 20.0, "p90_delay": None, "seen": pytest.approx(2 / 3)
    }  # fmt: skip
    assert bench._delays(np.array([3]), 100)["seen"] is None


def test_streams_have_the_means_that_their_names_state():
    rng = np.random.default_rng(0)
    for stream, mean, moved in (
        (bench.residuals, 0.0, 0.2), (bench.edge_residuals, bench.BAND, bench.BAND + 0.2), (bench.taus, 0.0, -0.2),
        (bench.aurocs, 0.8, 0.6), (bench.golds, 0.6, 0.4), (bench.gaps, 0.5, 0.4), (bench.choices, 0.01, 0.21),
        (bench.rates, 0.02, 0.22), (bench.clustered, 0.0, 0.2),
    ):  # fmt: skip
        x = stream(rng, (400, 400), 0.2, 200)
        assert x[:, :200].mean() == pytest.approx(mean, abs=0.012)
        assert x[:, 200:].mean() == pytest.approx(moved, abs=0.012)


def test_own_level_is_the_mean_of_the_first_half_of_the_past():
    x = np.random.default_rng(1).random(101)
    level, error = alarms.own_level(x)
    assert np.isnan(level[:40]).all()
    assert level[100] == pytest.approx(x[:50].mean())
    assert error[100] == pytest.approx(x[:50].std(ddof=1) / np.sqrt(50))


def test_the_bound_on_the_past_knows_only_the_past():
    rng = np.random.default_rng(2)
    rate = (rng.random((3, 300)) < 0.05).astype(float)
    changed = rate.copy()
    changed[:, 200:] = 1.0
    np.testing.assert_allclose(
        alarms.past_bound(rate, 0.01)[:, :201], alarms.past_bound(changed, 0.01)[:, :201]
    )
    steady = (rng.random((300, 200)) < 0.05).astype(float)
    failed = (alarms.past_bound(steady, 0.05)[:, -1] < 0.05).mean()
    assert failed <= 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / 300)


def test_the_best_so_far_is_a_lower_bound_known_from_the_past_alone():
    rng = np.random.default_rng(3)
    x = rng.random((200, 400))
    best = best_lower_bound(x, 0.05)
    assert np.isinf(best[:, :50]).all()
    assert (best.max(axis=1) > 0.5).mean() <= 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / 200)
    changed = x.copy()
    changed[:, 250:] = 0.0
    np.testing.assert_array_equal(best_lower_bound(changed, 0.05)[:, :251], best[:, :251])


def test_a_fall_from_a_height_reached_on_the_way_is_seen_and_a_rise_is_not():
    rng = np.random.default_rng(4)
    rise = np.linspace(0.2, 0.8, 500)
    fall = np.concatenate([rise, np.linspace(0.8, 0.3, 500)])
    up_only = np.linspace(0.2, 0.8, 1000)
    for mean, expected in ((fall, True), (up_only, False)):
        x = np.clip(rng.normal(mean, 0.2, (40, 1000)), 0, 1)
        seen = first_crossing(drop_log_e(x, 0.05, 1000, 0.05), 0.025)
        assert (seen >= 0).mean() == (1.0 if expected else 0.0)
        assert (seen[seen >= 0] > 500).all()


def test_a_jump_is_seen_and_a_slope_of_the_same_depth_or_a_rise_that_settles_is_not():
    rng = np.random.default_rng(5)
    jump = np.where(np.arange(1000) < 600, 0.7, 0.3)
    slope = np.linspace(0.7, 0.3, 1000)
    settles = np.minimum(np.linspace(0.1, 1.7, 1000), 0.9)
    seen = jump_down(rng.normal(jump, 0.15, (40, 1000)), 0.05)
    assert ((seen >= 600) & (seen < 750)).mean() > 0.9
    for smooth in (slope, settles, slope[::-1]):
        assert (jump_down(rng.normal(smooth, 0.15, (40, 1000)), 0.05) < 0).mean() > 0.95


def test_the_plain_bet_keeps_its_level_without_a_horizon():
    rng = np.random.default_rng(6)
    x = rng.choice([-1.0, 1.0], (1500, 600))
    rate = (first_crossing(betting_log_e(x), 0.1) >= 0).mean()
    assert 0 < rate <= 0.1 + 2.6 * np.sqrt(0.09 / 1500)


def test_rivers_detectors_see_a_large_shift_and_their_absence_is_told(monkeypatch):
    pytest.importorskip("river")
    rng = np.random.default_rng(7)
    x = bench.residuals(rng, (3, 3000), 0.5, 500)
    for name in ("page_hinkley", "adwin"):
        assert (river_alarms.river_alarm(name, x) >= 500).all()
    import sys

    monkeypatch.setitem(sys.modules, "river", None)
    with pytest.raises(MissingExtraError, match=r"trueup\[bench\]"):
        river_alarms.river_alarm("adwin", x)


def test_the_command_prints_json_alone_or_the_table(capsys, monkeypatch):
    monkeypatch.setattr(bench, "ALARMS", bench.ALARMS[:2])
    for as_json in (True, False):
        with pytest.raises(SystemExit) as exit_:
            main(["bench", "alarms", "--steps", "500", "--seeds", "5", *(["--json"] if as_json else [])])
        assert exit_.value.code == 0
        out = capsys.readouterr().out
        if as_json:
            result = json.loads(out)
            assert [row["alarm"] for row in result["alarms"]] == [a.name for a in bench.ALARMS]
            assert result["change_at"] == 125
        else:
            assert "| drift: residual outside its band | 0.0% |" in out
    with pytest.raises(SystemExit) as exit_:
        main(["bench", "alarms", "--steps", "10"])
    assert exit_.value.code == 2
