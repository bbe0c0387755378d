"""From rewards to advantages, with missing scores.

Two forms, and the difference matters to everything else:

* **linear**: A_i = (x_i − mean(x)) · n/(n−1) / s with a scale s that was fixed before the step. Its expectation is
  the advantage of the expected reward, so an unbiased *reward* gives an unbiased *gradient*. n/(n−1) is the
  leave-one-out baseline (RLOO, Kool et al. 2019) written as a mean.
* **standardised**: A_i = (x_i − mean(x)) / (std(x) + eps), GRPO's own (Shao et al. 2024, arXiv 2402.03300). Not
  linear in x: noise in x biases it, and a factor on a whole group's rewards cancels.

A group with fewer than two scored rollouts has no baseline: its advantages are NaN, not 0.
"""

from __future__ import annotations

import numpy as np

from trueup.types import FloatArray

__all__ = ["center", "linear_advantages", "standardized_advantages"]


def _counted(rewards_GN: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Scored count (…, G, 1), deviations with 0 where unscored (…, G, N), and a factor that is NaN where no
    advantage exists (…, G, N) and 1 elsewhere."""
    scored = np.isfinite(rewards_GN)
    n = scored.sum(axis=-1, keepdims=True).astype(np.float64)
    filled = np.where(scored, rewards_GN, 0.0)
    mean = filled.sum(axis=-1, keepdims=True) / np.maximum(n, 1.0)
    deviations = np.where(scored, rewards_GN - mean, 0.0)
    defined = np.where(scored & (n >= 2), 1.0, np.nan)
    return n, deviations, defined


def center(rewards_GN: FloatArray) -> FloatArray:
    """Rewards minus the mean of the group's scored rewards; NaN where unscored or where the group has one."""
    _, deviations, defined = _counted(rewards_GN)
    return deviations * defined


def linear_advantages(rewards_GN: FloatArray, scale: float | FloatArray = 1.0) -> FloatArray:
    """(x − mean)·n/(n−1)/scale over the group's n scored rewards. `scale` must not depend on this step."""
    n, deviations, defined = _counted(rewards_GN)
    return deviations * (n / np.maximum(n - 1.0, 1.0) / scale) * defined


def standardized_advantages(rewards_GN: FloatArray, eps: float = 1e-4, ddof: int = 1) -> FloatArray:
    """(x − mean)/(std + eps) over the group's scored rewards; std with n − ddof, as TRL and verl (ddof = 1)."""
    n, deviations, defined = _counted(rewards_GN)
    variance = (deviations**2).sum(axis=-1, keepdims=True) / np.maximum(n - ddof, 1.0)
    advantages: FloatArray = deviations / (np.sqrt(variance) + eps) * defined
    return advantages
