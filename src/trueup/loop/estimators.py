"""One function per estimator: a step's scores in, rewards and advantages out.

They read a frozen `StepScores` and the predictable quantities in it, and change nothing. Every array is a grid
(n_groups, largest group) with NaN for padding and for unscored.

Lost gold. An anchor whose gold did not come back leaves the update (NaN). The others stand in for it: given that a
rollout stayed, it is a gold one with probability π′ = πa/(1 − π + πa), a the share of anchors that answered, and
dividing by π′ keeps the correction unbiased if answers are lost at random. If no anchor of the step answered,
nothing could correct the proxy, and the whole step is unscored (`gold_unavailable`) rather than trained on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trueup.loop.config import AnchorConfig
from trueup.stats.advantages import center, linear_advantages, standardized_advantages
from trueup.stats.fusion import control_variate_advantages, corrected_rewards
from trueup.types import BoolArray, FloatArray, IntArray

__all__ = ["ESTIMATORS", "StepScores", "anchored_groups", "answered_propensity"]


@dataclass(frozen=True, slots=True)
class StepScores:
    """What is known when a step's advantages are formed."""

    config: AnchorConfig
    calibrated_GN: FloatArray  # NaN where the proxy is unscored
    gold_GN: FloatArray  # NaN where not anchored or unscored
    anchored_GN: BoolArray
    propensity_GN: FloatArray
    scale: float  # predictable scale
    coefficient: float  # λ
    kappa: float  # factor on the correction, for `mse`
    leaning_GN: FloatArray | None  # κ of each rollout, for `adaptive`
    anchor_weight: float  # factor on the anchor groups, for `wmrl`


def _advantages(s: StepScores, rewards_GN: FloatArray) -> FloatArray:
    scaling = s.config.advantage_scaling
    if scaling == "std":
        return standardized_advantages(rewards_GN, s.config.std_eps)
    if scaling == "mean":
        return center(rewards_GN)
    return linear_advantages(rewards_GN, s.scale)


def answered_propensity(
    propensity: FloatArray, anchored: BoolArray, answered: BoolArray
) -> tuple[FloatArray, float]:
    """π′ of each unit given that it was not lost (module docstring), and the share of anchors that answered."""
    n_anchored = int(anchored.sum())
    share = float((anchored & answered).sum()) / n_anchored if n_anchored else 1.0
    if share >= 1.0:
        return propensity, share
    kept = 1.0 - propensity + propensity * share
    return np.divide(propensity * share, kept, out=np.ones_like(kept), where=kept > 0), share


def _corrected(s: StepScores, propensity_GN: FloatArray, clip: float | None) -> FloatArray:
    """Corrected rewards with the given divisors; NaN where neither proxy nor gold has a score, and where an anchor's
    gold was lost.

    A rollout without a proxy score (lost, or left out by the guard) stays only if it is anchored, so there is nothing
    to correct: its reward is gold itself. Dividing by π would give it the expectation of a rollout that also stays
    when it is not anchored.
    """
    rewards = corrected_rewards(s.calibrated_GN, s.gold_GN, s.anchored_GN, propensity_GN, s.coefficient, clip)
    return np.where(np.isfinite(s.calibrated_GN), rewards, s.gold_GN)


def _answered(s: StepScores) -> FloatArray:
    """π′ of each rollout (module docstring)."""
    return answered_propensity(s.propensity_GN, s.anchored_GN, np.isfinite(s.gold_GN))[0]


def corrected(s: StepScores) -> tuple[FloatArray, FloatArray]:
    """Pseudo-rewards, centred (docs/estimators.md §1)."""
    rewards = _corrected(s, _answered(s), s.config.correction_clip)
    return rewards, _advantages(s, rewards)


def _any(grid_GN: BoolArray) -> BoolArray:
    found: BoolArray = np.logical_or.reduce(grid_GN, axis=1)
    return found


@dataclass(frozen=True, slots=True)
class AnchoredGroups:
    """The anchored groups (rows of the grid): advantages of proxy and gold over the same rollouts, and π′."""

    rows: IntArray
    proxy_RN: FloatArray
    gold_RN: FloatArray
    propensity_R: FloatArray


