"""Over-optimisation: how gold rises and falls while a policy moves away from where it began.

Gao et al. (arXiv 2210.10760) describe gold reward as a function of d = √KL(π ‖ π₀), KL in nats:
R(d) = d (α − β ln d) for RL, with its peak at exp(α/β − 1), and R(d) = d (α − β d) for best-of-n, with its
peak at α/(2β). Both are linear in α and β, so the fit is least squares.

The fit is a forecast and a plot, never the decision to stop. With two free parameters and a smooth curve it
fits nearly everything it has seen, a good R² included, while the peak that it names can be far off: exact
tilts of finite sets show it. So `fit_overoptimisation` *refuses* to name a peak unless the data have passed
it and a form-free estimate agrees; `exponential_tilt` and `best_of_n` are the exact worlds it is held to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.errors import ConfigError, DataError

__all__ = ["OverOptFit", "best_of_n", "exponential_tilt", "fit_overoptimisation", "predict_gold"]

FloatArray = NDArray[np.float64]
Form = Literal["rl", "best_of_n"]

_MIN_POINTS = 8
_FORM_FREE_TOLERANCE = 0.25  # relative distance of the two peaks beyond which the form is not believed


@dataclass(frozen=True, slots=True)
class OverOptFit:
    """A fit of R(d) = offset + d (α − β ln d), or with d instead of ln d.

    `peak` and `peak_interval` are in √nats and None when refused; `refusal` says why, empty otherwise.
    """

    form: Form
    alpha: float
    beta: float
    offset: float  # gold at d = 0
    r_squared: float
    peak: float | None
    peak_interval: tuple[float, float] | None
    form_free_peak: float  # top of a local quadratic through the data, whatever the form
    refusal: str

    @property
    def identifiable(self) -> bool:
        return self.peak is not None


def predict_gold(fit: OverOptFit, d: ArrayLike) -> FloatArray:
    """Gold at distances d (√nats) by the fitted curve; a forecast beyond the data, and only that."""
    curve: FloatArray = _design(_floats(d), fit.form) @ np.array([fit.offset, fit.alpha, fit.beta])
    return curve


def fit_overoptimisation(
    d: ArrayLike,
    gold: ArrayLike,
    form: Form = "rl",
    *,
    confidence: float = 0.95,
    n_boot: int = 400,
    seed: int = 0,
) -> OverOptFit:
    """Fit R(d) and name its peak, or refuse.

    Args:
        d: (points,) √KL from the start, in √nats, >= 0.
        gold: (points,) held-out gold at each, any unit.
        form: `rl` or `best_of_n`.
        confidence: of the bootstrap percentile interval for the peak (pairs resampled).

    Raises:
        DataError: fewer than 3 finite points, or a negative distance.
    """
    d = _floats(d)
    gold = _floats(gold)
    if form not in ("rl", "best_of_n"):
        raise ConfigError(f"form must be 'rl' or 'best_of_n', got {form!r}. No curve follows from it.")
    if d.shape != gold.shape or d.ndim != 1:
        raise DataError(f"d and gold must be flat and of one length, got shapes {d.shape} and {gold.shape}.")
    keep = np.isfinite(d) & np.isfinite(gold)
    d, gold = d[keep], gold[keep]
    if d.size < 3 or (d < 0).any():
        raise DataError(
            f"A fit needs at least 3 points with d >= 0, got {d.size} finite ones. Nothing was fitted. "
            "Log the KL (nats) and held-out gold of more steps."
        )
    design = _design(d, form)
    coef, *_ = np.linalg.lstsq(design, gold, rcond=None)
    spread = float(((gold - gold.mean()) ** 2).sum())
    r_squared = 1.0 - float(((gold - design @ coef) ** 2).sum()) / spread if spread > 0 else 0.0
    free = _form_free_peak(d, gold)
    peaks = _bootstrap_peaks(design, gold, form, n_boot, seed)
    tail = (1 - confidence) / 2
    interval = (float(np.quantile(peaks, tail)), float(np.quantile(peaks, 1 - tail)))
    peak = _peak(coef[1], coef[2], form)
    refusal = _refuse(d, gold, peak, interval, free)
    return OverOptFit(
        form, float(coef[1]), float(coef[2]), float(coef[0]), r_squared,
        None if refusal else peak, None if refusal else interval, free, refusal,
    )  # fmt: skip


def _design(d: FloatArray, form: Form) -> FloatArray:
    bend = d * np.log(np.maximum(d, 1e-12)) if form == "rl" else d * d
    return np.stack([np.ones_like(d), d, -bend], axis=-1)


def _peak(alpha: float, beta: float, form: Form) -> float:
    if beta <= 0:
        return float("inf")
    if form == "rl":
        return float(np.exp(min(alpha / beta - 1.0, 700.0)))
    return float(max(alpha, 0.0) / (2.0 * beta))


def _bootstrap_peaks(design: FloatArray, gold: FloatArray, form: Form, n_boot: int, seed: int) -> FloatArray:
    """Peaks of fits to resampled points, all at once through the weighted normal equations."""
    n = gold.size
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1.0 / n), size=n_boot).astype(np.float64)
    scale = np.sqrt((design**2).mean(axis=0)) + 1e-300
    z = design / scale
    gram = np.einsum("bn,ni,nj->bij", counts, z, z, optimize=True) + 1e-12 * np.eye(3)
    moment = np.einsum("bn,ni->bi", counts * gold, z, optimize=True)
    coef = np.linalg.solve(gram, moment[..., None])[..., 0] / scale
    return np.array([min(_peak(float(c[1]), float(c[2]), form), 1e300) for c in coef])


def _form_free_peak(d: FloatArray, gold: FloatArray) -> float:
    """Top of a local quadratic (tricube weights over half of the data) on a grid; at an edge, that edge."""
    grid = np.linspace(d.min(), d.max(), 61)
    width = np.sort(np.abs(d[None, :] - grid[:, None]), axis=1)[:, max(3, d.size // 2) - 1]
    value = np.empty(grid.size)
    for i, (centre, h) in enumerate(zip(grid, width, strict=True)):
        u = (d - centre) / max(h * 1.001, 1e-12)
        root = np.sqrt(np.clip(1 - np.abs(u) ** 3, 0, None) ** 3)
        local = np.stack([np.ones_like(u), u, u * u], axis=-1)
        value[i] = np.linalg.lstsq(local * root[:, None], gold * root, rcond=None)[0][0]
    return float(grid[int(np.argmax(value))])


def _refuse(d: FloatArray, gold: FloatArray, peak: float, interval: tuple[float, float], free: float) -> str:
    low, high = interval
    if np.unique(d).size < _MIN_POINTS:
        return f"only {np.unique(d).size} distinct distances, {_MIN_POINTS} are needed"
    if not np.isfinite(peak) or high > 1e200:
        return "the curvature cannot be told from none, so there may be no peak"
    if high > float(d.max()):
        return f"the peak may lie beyond the data (interval to {high:.3g}, data to {d.max():.3g})"
    if low <= 0 or high > 2 * low:
        return f"the interval is too wide ({low:.3g} to {high:.3g})"
    beyond = gold[d >= min(1.25 * peak, float(d.max()))]
    near = gold[np.abs(d - peak) <= 0.25 * peak]
    if beyond.size < 3 or near.size < 3 or not near.mean() > beyond.mean():
        return "gold has not been seen to fall behind the peak"
    if abs(free - peak) > _FORM_FREE_TOLERANCE * min(free, peak):
        return f"the form is not believed: a local fit has its top at {free:.3g}, the form at {peak:.3g}"
    return ""


def _floats(values: ArrayLike) -> FloatArray:
    return np.asarray(values, dtype=np.float64)


# --- exact worlds -----------------------------------------------------------------------------------------


def exponential_tilt(
    base: ArrayLike, proxy: ArrayLike, gold: ArrayLike, strength: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The KL-regularised optimum on a finite set, π_t ∝ π₀ exp(t · proxy), computed exactly.

    Args:
        base: (outcomes,) probabilities of the starting policy.
        proxy, gold: (outcomes,) rewards.
        strength: (points,) values of t, one over the KL coefficient.

    Returns:
        d = √KL(π_t ‖ π₀) in √nats, expected proxy and expected gold, each (points,).
    """
    base = _floats(base)
    proxy = _floats(proxy)
    gold = _floats(gold)
    log_base = np.log(base / base.sum())
    logit = log_base + np.asarray(strength, dtype=np.float64)[:, None] * proxy
    top = logit.max(axis=1, keepdims=True)
    log_p = logit - top - np.log(np.exp(logit - top).sum(axis=1, keepdims=True))
    p = np.exp(log_p)
    kl = (p * (log_p - log_base)).sum(axis=1)
    return np.sqrt(np.maximum(kl, 0.0)), p @ proxy, p @ gold


def best_of_n(
    base: ArrayLike, proxy: ArrayLike, gold: ArrayLike, n: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Best of n draws by the proxy on a finite set, exactly; ties are shared in proportion to `base`.

    A score level with cumulative probability F and previous level F₋ is the winner with Fⁿ − F₋ⁿ.
    Returns as `exponential_tilt`; the KL is the true one, which ln n − (n − 1)/n bounds from above.
    """
    scores = _floats(proxy)
    weights = _floats(base) / _floats(base).sum()
    _, level = np.unique(scores, return_inverse=True)
    mass = np.bincount(level, weights=weights)
    cum = np.concatenate([[0.0], np.cumsum(mass)])
    cum[-1] = 1.0
    power = np.asarray(n, dtype=np.float64)[:, None]
    lift = (cum[1:] ** power - cum[:-1] ** power) / mass
    ratio = lift[:, level]
    p = weights * ratio
    kl = np.where(p > 0, p * np.log(np.maximum(ratio, 1e-300)), 0.0).sum(axis=1)
    return np.sqrt(np.maximum(kl, 0.0)), p @ scores, p @ _floats(gold)
