"""The isotonic fit against scikit-learn, a published example and its own definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.isotonic import IsotonicRegression

from trueup.stats.monotone import blend, fit_isotonic

coarse = st.floats(0, 1, width=16)


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(*[arrays(np.float64, n, elements=coarse)] * 3)))
@settings(max_examples=200, deadline=None)
def test_the_fit_is_scikit_learns_with_ties_and_weights(data):
    x, y, w = data
    w = w + 0.5
    ours = fit_isotonic(x, y, w).apply(x)
    theirs = IsotonicRegression().fit(x, y, sample_weight=w).predict(x)
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_the_fit_pools_adjacent_violators():
    # Pooling the one violator by hand: 1, (3, 2), 4 → 1, 2.5, 2.5, 4
    fitted = fit_isotonic([1, 2, 3, 4], [1, 3, 2, 4])
    np.testing.assert_allclose(fitted.apply([1, 2, 3, 4]), [1, 2.5, 2.5, 4])
    assert fitted.n_blocks == 3
    assert fitted.tied_fraction == 0.5


def test_the_order_of_the_pairs_does_not_matter():
    rng = np.random.default_rng(0)
    x, y, w = rng.integers(0, 30, 200) / 30, rng.random(200), rng.random(200) + 0.1
    shuffle = rng.permutation(200)
    first, second = fit_isotonic(x, y, w), fit_isotonic(x[shuffle], y[shuffle], w[shuffle])
    np.testing.assert_allclose(first.apply(x), second.apply(x), atol=1e-12)


def test_a_reversed_proxy_becomes_flat():
    x = np.linspace(0, 1, 50)
    fitted = fit_isotonic(x, 1 - x)
    np.testing.assert_allclose(fitted.apply(x), 0.5)
    assert fitted.tied_fraction == 1.0


def test_scores_outside_the_fit_are_clipped_and_counted():
    fitted = fit_isotonic([0.2, 0.8], [0.1, 0.9])
    np.testing.assert_allclose(fitted.apply([0.0, 0.5, 1.0]), [0.1, 0.5, 0.9])
    assert fitted.clipped(np.array([0.0, 0.5, 1.0, np.nan])) == pytest.approx(2 / 3)


def test_unscored_stays_unscored_through_the_map():
    assert np.isnan(fit_isotonic([0, 1], [0, 1]).apply(np.nan))


@given(st.floats(0, 1))
@settings(deadline=None)
def test_a_blend_lies_between_its_maps_and_is_monotone(share):
    rng = np.random.default_rng(1)
    x = rng.random(40)
    first, second = fit_isotonic(x, x**2), fit_isotonic(x, np.sqrt(x))
    grid = np.linspace(-0.1, 1.1, 200)
    mixed = blend(first, second, share).apply(grid)
    np.testing.assert_allclose(
        mixed, share * first.apply(grid) + (1 - share) * second.apply(grid), atol=1e-12
    )
    assert (np.diff(mixed) >= -1e-12).all()


@pytest.mark.parametrize(
    ("x", "y", "w"),
    [([], [], None), ([1, 2], [1], None), ([1, np.nan], [1, 2], None), ([1, 2], [1, 2], [1, 0])],
)
def test_pairs_that_cannot_be_fitted_are_refused(x, y, w):
    with pytest.raises(ValueError, match="must be"):
        fit_isotonic(x, y, w)
