"""Weighted isotonic regression: the monotone map from proxy scores to expected gold.

The fit is SciPy's pool-adjacent-violators (`scipy.optimize.isotonic_regression`, Busing 2022, J. Stat. Softw.
102(1)); this module decides what SciPy leaves open. Ties in x are pooled to their weighted mean first (the
"secondary" treatment of R's `gpava`, and scikit-learn's), because one proxy score must map to one value. Between
knots the map is linear, outside them constant. A fitted block of equal values keeps only its two ends as knots:
the map is the same and applying it does not depend on how many pairs it was fitted on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression

from trueup.types import FloatArray

__all__ = ["MonotoneMap", "blend", "fit_isotonic"]


@dataclass(frozen=True, slots=True)
class MonotoneMap:
    """A non-decreasing piecewise linear function with constant ends.

    `x` (strictly increasing) and `y` (non-decreasing) are its knots; `n_blocks` is the number of level sets of
    the fit, its effective degrees of freedom (Meyer & Woodroofe 2000, Ann. Statist. 28(4)); `tied_fraction` the
    share of distinct x whose order the fit lost, because their level set holds others too.
    """

    x: FloatArray
    y: FloatArray
    n_blocks: int
    tied_fraction: float

    def apply(self, scores: ArrayLike) -> FloatArray:
        """Map scores of any shape; NaN stays NaN."""
        values = np.asarray(scores, dtype=np.float64)
        return np.interp(values, self.x, self.y)

    def clipped(self, scores: FloatArray) -> float:
        """Share of the finite scores that lie outside the knots, where the map is constant by assumption."""
        finite = scores[np.isfinite(scores)]
        if not finite.size:
            return 0.0
        return float(np.mean((finite < self.x[0]) | (finite > self.x[-1])))


def fit_isotonic(x_P: ArrayLike, y_P: ArrayLike, weights_P: ArrayLike | None = None) -> MonotoneMap:
    """Weighted least-squares non-decreasing fit of y on x, of pairs in any order.

    x_P, y_P, weights_P: (n_pairs,), finite, weights positive. Raises ValueError otherwise.
    """
    x = np.asarray(x_P, dtype=np.float64)
    y = np.asarray(y_P, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape or x.size == 0:
        raise ValueError(f"x and y must be two equal, non-empty vectors, got shapes {x.shape} and {y.shape}.")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("x and y must be finite. Leave unscored pairs out before fitting.")
    order = np.argsort(x)
    x, y = x[order], y[order]
    w = None
    if weights_P is not None:
        w = np.asarray(weights_P, dtype=np.float64)
        if w.shape != x.shape or not (np.isfinite(w).all() and (w > 0).all()):
            raise ValueError(f"weights must be {x.size} positive finite numbers, got shape {w.shape}.")
        w = w[order]
    new = np.empty(x.size, np.bool_)
    new[0] = True
    np.not_equal(x[1:], x[:-1], out=new[1:])
    if not new.all():
        x, y, w = _pool_ties(x, y, w, np.flatnonzero(new))
    fit = isotonic_regression(y, weights=w)
    blocks = np.asarray(fit.blocks)
    first, last = blocks[:-1], blocks[1:] - 1
    knots = np.union1d(first, last)
    n_alone = int((first == last).sum())
    return MonotoneMap(x[knots], np.asarray(fit.x)[knots], int(first.size), 1.0 - n_alone / x.size)


def _pool_ties(
    x: FloatArray, y: FloatArray, w: FloatArray | None, starts: np.ndarray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    weights = np.ones_like(x) if w is None else w
    total = np.add.reduceat(weights, starts)
    return x[starts], np.add.reduceat(weights * y, starts) / total, total


def blend(first: MonotoneMap, second: MonotoneMap, weight: float) -> MonotoneMap:
    """The map weight·first + (1 − weight)·second, itself non-decreasing for a weight in [0, 1]."""
    x = np.union1d(first.x, second.x)
    y = weight * first.apply(x) + (1.0 - weight) * second.apply(x)
    return MonotoneMap(x, y, first.n_blocks, first.tied_fraction)
