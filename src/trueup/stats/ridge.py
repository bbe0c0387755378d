"""Ridge regression whose penalty is chosen by the data, for the second stage of calibration.

The penalty minimises generalised cross-validation, GCV(α) = n·RSS(α)/(n − tr H(α))² (Golub, Heath & Wahba 1979), over a
grid; the null model, which predicts 0, takes part. So features that explain nothing cost nothing but the fit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from trueup.types import FloatArray

__all__ = ["RidgeFit", "fit_ridge"]

_PENALTIES = np.geomspace(1e-3, 1e4, 22)  # relative to the number of pairs, for standardised features


@dataclass(frozen=True, slots=True)
class RidgeFit:
    """A linear correction of features centred at `center`; no intercept, so its mean over the pairs is 0."""

    center: FloatArray  # (D,)
    coefficients: FloatArray  # (D,)

    def apply(self, features: ArrayLike) -> FloatArray:
        """(…, D) to (…,)."""
        return np.asarray((np.asarray(features, np.float64) - self.center) @ self.coefficients)


def fit_ridge(x_PD: FloatArray, y_P: FloatArray, weights_P: FloatArray) -> RidgeFit:
    """Weighted ridge of y on standardised x; coefficients are 0 where no penalty beats predicting 0."""
    w = weights_P / weights_P.mean()
    center = np.average(x_PD, axis=0, weights=w)
    spread = np.sqrt(np.average((x_PD - center) ** 2, axis=0, weights=w))
    scale = np.where(
        spread > 1e-12 * (1.0 + np.abs(center)), spread, np.inf
    )  # a constant feature says nothing
    root = np.sqrt(w)
    u, s, vt = np.linalg.svd((x_PD - center) / scale * root[:, None], full_matrices=False)
    y = (y_P - np.average(y_P, weights=w)) * root
    uy = u.T @ y
    n = y.size
    shrink_AD = s**2 / (s**2 + n * _PENALTIES[:, None])
    residual = y @ y - uy @ uy + ((1.0 - shrink_AD) ** 2 @ uy**2)
    gcv = n * residual / np.maximum(n - 1.0 - shrink_AD.sum(axis=1), 1e-9) ** 2
    best = int(np.argmin(gcv))
    if gcv[best] >= n * (y @ y) / (n - 1.0) ** 2:
        return RidgeFit(center, np.zeros(x_PD.shape[1]))
    positive = s > 1e-12 * max(float(s[0]), 1e-300)
    inverse = np.where(positive, shrink_AD[best] / np.where(positive, s, 1.0), 0.0)
    return RidgeFit(center, (vt.T @ (inverse * uy)) / scale)
