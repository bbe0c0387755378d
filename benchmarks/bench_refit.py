"""A calibration refit, beside `argsort` + `scipy.optimize.isotonic_regression` on the same pairs.

make bench ARGS='-k refit'
"""

import numpy as np
import pytest
from scipy.optimize import isotonic_regression
from sklearn.isotonic import IsotonicRegression

from trueup.loop.calibration import Calibrator
from trueup.loop.config import CalibrationConfig

SIZES = [5_000, 1_000_000]


def make_pairs(n):
    rng = np.random.default_rng(0)
    x = rng.random(n)
    return x, np.clip(x**2 + 0.2 * rng.normal(size=n), 0, 1)


@pytest.mark.parametrize("n", SIZES)
def test_refit(benchmark, n):
    """The whole of it: 64 new pairs pushed into a full buffer, the report, the fit, the knots."""
    benchmark.group = f"refit {n:,} pairs"
    x, y = make_pairs(n)
    zeros = np.zeros(n, np.int64)
    calibrator = Calibrator(CalibrationConfig(capacity=n), (0.0, 1.0), (0.0, 1.0))
    calibrator.push(x, y, np.ones(n), x, zeros, np.arange(n) // 8, ["default"])
    new = (x[:64], y[:64], np.ones(64), x[:64], zeros[:64], np.arange(64) // 8, ["default"])
    report = benchmark(calibrator.push, *new)
    assert report["n_pairs"] == n


@pytest.mark.parametrize("n", SIZES)
def test_refit_floor_argsort_and_scipy(benchmark, n):
    benchmark.group = f"refit {n:,} pairs"
    x, y = make_pairs(n)

    def floor():
        order = np.argsort(x)
        return isotonic_regression(y[order])

    benchmark(floor)


@pytest.mark.parametrize("n", SIZES)
def test_refit_of_scikit_learn(benchmark, n):
    benchmark.group = f"refit {n:,} pairs"
    x, y = make_pairs(n)
    benchmark(lambda: IsotonicRegression().fit(x, y))