def anchored_groups(s: StepScores) -> AnchoredGroups:
    """Both kinds of advantage of the anchored groups; a rollout that one of the two lost is left out of both.

    A group whose proxy is wholly unscored is its gold alone: its control is 0.
    """
    rows = np.flatnonzero(_any(s.anchored_GN))
    f, r = s.calibrated_GN[rows], s.gold_GN[rows]
    has_proxy, has_gold = np.isfinite(f), np.isfinite(r)
    blind = ~_any(has_proxy)[:, None]
    proxy = _advantages(s, np.where(has_gold, f, np.nan))
    gold = _advantages(s, np.where(has_proxy | blind, r, np.nan))
    proxy = np.where(blind & np.isfinite(gold), 0.0, proxy)
    everyone = np.ones(rows.size, np.bool_)
    pi, _ = answered_propensity(s.propensity_GN[rows, 0], everyone, _any(np.isfinite(gold)))
    return AnchoredGroups(rows, proxy, gold, pi)


def _difference(s: StepScores, coefficient: float, factor: float) -> FloatArray:
    """The group difference estimator with `factor` on the correction."""
    advantages: FloatArray = coefficient * _advantages(s, s.calibrated_GN)
    a = anchored_groups(s)
    everyone = np.ones(a.rows.size, np.bool_)
    advantages[a.rows] = control_variate_advantages(
        a.proxy_RN, a.gold_RN, everyone, a.propensity_R / factor, coefficient
    )
    return advantages


def _plug_in(s: StepScores) -> FloatArray:
    """Gold for the anchor groups, calibrated proxy for the others: what `step.rewards` shows for group
    estimators."""
    return np.where(_any(s.anchored_GN)[:, None], s.gold_GN, s.calibrated_GN)


def control_variate(s: StepScores) -> tuple[FloatArray, FloatArray]:
    """Group difference estimator in advantage space (docs/estimators.md §2)."""
    return _plug_in(s), _difference(s, s.coefficient, 1.0)


def mse(s: StepScores) -> tuple[FloatArray, FloatArray]:
    """The unbiased correction shrunk by κ (docs/estimators.md §3); biased on purpose."""
    kappa = max(s.kappa, 1e-12)
    if s.config.anchor_unit == "rollout":
        rewards = _corrected(s, _answered(s) / kappa, s.config.correction_clip)
        return rewards, _advantages(s, rewards)
    return _plug_in(s), _difference(s, 1.0, kappa)


def wmrl(s: StepScores) -> tuple[FloatArray, FloatArray]:
    """Plug-in advantages, the anchor groups' times the anchor weight (arXiv 2608.12564)."""
    rewards = _plug_in(s)
    weight = np.where(_any(s.anchored_GN), s.anchor_weight, 1.0)[:, None]
    return rewards, _advantages(s, rewards) * weight


def adaptive(s: StepScores) -> tuple[FloatArray, FloatArray]:
    """f̂ + a(r − f̂)·max(κ/π, 1): `corrected` at κ = 1, gold plugged in at the anchors at κ = 0
    (docs/estimators.md §4)."""
    assert s.leaning_GN is not None
    with np.errstate(divide="ignore"):
        divisor = np.minimum(_answered(s) / s.leaning_GN, 1.0)
    rewards = _corrected(s, divisor, s.config.correction_clip)
    return rewards, _advantages(s, rewards)


def gold_only(s: StepScores) -> tuple[FloatArray, FloatArray]:
    """`gold` and `gold_budget`: only what gold has scored."""
    return s.gold_GN, _advantages(s, s.gold_GN)


def proxy_only(s: StepScores) -> tuple[FloatArray, FloatArray]:
    """The proxy as it is."""
    return s.calibrated_GN, _advantages(s, s.calibrated_GN)


ESTIMATORS: dict[str, Callable[[StepScores], tuple[FloatArray, FloatArray]]] = {
    "corrected": corrected,
    "control_variate": control_variate,
    "mse": mse,
    "adaptive": adaptive,
    "wmrl": wmrl,
    "gold": gold_only,
    "gold_budget": gold_only,
    "proxy": proxy_only,
}
