"""How far a proxy can be believed, case by case: the figures to look at before it scores a whole run.

Arrays in, a report out. What could not be scored is counted apart and enters no mean.

- status confusion: pass, part, fail or unscored, proxy against gold;
- mean absolute error of the score and expected calibration error (Naeini et al. 2015, ten bins of equal width,
  weighted by their number);
- AUROC of the proxy for "gold passes in full", over all cases pooled;
- Kendall's τ-b within groups: the agreement that a group-centred update sees (`stats.ranking`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata

from trueup.stats.ranking import rank_groups
from trueup.types import BoolArray, FloatArray

__all__ = ["STATUSES", "Fidelity", "auroc", "calibration_error", "measure_fidelity", "status_of"]

STATUSES = ("pass", "part", "fail", "unscored")


@dataclass(frozen=True, slots=True)
class Fidelity:
    """None where it is undefined: no case with both scores, no group with a difference, one class alone."""

    n_cases: int
    n_both: int  # scored by both
    proxy_unscored: int
    gold_unscored: int
    confusion: dict[str, dict[str, int]]  # proxy's status -> gold's status -> cases
    mean_proxy: float | None
    mean_gold: float | None
    mae: float | None  # in units of the score
    ece: float | None  # likewise
    auroc: float | None
    tau_within_group: float | None  # mean over the groups where it is defined
    n_groups_ranked: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def status_of(scores: FloatArray, low: float, high: float) -> list[str]:
    """Status by the nearer end: a pass within 1/8 of the range from the top, a fail within 1/8 from the bottom."""
    margin = (high - low) / 8
    status = np.select(
        [np.isnan(scores), scores >= high - margin, scores <= low + margin],
        ["unscored", "pass", "fail"],
        "part",
    )
    return [str(s) for s in status]


def auroc(score: FloatArray, positive: BoolArray) -> float | None:
    """Chance that a positive case is scored above a negative one, ties half; None with one class alone."""
    n_positive = int(positive.sum())
    n_negative = positive.size - n_positive
    if n_positive == 0 or n_negative == 0:
        return None
    ranks = rankdata(score)[positive].sum()
    return float((ranks - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))


def calibration_error(score: FloatArray, gold: FloatArray, low: float, high: float) -> float | None:
    """Mean over cases of |mean gold − mean score| of the case's bin, ten bins between low and high."""
    if score.size == 0:
        return None
    bins = np.clip(((score - low) / (high - low) * 10).astype(np.int64), 0, 9)
    gap = np.bincount(bins, gold - score, 10)
    return float(np.abs(gap).sum() / score.size)


def measure_fidelity(
    proxy: ArrayLike, gold: ArrayLike, group: Sequence[Any], limits: tuple[float, float] = (0.0, 1.0)
) -> Fidelity:
    """The report over aligned cases.

    Args:
        proxy, gold: (cases,) scores, NaN where unscored.
        group: (cases,) the prompt that a case belongs to.
        limits: lowest and highest score.
    """
    proxy_P, gold_P = np.asarray(proxy, np.float64), np.asarray(gold, np.float64)
    low, high = limits
    confusion = {a: dict.fromkeys(STATUSES, 0) for a in STATUSES}
    for a, b in zip(status_of(proxy_P, low, high), status_of(gold_P, low, high), strict=True):
        confusion[a][b] += 1
    both = ~(np.isnan(proxy_P) | np.isnan(gold_P))
    p, g = proxy_P[both], gold_P[both]
    codes = {name: i for i, name in enumerate(dict.fromkeys(group))}
    tau = rank_groups(p, g, np.array([codes[name] for name in group], np.int64)[both]).tau
    tau = tau[np.isfinite(tau)]
    some = bool(p.size)
    return Fidelity(
        n_cases=int(proxy_P.size),
        n_both=int(both.sum()),
        proxy_unscored=int(np.isnan(proxy_P).sum()),
        gold_unscored=int(np.isnan(gold_P).sum()),
        confusion=confusion,
        mean_proxy=float(p.mean()) if some else None,
        mean_gold=float(g.mean()) if some else None,
        mae=float(np.abs(p - g).mean()) if some else None,
        ece=calibration_error(p, g, low, high),
        auroc=auroc(p, g >= high),
        tau_within_group=float(tau.mean()) if tau.size else None,
        n_groups_ranked=int(tau.size),
    )
