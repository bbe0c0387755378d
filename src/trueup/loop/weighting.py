"""Small running estimates that a step reads before it draws its anchors and updates after it is done.

All of them are *predictable*: what a step uses was fixed before the step's anchors were drawn. That, and nothing
about their quality, is what keeps the estimators unbiased; a bad estimate here costs variance only.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from trueup.stats.sequential import RestartingAlarm
from trueup.types import FloatArray, IntArray

__all__ = ["Coefficient", "CorrectionMoments", "Leaning", "ResidualVariance", "Spread"]


class ResidualVariance:
    """Expected squared residual (gold − calibrated proxy)² by family and score, for active propensities.

    Ten bins of the *raw* proxy score per family: calibration can send scores of very different reliability to one
    value. A bin is shrunk toward the same bin over all families, and that toward the overall mean, each with 4
    pseudo-counts. Old pairs fade with a half-life counted in pairs.
    """

    N_BINS = 10
    PSEUDO_COUNT = 4.0
    HALF_LIFE_PAIRS = 2_000.0

    def __init__(self, proxy_range: tuple[float, float], prior: float) -> None:
        self._low, self._width = proxy_range[0], proxy_range[1] - proxy_range[0]
        self._prior = prior
        self._sum_FB = np.zeros((0, self.N_BINS))
        self._count_FB = np.zeros((0, self.N_BINS))

    def _bin(self, proxy_P: FloatArray) -> IntArray:
        place = np.nan_to_num((proxy_P - self._low) / self._width * self.N_BINS)
        return np.clip(place, 0, self.N_BINS - 1).astype(np.int64)

    @property
    def n_seen(self) -> float:
        """Pairs seen, with older ones faded."""
        return float(self._count_FB.sum())

    def overall(self) -> float:
        """Mean squared residual over all bins and families, with one pseudo-count of the prior."""
        return float((self._sum_FB.sum() + self._prior) / (self._count_FB.sum() + 1.0))

    def predict(self, proxy_P: FloatArray, family_P: IntArray) -> FloatArray:
        """Expected squared residual of each rollout; where the proxy is unscored, the overall mean."""
        k = self.PSEUDO_COUNT
        total, count = self._sum_FB.sum(axis=0), self._count_FB.sum(axis=0)
        overall = self.overall()
        by_bin = (total + k * overall) / (count + k)
        if self._sum_FB.shape[0] <= 1:
            table = by_bin[None, :]
            family_P = np.zeros_like(family_P)
        else:
            table = (self._sum_FB + k * by_bin) / (self._count_FB + k)
            unseen = np.broadcast_to(by_bin, (1, self.N_BINS))
            table = np.concatenate([table, unseen])
            family_P = np.minimum(family_P, table.shape[0] - 1)
        variance: FloatArray = table[family_P, self._bin(proxy_P)]
        return np.where(np.isfinite(proxy_P), variance, overall)

    def update(self, proxy_A: FloatArray, residual_A: FloatArray, family_A: IntArray) -> None:
        """Add a step's anchor pairs."""
        if not residual_A.size:
            return
        n_families = max(int(family_A.max()) + 1, self._sum_FB.shape[0])
        grown = ((0, n_families - self._sum_FB.shape[0]), (0, 0))
        fade = 0.5 ** (residual_A.size / self.HALF_LIFE_PAIRS)
        where = family_A * self.N_BINS + self._bin(proxy_A)
        shape = (n_families, self.N_BINS)
        size = n_families * self.N_BINS
        added = np.bincount(where, residual_A**2, minlength=size).reshape(shape)
        counted = np.bincount(where, minlength=size).reshape(shape)
        self._sum_FB = np.pad(self._sum_FB, grown) * fade + added
        self._count_FB = np.pad(self._count_FB, grown) * fade + counted

    def state_dict(self) -> dict[str, Any]:
        return {"sum": self._sum_FB.tolist(), "count": self._count_FB.tolist()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._sum_FB = np.array(state["sum"], dtype=np.float64).reshape(-1, self.N_BINS)
        self._count_FB = np.array(state["count"], dtype=np.float64).reshape(-1, self.N_BINS)


@dataclass(slots=True)
class _Running:
    """Base of the scalar estimates: their fields are their whole state."""

    def state_dict(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for f in fields(self):
            setattr(self, f.name, float(state[f.name]))


@dataclass(slots=True)
class Spread(_Running):
    """Standard deviation of gold within a group, over earlier steps: the predictable scale of advantages.

    Starts from a prior worth eight groups. Exponentially weighted by step.
    """

    total: float
    weight: float = 8.0

    @classmethod
    def with_prior(cls, standard_deviation: float) -> Spread:
        return cls(total=8.0 * standard_deviation**2)

    def value(self, floor: float) -> float:
        return float(np.sqrt(max(self.total / self.weight, floor * floor)))

    def update(self, variance_sum: float, n_groups: int, fade: float) -> None:
        if n_groups:
            self.total = fade * self.total + variance_sum
            self.weight = fade * self.weight + n_groups


@dataclass(slots=True)
class Coefficient(_Running):
    """λ of the group control variate: Cov(h(r), h(f̂))/Var(h(f̂)) over past anchor groups.

    With h the inner products of advantages this is Σ⟨A(r), A(f̂)⟩ / Σ⟨A(f̂), A(f̂)⟩. The prior at λ = 1 weighs as much
    as six groups; starting at 0 would mean learning from the few gold groups alone until λ has grown.
    """

    PRIOR_GROUPS = 6.0
    HALF_LIFE_GROUPS = 64.0

    cross: float = 0.0
    square: float = 0.0
    count: float = 0.0

    def value(self) -> float:
        typical = self.square / self.count if self.count > 0 else 1.0
        prior = self.PRIOR_GROUPS * (typical if typical > 0 else 1.0)
        return min(max((self.cross + prior) / (self.square + prior), 0.0), 2.0)

    def update(self, cross_sum: float, square_sum: float, n_groups: int) -> None:
        fade = 0.5 ** (n_groups / self.HALF_LIFE_GROUPS)
        self.cross = fade * self.cross + cross_sum
        self.square = fade * self.square + square_sum
        self.count = fade * self.count + n_groups


@dataclass(slots=True)
class CorrectionMoments(_Running):
    """Mean and variance over steps of the projected correction (`stats.fusion.projected_correction`), for `mse`."""

    FADE = 0.97

    first: float = 0.0
    second: float = 0.0
    weight: float = 0.0
    weight_squares: float = 0.0

    def update(self, ratio: float) -> None:
        self.first = self.FADE * self.first + ratio
        self.second = self.FADE * self.second + ratio * ratio
        self.weight = self.FADE * self.weight + 1.0
        self.weight_squares = self.FADE**2 * self.weight_squares + 1.0

    def moments(self) -> tuple[float, float, float] | None:
        """(mean, variance over steps, effective number of steps), or None before the third step."""
        if self.weight < 2.5:
            return None
        mean = self.first / self.weight
        n_effective = self.weight**2 / self.weight_squares
        spread = max(self.second / self.weight - mean * mean, 0.0)
        return mean, spread * n_effective / max(n_effective - 1.0, 1.0), n_effective


class Leaning:
    """How far each family leans on the plain proxy, for `adaptive`: κ near 0 leans on it, κ = 1 is `corrected`.

    Over T steps a bias b of the signal adds up to T·b, noise of variance v per step to √(T·v). The κ that minimises
    the squared sum of (1 − κ)·b and κ·noise is b²/(b² + v/T). b and v are those of the projected correction per step
    (`stats.fusion.projected_correction`), b² less its own sampling variance. This alone would lean on a proxy again
    as soon as the policy has learned to avoid what the proxy gets wrong, and learn it anew; so a family in which a
    betting e-process has found |b| > `BAND` (chance of a false finding ≤ `ALPHA` within `HORIZON` steps) stays at 1.
    """

    BAND = 0.05
    ALPHA = 0.1
    HORIZON = 100
    MIN_STEPS = 3

    def __init__(self, horizon: float) -> None:
        self._horizon = horizon
        self._sums: dict[int, list[float]] = {}  # steps, Σ ratio, Σ ratio²
        self._alarms: dict[int, RestartingAlarm] = {}

    def copy(self) -> Leaning:
        """An independent copy."""
        other = Leaning(self._horizon)
        other._sums = {code: list(sums) for code, sums in self._sums.items()}
        other._alarms = {code: copy(alarm) for code, alarm in self._alarms.items()}
        return other

    def kappa(self, family_P: IntArray) -> FloatArray:
        """κ of each rollout, from its family's earlier steps; 1 until there are three."""
        kappa = np.ones(family_P.shape)
        for code, (n, total, squares) in self._sums.items():
            if n < self.MIN_STEPS or self._alarms[code].fired:
                continue
            mean = total / n
            variance = max(squares / n - mean * mean, 0.0) * n / (n - 1.0)
            bias2 = max(mean * mean - variance / n, 0.0)
            if bias2 + variance > 0:
                kappa[family_P == code] = bias2 / (bias2 + variance / self._horizon)
        return kappa

    def update(self, code: int, ratio: float) -> None:
        """Take one step's projected correction of a family."""
        sums = self._sums.setdefault(code, [0.0, 0.0, 0.0])
        for i, value in enumerate((1.0, ratio, ratio * ratio)):
            sums[i] += value
        alarm = self._alarms.setdefault(code, RestartingAlarm(self.BAND, self.HORIZON, self.ALPHA))
        alarm.update(min(max(ratio, -1.0), 1.0))

    def state_dict(self) -> dict[str, Any]:
        return {
            str(code): {"sums": list(sums), "alarm": self._alarms[code].state_dict()}
            for code, sums in self._sums.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._sums = {int(code): list(saved["sums"]) for code, saved in state.items()}
        self._alarms = {}
        for code, saved in state.items():
            alarm = RestartingAlarm(self.BAND, self.HORIZON, self.ALPHA)
            alarm.load_state_dict(saved["alarm"])
            self._alarms[int(code)] = alarm
