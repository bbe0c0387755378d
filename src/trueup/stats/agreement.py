"""How a prediction of gold goes wrong inside a group, where GRPO looks.

GRPO subtracts each group's mean, so an error that all rollouts of a group share costs nothing and an error that
differs within the group is the whole cost. A pooled error mixes the two: with different offsets between groups it
can improve while the error within groups triples. Pairs therefore carry their group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trueup.types import FloatArray, IntArray

__all__ = ["ResidualReport", "within_group_residual"]


@dataclass(frozen=True, slots=True)
class ResidualReport:
    """Residual gold − prediction, taken apart. All in squared units of the score, except `offset` and `slope`.

    `offset` is the mean residual over all pairs. The rest concerns residuals centred within their group: `slope`
    is their regression on the centred prediction (0: right; −1: the prediction carries nothing; −2: reversed),
    `bias2` the part of their mean square that the slope explains (systematic), `variance` the rest.
    """

    n_pairs: int
    n_groups: int  # with at least two pairs; only these have a within-group part
    offset: float | None
    slope: float | None
    bias2: float | None
    variance: float | None


def within_group_residual(prediction_P: FloatArray, gold_P: FloatArray, group_P: IntArray) -> ResidualReport:
    """Take the residuals of scored pairs apart; group_P gives each pair's group (any integers)."""
    n_pairs = int(gold_P.size)
    if n_pairs == 0:
        return ResidualReport(0, 0, None, None, None, None)
    residual = gold_P - prediction_P
    _, index, counts = np.unique(group_P, return_inverse=True, return_counts=True)
    many = counts[index] >= 2
    n_groups = int((counts >= 2).sum())
    offset = float(residual.mean())
    if n_groups == 0:
        return ResidualReport(n_pairs, 0, offset, None, None, None)
    e = (residual - np.bincount(index, residual)[index] / counts[index])[many]
    c = (prediction_P - np.bincount(index, prediction_P)[index] / counts[index])[many]
    dof = float(e.size - n_groups)  # one mean per group was taken out
    spread = float(c @ c)
    slope = float(e @ c) / spread if spread > 0 else None
    bias2 = 0.0 if slope is None else slope * slope * spread / dof
    return ResidualReport(n_pairs, n_groups, offset, slope, bias2, max(float(e @ e) / dof - bias2, 0.0))
