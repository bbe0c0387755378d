"""The predictable quantities of a run, together: what each step reads before its draw and updates after it."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

from trueup.loop.config import AnchorConfig
from trueup.loop.weighting import Coefficient, CorrectionMoments, Leaning, ResidualVariance, Spread
from trueup.loop.wmrl_parts import AnchorWeighter
from trueup.stats.fusion import shrinkage
from trueup.stats.power import cost_optimal_fraction

__all__ = ["Predictables"]


class Predictables:
    """Residual variances, scale, λ, κ and, for `wmrl`, the published anchor weight at its published settings."""

    MIN_PAIRS = 50

    def __init__(self, config: AnchorConfig) -> None:
        self._config = config
        self.residual_variance = ResidualVariance(
            config.proxy_range or config.gold_range, prior=(0.25 * config.width) ** 2
        )
        self.spread = Spread.with_prior(0.25 * config.width)
        self.coefficient_estimate = Coefficient()
        self.correction = CorrectionMoments()
        self.leaning = Leaning(config.adaptive_horizon)
        self.weighter = AnchorWeighter(half_life=64, warmup=32, w_max=4.0, target_weight=2.0)

    @property
    def scale(self) -> float:
        return self.spread.value(self._config.scale_floor_fraction * self._config.width)

    @property
    def coefficient(self) -> float:
        if self._config.coefficient is not None:
            return self._config.coefficient
        return self.coefficient_estimate.value() if self._config.estimator == "control_variate" else 1.0

    @property
    def anchor_fraction(self) -> float:
        """The fraction that buys the least variance of a corrected mean per cost (`stats.power`), once 50 pairs have
        been seen; the configured one before. It rises when residuals grow, by drift or by a new family."""
        residual = self.residual_variance
        if residual.n_seen < self.MIN_PAIRS:
            return self._config.anchor_fraction
        low, high = self._config.fraction_range
        wanted = cost_optimal_fraction(
            self.spread.value(0.0) ** 2, residual.overall(), self._config.cost_ratio
        )
        return min(max(wanted, low), high)

    @property
    def kappa(self) -> float:
        moments = self.correction.moments()
        return 1.0 if moments is None else shrinkage(*moments)

    @property
    def scale_fade(self) -> float:
        return float(0.5 ** (1.0 / self._config.scale_half_life))

    def _parts(self) -> dict[str, Any]:
        return {
            "residual_variance": self.residual_variance,
            "spread": self.spread,
            "coefficient": self.coefficient_estimate,
            "correction": self.correction,
            "leaning": self.leaning,
            "weighter": self.weighter,
        }

    def copy(self) -> Predictables:
        """An independent copy."""
        other = Predictables.__new__(Predictables)
        other._config = self._config
        other.residual_variance = copy(self.residual_variance)
        other.spread = copy(self.spread)
        other.coefficient_estimate = copy(self.coefficient_estimate)
        other.correction = copy(self.correction)
        other.leaning = self.leaning.copy()
        other.weighter = copy(self.weighter)
        return other

    def state_dict(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self._parts().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
