"""The pieces of the published WMRL method, one by one: map, disagreement, weight, advantage, count.

Source: arXiv 2608.12564 (isotonic "online debiasing", "inverse-variance denoising") and the reference vectors of its
public release, which every rule here reproduces to 1e-9 (`tests/loop/test_wmrl_vectors.py`). The rules are kept as
published, including those that `docs/wmrl.md` lists as biased; nothing here is used by trueup's own estimators.
All arrays are of one group or of the pair buffer, float64; `scored` masks out NaN before a function is called.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

from trueup.types import FloatArray

__all__ = [
    "AdvantageStats",
    "AnchorWeighter",
    "OnlineCalibration",
    "anchor_count",
    "apply_knots",
    "disagreement",
    "fit_binned",
    "group_advantage",
    "pooled_bias",
    "step_advantages",
]

Knots = tuple[FloatArray, FloatArray]

# Below this variance a group's gold scores are taken to be equal; far under any spread of real scores.
_NO_SPREAD = 1e-12


def fit_binned(proxy_A: FloatArray, gold_A: FloatArray, n_bins: int) -> Knots | None:
    """Knots (x, y) of the monotone map: isotonic fit over the means of `n_bins` equal bins of [0, 1].

    Each non-empty bin gives its mean proxy, its mean gold and its count as weight; a score outside [0, 1] counts
    to the bin at that end. None, the identity, where fewer than two bins hold pairs.
    """
    index = np.clip((proxy_A * n_bins).astype(np.int64), 0, n_bins - 1)
    count = np.bincount(index, minlength=n_bins)
    used = count > 0
    if np.count_nonzero(used) < 2:
        return None
    n = count[used]
    x = np.bincount(index, proxy_A, minlength=n_bins)[used] / n
    y = np.bincount(index, gold_A, minlength=n_bins)[used] / n
    return x, np.asarray(isotonic_regression(y, weights=n).x, dtype=np.float64)


def apply_knots(knots: Knots | None, scores: FloatArray) -> FloatArray:
    """Linear between the knots, constant outside; the identity for None. NaN stays NaN."""
    return scores if knots is None else np.interp(scores, *knots)


def pooled_bias(predicted_A: FloatArray, gold_A: FloatArray) -> float:
    """Mean squared difference after both were centred over the whole buffer: the release's measure of bias.

    It is called within-group there, but knows no groups; `docs/wmrl.md` says what that hides.
    """
    difference = predicted_A - gold_A
    return float(np.mean((difference - difference.mean()) ** 2))


def disagreement(predicted_N: FloatArray, gold_N: FloatArray) -> float | None:
    """Var(predicted − gold) / Var(gold) within one anchor group; None where gold does not vary.

    Both of shape (group_size,), scored entries only.
    """
    if gold_N.size < 2:
        return None
    spread = float(np.var(gold_N))
    if spread <= _NO_SPREAD:
        return None
    return float(np.var(predicted_N - gold_N)) / spread


def group_advantage(rewards_N: FloatArray, standardize: bool, eps: float) -> FloatArray:
    """(r − mean) / (population std + eps) over the scored rollouts of one group; without the division if not
    `standardize`. NaN where unscored, and everywhere in a group with fewer than two scores."""
    scored = np.isfinite(rewards_N)
    advantages = np.full(rewards_N.shape, np.nan)
    if np.count_nonzero(scored) < 2:
        return advantages
    centred = rewards_N[scored] - rewards_N[scored].mean()
    if standardize:
        centred = centred / (rewards_N[scored].std() + eps)
    advantages[scored] = centred
    return advantages


@dataclass(frozen=True, slots=True)
class AdvantageStats:
    """Counts over the groups of a step that have at least two scores."""

    n_groups: int
    n_rollouts: int  # scored ones
    n_anchor_groups: int
    n_degenerate: int  # groups whose scores are all equal, so that their advantages are 0


def step_advantages(
    rewards: Sequence[FloatArray], anchored: Sequence[bool], weight: float, standardize: bool, eps: float
) -> tuple[list[FloatArray], AdvantageStats]:
    """Advantages of every group, the anchor groups' times `weight`.

    rewards: one (group_size,) array per group, NaN where unscored; anchored: one bool per group.
    """
    advantages = []
    n_groups = n_rollouts = n_anchor_groups = n_degenerate = 0
    for rewards_N, is_anchor in zip(rewards, anchored, strict=True):
        advantages_N = group_advantage(rewards_N, standardize, eps)
        advantages.append(advantages_N * weight if is_anchor else advantages_N)
        n_scored = int(np.count_nonzero(np.isfinite(advantages_N)))
        if n_scored:
            n_groups += 1
            n_rollouts += n_scored
            n_anchor_groups += bool(is_anchor)
            n_degenerate += float(np.nanmax(rewards_N) - np.nanmin(rewards_N)) <= _NO_SPREAD
    return advantages, AdvantageStats(n_groups, n_rollouts, n_anchor_groups, n_degenerate)


def anchor_count(
    fraction: float, n_groups: int, minimum: int, max_concurrent: int | None = None, in_flight: int = 0
) -> int:
    """Anchor groups of a step: the rounded share, not under `minimum`, not over the step or the free slots."""
    count = min(max(minimum, round(fraction * n_groups)), n_groups)
    return count if max_concurrent is None else min(count, max(max_concurrent - in_flight, 0))


class OnlineCalibration:
    """The pair buffer and its map: identity until `min_pairs`, then refitted after every `refit_every` pairs.

    Pairs count one by one, so a refit can fall between two rollouts of one group.
    """

    def __init__(self, *, min_pairs: int, refit_every: int, n_bins: int, capacity: int) -> None:
        self.min_pairs = min_pairs
        self.refit_every = refit_every
        self.n_bins = n_bins
        self.knots: Knots | None = None
        self.n_fits = 0
        self._n_new = 0
        self._proxy: deque[float] = deque(maxlen=capacity)
        self._gold: deque[float] = deque(maxlen=capacity)

    def __len__(self) -> int:
        return len(self._proxy)

    def push(self, proxy: float, gold: float) -> bool:
        """Add one pair; True if that made a refit due, which has then been done."""
        self._proxy.append(proxy)
        self._gold.append(gold)
        self._n_new += 1
        if len(self) < self.min_pairs or (self.n_fits and self._n_new < self.refit_every):
            return False
        self.knots = fit_binned(np.array(self._proxy), np.array(self._gold), self.n_bins)
        self._n_new = 0
        self.n_fits += 1
        return True

    def apply(self, scores: FloatArray) -> FloatArray:
        return apply_knots(self.knots, scores)

    def report(self) -> dict[str, float]:
        """Bias over the pooled buffer before and after the map, in sample, as the release reports it."""
        proxy, gold = np.array(self._proxy), np.array(self._gold)
        before, after = pooled_bias(proxy, gold), pooled_bias(self.apply(proxy), gold)
        return {
            "n_pairs": float(len(self)),
            "n_fits": float(self.n_fits),
            "pooled_bias_before": before,
            "pooled_bias_after": after,
            "pooled_bias_reduction": 1.0 - after / before if before > 0 else 0.0,
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "proxy": list(self._proxy),
            "gold": list(self._gold),
            "n_new": self._n_new,
            "n_fits": self.n_fits,
            "knots": None if self.knots is None else [k.tolist() for k in self.knots],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._proxy = deque(state["proxy"], self._proxy.maxlen)
        self._gold = deque(state["gold"], self._gold.maxlen)
        self._n_new, self.n_fits = int(state["n_new"]), int(state["n_fits"])
        knots: Sequence[Sequence[float]] | None = state["knots"]
        self.knots = None if knots is None else (np.array(knots[0]), np.array(knots[1]))


class AnchorWeighter:
    """The factor on anchor groups: clip(1 + c·s², 1, w_max), with s² an EWMA of the groups' disagreement.

    The EWMA starts at its first value. After `warmup` groups c is set once, so that the weight is `target_weight`
    at that moment; from then on the weight follows the drift of s² alone. Before, it is 1.
    """

    def __init__(self, *, half_life: float, warmup: int, w_max: float, target_weight: float) -> None:
        self.rate = 1.0 - 0.5 ** (1.0 / half_life)
        self.warmup = warmup
        self.w_max = w_max
        self.target_weight = target_weight
        self.level: float | None = None  # s²
        self.c: float | None = None
        self.n_seen = 0

    def update(self, value: float | None) -> None:
        """Take one anchor group's disagreement; None (gold did not vary) changes nothing."""
        if value is None:
            return
        self.level = value if self.level is None else self.level + self.rate * (value - self.level)
        self.n_seen += 1
        if self.n_seen == self.warmup:  # a proxy that has agreed perfectly so far would divide by zero
            self.c = (self.target_weight - 1.0) / max(self.level, _NO_SPREAD)

    @property
    def weight(self) -> float:
        if self.c is None or self.level is None:
            return 1.0
        return min(max(1.0 + self.c * self.level, 1.0), self.w_max)

    def state_dict(self) -> dict[str, Any]:
        return {"level": self.level, "c": self.c, "n_seen": self.n_seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.level, self.c, self.n_seen = state["level"], state["c"], int(state["n_seen"])
