"""How many anchors: published values, simulation, and monotonicity."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.errors import ConfigError
from trueup.stats import power
from trueup.stats.sequential import first_crossing, restarting_band_log_e


def test_one_per_cent_at_ninety_five_takes_299_anchors_or_38_to_169_groups_of_eight():
    assert power.anchors_to_see(0.01, 0.95) == 299
    assert power.groups_to_see(0.01, 0.95, 8) == 38
    assert power.groups_to_see(0.01, 0.95, 8, 0.5) == 169


@given(st.floats(1e-5, 0.9), st.floats(0.01, 0.999))
def test_the_number_is_the_smallest_that_suffices(prevalence, confidence):
    n = power.anchors_to_see(prevalence, confidence)
    seen = -math.expm1(n * math.log1p(-prevalence))
    assert seen >= confidence - 1e-9
    if n > 1:
        assert -math.expm1((n - 1) * math.log1p(-prevalence)) < confidence + 1e-9
    assert power.prevalence_visible(n, confidence) <= prevalence * (1 + 1e-9)


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, 1.5])
def test_a_chance_outside_zero_to_one_is_refused(bad):
    with pytest.raises(ConfigError, match="prevalence"):
        power.anchors_to_see(bad, 0.95)
    with pytest.raises(ConfigError, match="confidence"):
        power.anchors_to_see(0.01, bad)


def test_no_anchors_show_nothing():
    assert power.prevalence_visible(0, 0.95) == 1.0


@pytest.mark.parametrize("shift", [0.1, 0.2])
def test_the_predicted_delay_is_near_the_simulated_one_and_not_optimistic(shift):
    rng = np.random.default_rng(0)
    x = np.clip(rng.normal(0, 0.25, (200, 1200)), -1, 1)
    x[:, 200:] = np.clip(x[:, 200:] + shift, -1, 1)
    seen = first_crossing(restarting_band_log_e(x, 0.02, 1250), 0.05)
    median = float(np.median(seen[seen >= 200] - 200))
    predicted = power.units_to_see_shift(shift, 0.25, band=0.02, alpha=0.05, horizon=1250)
    assert 0.8 * median <= predicted <= 2.0 * median


def test_a_shift_inside_the_band_is_never_seen():
    assert power.units_to_see_shift(0.05, 0.2, band=0.05) == math.inf


def test_the_cost_optimal_fraction_is_where_cost_times_variance_is_least():
    v_gold, v_residual, ratio = 0.25, 0.05, 0.02
    f = np.linspace(0.005, 1, 20_000)
    best = f[np.argmin((ratio + f) * (v_gold + (1 / f - 1) * v_residual))]
    assert power.cost_optimal_fraction(v_gold, v_residual, ratio) == pytest.approx(best, abs=1e-3)
    assert power.cost_optimal_fraction(0.1, 0.1, 0.02) == 1.0
