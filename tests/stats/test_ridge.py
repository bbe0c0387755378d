"""The ridge of the second stage, against scikit-learn."""

import numpy as np
from sklearn.linear_model import RidgeCV

from trueup.stats.ridge import _PENALTIES, fit_ridge


def test_the_fit_is_scikit_learns_at_the_penalty_that_gcv_chooses():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4)) * [1, 5, 0.1, 2] + [3, 0, 1, -2]
    y = x @ [0.3, 0.0, 2.0, -0.1] + 0.5 * rng.normal(size=300)
    ours = fit_ridge(x, y, np.ones(300))
    standardised = (x - x.mean(axis=0)) / x.std(axis=0)
    theirs = RidgeCV(alphas=_PENALTIES * 300, fit_intercept=True).fit(standardised, y)
    np.testing.assert_allclose(ours.apply(x), standardised @ theirs.coef_, atol=0.02)
    assert np.corrcoef(ours.apply(x), y)[0, 1] > 0.5


def test_features_that_explain_nothing_get_nothing_or_next_to_it():
    rng = np.random.default_rng(1)
    spreads = []
    for _ in range(50):
        x, y = rng.normal(size=(200, 8)), rng.normal(size=200)
        spreads.append(fit_ridge(x, y, np.ones(200)).apply(rng.normal(size=(500, 8))).std())
    assert np.median(spreads) < 0.12
    assert np.mean(np.array(spreads) == 0.0) > 0.05


def test_constant_and_copied_features_do_no_harm():
    rng = np.random.default_rng(2)
    a = rng.normal(size=200)
    x = np.stack([a, a, np.full(200, 7.0)], axis=1)
    fit = fit_ridge(x, a, np.ones(200))
    np.testing.assert_allclose(fit.apply(x), a - a.mean(), atol=0.05)
    assert fit.coefficients[2] == 0.0


def test_weights_count_like_copies():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(60, 2)), rng.normal(size=60) + 0.0
    y += x[:, 0]
    weights = rng.integers(1, 4, 60).astype(float)
    twice = fit_ridge(
        np.repeat(x, weights.astype(int), axis=0),
        np.repeat(y, weights.astype(int)),
        np.ones(int(weights.sum())),
    )
    weighted = fit_ridge(x, y, weights)
    np.testing.assert_allclose(weighted.coefficients, twice.coefficients, atol=0.1)
