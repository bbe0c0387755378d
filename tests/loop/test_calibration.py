"""The calibrator: thresholds, families by evidence, its report."""

import json

import numpy as np
import pytest

import trueup
from trueup.errors import GroupError
from trueup.loop.calibration import Calibrator
from trueup.loop.config import CalibrationConfig
from trueup.loop.weighting import Coefficient, ResidualVariance, Spread
from trueup.scorers.code_features import code_features


def push(calibrator, f, r, family=None, group=None, names=("a", "b")):
    n = f.size
    family = np.zeros(n, np.int64) if family is None else family
    group = np.arange(n) // 4 if group is None else group
    return calibrator.push(f, r, np.ones(n), calibrator.apply(f, family), family, group, names)


def make(**settings):
    return Calibrator(CalibrationConfig(**settings), (0.0, 1.0), (0.0, 1.0))


def test_the_map_is_the_identity_until_200_pairs_and_then_refits_every_64():
    rng = np.random.default_rng(0)
    calibrator = make()
    fits = []
    for _ in range(30):
        f = rng.random(20)
        push(calibrator, f, f**2)
        fits.append(calibrator.n_fits)
    assert fits[8] == 0  # 180 pairs
    assert fits[9] == 1  # 200 pairs
    assert fits[12] == 1  # 60 more
    assert fits[13] == 2  # 80 more
    assert calibrator.n_pairs == 600


def test_old_pairs_leave_first():
    calibrator = make(capacity=100, min_pairs=10, refit_every=10)
    f = np.linspace(0, 1, 100)
    push(calibrator, f, np.zeros(100))
    push(calibrator, f, f)
    np.testing.assert_allclose(calibrator.apply(f, np.zeros(100, np.int64)), f, atol=1e-12)
    assert calibrator.n_pairs == 100


def test_a_reversed_family_goes_flat_and_leaves_the_others_alone():
    rng = np.random.default_rng(1)
    calibrator = make()
    f = rng.random(1200)
    family = (np.arange(1200) % 3 == 0).astype(np.int64)
    r = np.where(family == 1, 1 - f, f)
    push(calibrator, f, r, family)
    grid = np.linspace(0.1, 0.9, 9)
    straight = calibrator.apply(grid, np.zeros(9, np.int64))
    reversed_ = calibrator.apply(grid, np.ones(9, np.int64))
    np.testing.assert_allclose(straight, grid, atol=0.03)
    assert np.ptp(reversed_) < 0.06


def test_families_that_only_look_different_share_the_pooled_map():
    rng = np.random.default_rng(2)
    separated = 0
    for _ in range(40):
        calibrator = make()
        f = rng.random(400)
        r = np.clip(f + 0.3 * rng.normal(size=400), 0, 1)
        family = np.arange(400) % 2
        push(calibrator, f, r, family)
        grid = np.linspace(0, 1, 21)
        a, b = (calibrator.apply(grid, np.full(21, k)) for k in (0, 1))
        separated += np.abs(a - b).mean() > 0.05
    assert separated <= 4


def test_the_report_is_out_of_sample():
    rng = np.random.default_rng(3)
    calibrator = make(min_pairs=64, refit_every=64)
    f, noise = rng.random(64), rng.random(64)
    first = push(calibrator, f, noise)
    assert first is not None
    assert first["calibrated"] == first["proxy"]  # the identity was in force
    second = push(calibrator, rng.random(64), rng.random(64))
    in_sample = np.mean((noise - calibrator.apply(f, np.zeros(64, np.int64))) ** 2)
    assert second["calibrated"]["variance"] > in_sample
    assert 0 < second["tied_fraction"]["pooled"] <= 1


def test_residual_variance_learns_where_the_proxy_is_wrong():
    variance = ResidualVariance((0.0, 1.0), prior=0.06)
    rng = np.random.default_rng(4)
    f = rng.random(4000)
    family = np.zeros(4000, np.int64)
    variance.update(f, np.where(f > 0.9, 0.8, 0.1), family)
    low, high = variance.predict(np.array([0.5, 0.95]), np.zeros(2, np.int64))
    assert low == pytest.approx(0.01, rel=0.2)
    assert high == pytest.approx(0.64, rel=0.2)


