"""What S runs of the sweep learn from their anchors, as arrays with a leading axis of seeds.

The loop keeps the same quantities one run at a time (`trueup.loop`): the calibration map, the coefficient of the
control variate, the spread that scales advantages, the residual variance that places anchors. Here they are in their
plainest form, ten equal bins and running sums, so that all runs advance together. As in the loop, a step reads them
before its draw and updates them after it; the unbiasedness of the estimators rests on that.
"""

from __future__ import annotations

import numpy as np

from trueup.types import BoolArray, FloatArray, IntArray

__all__ = ["Memory", "binned_isotonic"]

_BINS = 10
_MIN_PAIRS = 200  # anchors before the first calibration
_SPREAD_PRIOR, _SPREAD_GROUPS, _SPREAD_FLOOR, _SPREAD_FADE = 0.25, 8.0, 0.1, 0.5 ** (1 / 20)
_LAMBDA_PRIOR_GROUPS = 6.0
_PSEUDO_COUNT = 4.0


class Memory:
    """Running sums per run. Methods that read come first, methods that learn after them."""

    def __init__(self, n_seeds: int) -> None:
        self.pairs_SB = np.zeros((n_seeds, _BINS))  # weight 1/π
        self.proxy_SB = np.zeros((n_seeds, _BINS))
        self.gold_SB = np.zeros((n_seeds, _BINS))
        self.n_pairs_S = np.zeros(n_seeds, np.int64)
        self.residual_SB = np.zeros((n_seeds, _BINS))
        self.seen_SB = np.zeros((n_seeds, _BINS))
        self.spread_S = np.full(n_seeds, _SPREAD_GROUPS * _SPREAD_PRIOR**2)
        self.spread_weight_S = np.full(n_seeds, _SPREAD_GROUPS)
        self.cross_S = np.zeros(n_seeds)
        self.square_S = np.zeros(n_seeds)
        self.groups_S = np.zeros(n_seeds)

    def calibrate(self, proxy_SGN: FloatArray) -> FloatArray:
        ready = self.n_pairs_S >= _MIN_PAIRS
        if not ready.any():
            return proxy_SGN
        level_SB = binned_isotonic(self.gold_SB, self.pairs_SB)
        x_SB = np.divide(
            self.proxy_SB,
            self.pairs_SB,
            out=np.broadcast_to((np.arange(_BINS) + 0.5) / _BINS, self.pairs_SB.shape).copy(),
            where=self.pairs_SB > 0,
        )
        return np.stack(
            [
                np.interp(proxy, x[held], level[held]) if is_ready else proxy
                for proxy, x, level, held, is_ready in zip(
                    proxy_SGN, x_SB, level_SB, self.pairs_SB > 0, ready, strict=True
                )
            ]
        )

    def scale(self) -> FloatArray:
        spread_S = np.sqrt(np.maximum(self.spread_S / self.spread_weight_S, 0.0))
        return np.asarray(np.maximum(spread_S, _SPREAD_FLOOR))

    def coefficient(self) -> FloatArray:
        typical = np.where(self.groups_S > 0, self.square_S / np.maximum(self.groups_S, 1.0), 1.0)
        prior = _LAMBDA_PRIOR_GROUPS * np.maximum(typical, 1e-9)
        return np.clip((self.cross_S + prior) / (self.square_S + prior), 0.0, 2.0)

    def residual_variance(self, calibrated_SGN: FloatArray) -> FloatArray:
        seen = self.seen_SB.sum(axis=1, keepdims=True)
        overall = (self.residual_SB.sum(axis=1, keepdims=True) + _SPREAD_PRIOR**2) / (seen + 1.0)
        table = (self.residual_SB + _PSEUDO_COUNT * overall) / (self.seen_SB + _PSEUDO_COUNT)
        return np.asarray(table[np.arange(table.shape[0])[:, None, None], _bin(calibrated_SGN)])

    def learn_pairs(
        self, proxy: FloatArray, calibrated: FloatArray, gold: FloatArray, anchored: BoolArray, pi: FloatArray
    ) -> None:
        weight = np.where(anchored, 1.0 / np.where(anchored, pi, 1.0), 0.0)
        for total, values in (
            (self.pairs_SB, weight),
            (self.proxy_SB, weight * proxy),
            (self.gold_SB, weight * gold),
        ):
            total += _by_bin(proxy, values)
        self.residual_SB += _by_bin(calibrated, anchored * (gold - calibrated) ** 2)
        self.seen_SB += _by_bin(calibrated, anchored.astype(np.float64))
        self.n_pairs_S += anchored.sum(axis=(1, 2))

    def learn_spread(self, variance_sum_S: FloatArray, n_groups_S: FloatArray) -> None:
        self.spread_S = _SPREAD_FADE * self.spread_S + variance_sum_S
        self.spread_weight_S = _SPREAD_FADE * self.spread_weight_S + n_groups_S

    def learn_coefficient(self, proxy: FloatArray, gold: FloatArray, anchored_SG: BoolArray) -> None:
        use = anchored_SG[..., None]
        self.cross_S += np.where(use, gold * proxy, 0.0).sum(axis=(1, 2))
        self.square_S += np.where(use, proxy * proxy, 0.0).sum(axis=(1, 2))
        self.groups_S += anchored_SG.sum(axis=1)


def _bin(scores: FloatArray) -> IntArray:
    return np.clip((scores * _BINS).astype(np.int64), 0, _BINS - 1)


def _by_bin(scores_SGN: FloatArray, values_SGN: FloatArray) -> FloatArray:
    """Sums of values by run and bin of the score, (S, bins)."""
    n_seeds = scores_SGN.shape[0]
    offset = _BINS * np.arange(n_seeds)[:, None, None]
    index = (_bin(scores_SGN) + offset).ravel()
    sums = np.bincount(index, values_SGN.ravel(), minlength=n_seeds * _BINS)
    return np.asarray(sums.reshape(n_seeds, _BINS), dtype=np.float64)


def binned_isotonic(sums_SB: FloatArray, weights_SB: FloatArray) -> FloatArray:
    """Weighted isotonic fit of bin means for all runs at once, (S, B); empty bins get their neighbours' level.

    The min-max form max_{j ≤ i} min_{k ≥ i} mean(j..k) (Robertson, Wright & Dykstra 1988, §1.4), which suits ten
    bins and many runs. `sums_SB` are weighted sums of gold.
    """
    n_bins = sums_SB.shape[1]
    total = np.concatenate([np.zeros((sums_SB.shape[0], 1)), np.cumsum(sums_SB, axis=1)], axis=1)
    weight = np.concatenate([np.zeros((sums_SB.shape[0], 1)), np.cumsum(weights_SB, axis=1)], axis=1)
    block_weight = weight[:, None, 1:] - weight[:, :-1, None]  # [s, j, k] for bins j..k
    block_sum = total[:, None, 1:] - total[:, :-1, None]
    held = (block_weight > 0) & (np.arange(n_bins)[:, None] <= np.arange(n_bins))
    mean = np.divide(block_sum, block_weight, out=np.full_like(block_sum, np.inf), where=held)
    low_from = np.minimum.accumulate(mean[:, :, ::-1], axis=2)[:, :, ::-1]  # min over k ≥ i, per j
    low_from = np.where(np.isfinite(low_from), low_from, -np.inf)
    return np.asarray(np.maximum.accumulate(low_from, axis=1).diagonal(axis1=1, axis2=2))
