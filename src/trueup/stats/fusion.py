"""The estimators: how gold and proxy scores become one learning signal.

Notation: f̂ calibrated proxy (by a map fixed before the step), r gold, π the probability with which a unit was to
be anchored, λ a coefficient fixed before the draw, A(·) an advantage. All functions accept leading axes of
independent runs. Derivations: docs/estimators.md.
"""

from __future__ import annotations

import numpy as np

from trueup.types import BoolArray, FloatArray

__all__ = [
    "control_variate_advantages",
    "corrected_rewards",
    "projected_correction",
    "shrinkage",
    "within_group_variance",
]


def corrected_rewards(
    calibrated: FloatArray,
    gold: FloatArray,
    anchored: BoolArray,
    propensity: FloatArray,
    coefficient: float = 1.0,
    clip: float | None = None,
) -> FloatArray:
    """x = λf̂ + 1{anchored}·(r − λf̂)/π: a pseudo-reward with E[x | rollouts] = r for any proxy.

    The augmented inverse-propensity form of prediction-powered inference (Angelopoulos et al., arXiv 2301.09633,
    2311.01453; Zrnic & Candès, arXiv 2403.03208), one rollout at a time. All arrays have one shape. NaN in `gold`
    at an anchored place gives NaN. `clip` bounds |(r − λf̂)/π|; it costs a bias of at most the clipped excess.
    """
    rewards: FloatArray = np.multiply(coefficient, calibrated, order="C")
    flat = rewards.reshape(-1)  # a view: the product above is contiguous
    index = np.flatnonzero(anchored)
    correction = (gold.reshape(-1)[index] - flat[index]) / propensity.reshape(-1)[index]
    if clip is not None:
        correction = np.clip(correction, -clip, clip)
    flat[index] += correction
    return rewards


def control_variate_advantages(
    proxy_advantages_GN: FloatArray,
    gold_advantages_GN: FloatArray,
    anchored_G: BoolArray,
    propensity_G: FloatArray,
    coefficient: float = 1.0,
) -> FloatArray:
    """λA(f̂) for every group, plus (A(r) − λA(f̂))/π for the anchored ones.

    Unbiased for the mean of A(r) for any proxy and any λ fixed before the draw, also when A divides by the group's
    own standard deviation, because whole groups are compared with whole groups. Where either part of an anchored
    group is NaN the result is NaN: half a difference would be no estimate.
    """
    base = coefficient * proxy_advantages_GN
    pi = np.where(anchored_G, propensity_G, 1.0)[..., None]
    return np.where(anchored_G[..., None], base + (gold_advantages_GN - base) / pi, base)


def within_group_variance(
    calibrated_GN: FloatArray,
    gold_GN: FloatArray,
    anchored_GN: BoolArray,
    propensity_GN: FloatArray,
    rewards_GN: FloatArray,
) -> tuple[float, int]:
    """Sum over groups of an estimate of the gold rewards' variance within the group, and the number of groups.

    With x the corrected rewards, mean_i r_i² is estimated by the corrected squares and mean_{i≠j} r_i r_j by the
    products x_i x_j; the difference is the sample variance (n − 1 form) of r in expectation when pairs are drawn
    independently, which systematic sampling in random order is up to O(1/n). Single groups may be negative.
    """
    scored = np.isfinite(rewards_GN)
    n = scored.sum(axis=-1)
    use = n >= 2
    if not use.any():
        return 0.0, 0
    square_hat = np.where(np.isfinite(calibrated_GN), calibrated_GN, 0.0)
    square_hat *= square_hat
    squares = corrected_rewards(square_hat, gold_GN * gold_GN, anchored_GN, propensity_GN)
    squares = np.where(scored, squares, 0.0).sum(axis=-1)
    x = np.where(scored, rewards_GN, 0.0)
    sums = x.sum(axis=-1)
    own = (x * x).sum(axis=-1)
    pairs = np.maximum(n * (n - 1), 1)
    variance = squares / np.maximum(n, 1) - (sums * sums - own) / pairs
    return float(variance[use].sum()), int(use.sum())


def projected_correction(correction_GN: FloatArray, proxy_advantages_GN: FloatArray) -> tuple[float, float]:
    """⟨correction, A(f̂)⟩ and ⟨A(f̂), A(f̂)⟩ summed over a step.

    Their ratio is the step's estimate of how far the gradient from gold alone differs from the proxy's along the
    proxy's own direction: 0 for a proxy that is right on average, −1 for an uninformative one, −2 for a reversed
    one. Differences in other directions are invisible to it.
    """
    usable = np.isfinite(correction_GN) & np.isfinite(proxy_advantages_GN)
    a = np.where(usable, proxy_advantages_GN, 0.0)
    return float((np.where(usable, correction_GN, 0.0) * a).sum()), float((a * a).sum())


def shrinkage(mean: float, variance: float, n_effective: float) -> float:
    """κ = b²/(b² + v): the factor on an unbiased correction that minimises a step's squared error.

    `mean` and `variance` are those of the per-step projected correction over earlier steps; b² is the squared mean
    less its own sampling variance (variance/n_effective), floored at 0. κ → 1 where the proxy is seen to be wrong,
    κ → 0 where the correction is noise. The result is biased by (1 − κ)·b, on purpose.
    """
    bias2 = max(mean * mean - variance / max(n_effective, 1.0), 0.0)
    if bias2 + variance <= 0.0:
        return 1.0
    return bias2 / (bias2 + variance)