def test_an_unseen_family_is_given_what_all_families_show():
    variance = ResidualVariance((0.0, 1.0), prior=0.06)
    f = np.tile(np.linspace(0, 0.99, 100), 2)
    family = np.repeat([0, 1], 100)
    variance.update(f, np.where(family == 0, 0.1, 0.5), family)
    seen = variance.predict(np.array([0.5, 0.5]), np.array([0, 1]))
    unseen = variance.predict(np.array([0.5]), np.array([7]))
    assert seen[0] < unseen[0] < seen[1]


def test_the_coefficient_starts_at_one_and_moves_with_evidence():
    coefficient = Coefficient()
    assert coefficient.value() == 1.0
    coefficient.update(0.0, 5.0, 1)
    after_one = coefficient.value()
    for _ in range(200):
        coefficient.update(0.0, 5.0, 1)
    assert 0.8 < after_one < 0.95
    assert coefficient.value() < 0.1


def test_the_scale_is_the_spread_of_earlier_steps_and_never_below_its_floor():
    spread = Spread.with_prior(0.25)
    assert spread.value(0.1) == pytest.approx(0.25)
    for _ in range(100):
        spread.update(64 * 0.16, 64, 0.9)
    assert spread.value(0.1) == pytest.approx(0.4, rel=1e-3)
    for _ in range(300):
        spread.update(0.0, 64, 0.9)
    assert spread.value(0.1) == 0.1


def kinds(rng, n):
    """Scores that mean one thing for honest programs and another for boastful ones."""
    f, boast = rng.random((n, 8)), (rng.random((n, 8)) < 0.4).astype(float)
    return f, np.where(boast > 0, 0.1, f), boast[..., None]


def test_features_tell_apart_what_one_score_cannot():
    def error(with_features):
        reward = trueup.AnchoredReward(None, None, anchor_fraction=0.3, seed=1)
        rng = np.random.default_rng(5)
        for _ in range(25):
            f, r, boast = kinds(rng, 16)
            step = reward.step_arrays(f, r, features=boast if with_features else None)
        return np.mean((step.record.calibrated - r.ravel()) ** 2)

    assert error(True) < 0.6 * error(False)


def test_features_survive_a_resume_and_must_have_the_right_shape():
    make = lambda: trueup.AnchoredReward(None, None, anchor_fraction=0.5, calibration={"min_pairs": 40})  # noqa: E731
    straight, stopped = make(), make()
    rng = np.random.default_rng(6)
    for _ in range(6):
        f, r, boast = kinds(rng, 8)
        expected = straight.step_arrays(f, r, features=boast)
        saved = json.loads(json.dumps(stopped.state_dict()))
        stopped = make()
        stopped.load_state_dict(saved)
        np.testing.assert_array_equal(
            stopped.step_arrays(f, r, features=boast).advantages, expected.advantages
        )
    assert expected.record.refit is None or expected.record.refit["features_used"]
    with pytest.raises(GroupError, match="features must be finite numbers"):
        straight.step_arrays(f, r, features=np.full((8, 8, 1), np.nan))


def test_the_multicalibration_error_sees_a_family_that_the_mean_hides():
    calibrator = make(min_pairs=64, refit_every=64, by_family=False)
    rng = np.random.default_rng(7)
    f = rng.random(400)
    family = np.arange(400) % 2
    report = push(calibrator, f, np.clip(f + np.where(family == 0, 0.2, -0.2), 0, 1), family)
    honest = push(make(min_pairs=64), f, f, family)
    assert report["multicalibration_error"] > 0.008  # a cell holds 5 % of the pairs, each off by 0.2
    assert honest["multicalibration_error"] == 0.0


def test_code_features_read_promises_and_survive_any_text():
    sources = [
        "def f(x):\n    return x",
        "# Robust, verified, complete\ndef f(x):\n    return x",
        "def f(",
        "\x00",
        "",
    ]
    rows = code_features([trueup.Rollout("p", s) for s in sources])
    assert rows.shape == (5, 5)
    assert np.isfinite(rows).all()
    assert rows[1, 4] > rows[0, 4] == 0.0
    assert rows[:, 2].tolist() == [1.0, 1.0, 0.0, 0.0, 1.0]
    assert code_features([]).shape == (0, 5)
