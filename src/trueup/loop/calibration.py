"""The map from proxy to expected gold, learned from the anchors.

Order matters. A step applies one map to all its scores, measures its anchors' residuals with that map (so they are
out of sample), and only then pushes the pairs and refits. Refitting in the middle of a step would score early and
late groups on different scales and measure the map on the pairs that made it.

Per family: every family with enough pairs gets its own isotonic fit, shrunk toward the pooled one by evidence. The
weight is the positive-part James–Stein factor 1 − noise/distance², with distance² the mean squared difference of
the two maps over the family's pairs and noise = residual variance × level sets / pairs, the variance that so many
free levels would show between equal maps. A family that merely looks different keeps the pooled map.

Second stage: where the caller gives features (length, size of the syntax tree, keyword flags, an embedding), a ridge
regression of the isotonic stage's residuals on them is added, its penalty chosen by generalised cross-validation with
the null model among the candidates. This can repair what no monotone map can: two kinds of rollout with one score.

A monotone map cannot repair a reversed ranking; it can only go flat there, which takes the wrong signal out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict
from typing import Any

import numpy as np

from trueup.errors import GroupError
from trueup.loop.config import CalibrationConfig
from trueup.stats.agreement import within_group_residual
from trueup.stats.monotone import MonotoneMap, blend, fit_isotonic
from trueup.stats.ridge import RidgeFit, fit_ridge
from trueup.types import FloatArray, IntArray

__all__ = ["Calibrator"]

# Rows of the pair table; a plain matrix, so that pushing a step's pairs is one concatenation. Features follow.
_PROXY, _GOLD, _WEIGHT, _PREDICTED, _FAMILY, _GROUP = range(6)


class Calibrator:
    """Anchor pairs (first in, first out) and the maps fitted on them.

    Args:
        config: thresholds.
        proxy_range, gold_range: until the first fit the map is the straight line between these ranges, which is
            the identity when they are the same.
    """

    def __init__(
        self, config: CalibrationConfig, proxy_range: tuple[float, float], gold_range: tuple[float, float]
    ) -> None:
        self._config = config
        self._line = MonotoneMap(np.array(proxy_range), np.array(gold_range), 2, 0.0)
        self._identity = proxy_range == gold_range
        self._gold_range = gold_range
        self._pairs = np.empty((6, 0))
        self._n_new = 0
        self._second: RidgeFit | None = None
        self._pooled: MonotoneMap | None = None
        self._by_family: dict[int, MonotoneMap] = {}
        self.n_fits = 0

    @property
    def n_pairs(self) -> int:
        return int(self._pairs.shape[1])

    @property
    def is_fitted(self) -> bool:
        return self._pooled is not None

    def apply(
        self, proxy_P: FloatArray, family_P: IntArray, features_PD: FloatArray | None = None
    ) -> FloatArray:
        """Calibrated scores, same shape; NaN stays NaN. family_P: each score's family code; features_PD: as in the
        pairs, for the second stage."""
        if self._pooled is None:
            return proxy_P if self._identity else self._line.apply(proxy_P)
        calibrated = self._pooled.apply(proxy_P)
        for code, own in self._by_family.items():
            mine = family_P == code
            calibrated[mine] = own.apply(proxy_P[mine])
        if self._second is None or features_PD is None:
            return calibrated
        return np.clip(calibrated + self._second.apply(features_PD), *self._gold_range)

    def clipped(self, proxy_P: FloatArray) -> float:
        """Share of the scores outside the fitted range, where the map is flat for want of evidence."""
        return 0.0 if self._pooled is None else self._pooled.clipped(proxy_P)

    def push(
        self,
        proxy_A: FloatArray,
        gold_A: FloatArray,
        weight_A: FloatArray,
        predicted_A: FloatArray,
        family_A: IntArray,
        group_A: IntArray,
        families: Sequence[str],
        features_AD: FloatArray | None = None,
    ) -> Mapping[str, Any] | None:
        """Add a step's anchor pairs (all finite) and refit if due; returns the refit's report, else None.

        weight_A: 1/π, so that the fit sees the policy's distribution and not that of the anchors. predicted_A:
        what the map in force gave them. group_A: numbers that no other group of the run has.
        """
        new = np.stack([proxy_A, gold_A, weight_A, predicted_A, family_A, group_A]).astype(np.float64)
        if features_AD is not None:
            new = np.concatenate([new, features_AD.T])
        if not self.n_pairs:
            self._pairs = np.empty((new.shape[0], 0))
        self._pairs = np.concatenate([self._pairs, new], axis=1)[:, -self._config.capacity :]
        self._n_new += new.shape[1]
        due = self._n_new >= self._config.refit_every or self._pooled is None
        if not self._config.enabled or not due or self.n_pairs < self._config.min_pairs or not new.shape[1]:
            return None
        fresh = self._pairs[:, -min(self._n_new, self.n_pairs) :]
        report = self._report(fresh)
        self._refit()
        self._n_new = 0
        self.n_fits += 1
        assert self._pooled is not None
        own = {families[k]: m for k, m in sorted(self._by_family.items())}
        return report | {
            "n_pairs": self.n_pairs,
            "n_fits": self.n_fits,
            "tied_fraction": {"pooled": self._pooled.tied_fraction}
            | {k: m.tied_fraction for k, m in own.items()},
            "features_used": self._second is not None and bool(self._second.coefficients.any()),
        }

    def _report(self, fresh: FloatArray) -> dict[str, Any]:
        """Residuals of the pairs since the last fit, which no fit has seen: raw proxy and calibrated."""
        group = fresh[_GROUP].astype(np.int64)
        return {
            "proxy": asdict(within_group_residual(fresh[_PROXY], fresh[_GOLD], group)),
            "calibrated": asdict(within_group_residual(fresh[_PREDICTED], fresh[_GOLD], group)),
            "multicalibration_error": self._multicalibration_error(fresh),
        }

    def _multicalibration_error(self, fresh: FloatArray) -> float:
        """Largest |sum of residuals| of any family × tenth of the predicted score, over the number of pairs: how far
        the worst cell is off, weighted by its size (after Hébert-Johnson et al., arXiv 1711.08513)."""
        low, high = self._gold_range
        place = np.clip((fresh[_PREDICTED] - low) / (high - low) * 10, 0, 9).astype(np.int64)
        cell = fresh[_FAMILY].astype(np.int64) * 10 + place
        sums = np.bincount(cell, fresh[_GOLD] - fresh[_PREDICTED])
        return float(np.abs(sums).max() / fresh.shape[1])

    def _refit(self) -> None:
        proxy, gold, weight = self._pairs[_PROXY], self._pairs[_GOLD], self._pairs[_WEIGHT]
        self._second = None
        self._pooled = fit_isotonic(proxy, gold, weight)
        self._by_family = {}
        if self._config.by_family:
            self._refit_families(self._pooled, proxy, gold, weight)
        if self._pairs.shape[0] > 6:
            features = self._pairs[6:].T
            residual = gold - self.apply(proxy, self._pairs[_FAMILY].astype(np.int64))
            self._second = fit_ridge(features, residual, weight)

    def _refit_families(
        self, pooled: MonotoneMap, proxy: FloatArray, gold: FloatArray, weight: FloatArray
    ) -> None:
        family = self._pairs[_FAMILY].astype(np.int64)
        codes, counts = np.unique(family, return_counts=True)
        if codes.size < 2:
            return
        for code in codes[counts >= self._config.min_family_pairs]:
            mine = family == code
            own = fit_isotonic(proxy[mine], gold[mine], weight[mine])
            share = _evidence(own, pooled, proxy[mine], gold[mine], weight[mine])
            if share > 0.0:
                self._by_family[int(code)] = blend(own, pooled, share)

    def check_features(self, features_PD: FloatArray | None) -> None:
        """Refuse features of another width than the pairs in the buffer have."""
        width = 0 if features_PD is None else features_PD.shape[1]
        if self.n_pairs and width != self._pairs.shape[0] - 6:
            raise GroupError(
                f"A step must bring as many features as the ones before it ({self._pairs.shape[0] - 6}), got {width}. "
                "The second stage of the calibration could not be fitted on both. Give the same features in every step."
            )

    def copy(self) -> Calibrator:
        """An independent calibrator; arrays are shared, because they are replaced and not written to."""
        other = copy(self)
        other._by_family = dict(self._by_family)
        return other

    def forget(self) -> None:
        """Start again from the straight line: the proxy is another one, its old pairs say nothing of it."""
        self._pairs = np.empty((6, 0))
        self._n_new = 0
        self._pooled, self._by_family, self._second = None, {}, None

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers and lists; JSON keeps every bit of them."""
        return {
            "pairs": self._pairs.tolist(),
            "second": None
            if self._second is None
            else {"center": self._second.center.tolist(), "coefficients": self._second.coefficients.tolist()},
            "n_new": self._n_new,
            "n_fits": self.n_fits,
            "pooled": _map_to_plain(self._pooled),
            "by_family": {str(code): _map_to_plain(own) for code, own in self._by_family.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._pairs = np.array(state["pairs"], dtype=np.float64).reshape(len(state["pairs"]), -1)
        second = state["second"]
        self._second = None
        if second is not None:
            self._second = RidgeFit(np.array(second["center"]), np.array(second["coefficients"]))
        self._n_new = int(state["n_new"])
        self.n_fits = int(state["n_fits"])
        self._pooled = _map_from_plain(state["pooled"])
        maps = {int(code): _map_from_plain(own) for code, own in state["by_family"].items()}
        self._by_family = {code: own for code, own in maps.items() if own is not None}


def _evidence(
    own: MonotoneMap, pooled: MonotoneMap, x: FloatArray, y: FloatArray, weight: FloatArray
) -> float:
    """Positive-part James–Stein weight of a family's own map against the pooled one (module docstring)."""
    w = weight / weight.sum()
    fitted = own.apply(x)
    distance2 = float(w @ (fitted - pooled.apply(x)) ** 2)
    if distance2 <= 0.0:
        return 0.0
    n_effective = 1.0 / float(w @ w)
    dof = min(own.n_blocks, n_effective - 1.0)
    variance = float(w @ (y - fitted) ** 2) * n_effective / max(n_effective - dof, 1.0)
    return max(0.0, 1.0 - variance * dof / n_effective / distance2)


def _map_to_plain(m: MonotoneMap | None) -> dict[str, Any] | None:
    if m is None:
        return None
    return {"x": m.x.tolist(), "y": m.y.tolist(), "n_blocks": m.n_blocks, "tied_fraction": m.tied_fraction}


def _map_from_plain(plain: Mapping[str, Any] | None) -> MonotoneMap | None:
    if plain is None:
        return None
    x, y = (np.array(plain[name], dtype=np.float64) for name in ("x", "y"))
    return MonotoneMap(x, y, int(plain["n_blocks"]), float(plain["tied_fraction"]))
