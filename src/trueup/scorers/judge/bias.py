"""How much a judge likes length for its own sake."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from trueup.errors import ScorerContractError

__all__ = ["length_coefficient"]


def length_coefficient(
    score_A: ArrayLike, gold_A: ArrayLike, chars_A: ArrayLike, group_A: ArrayLike
) -> float:
    """Slope of (score − gold) on log(characters) within groups, by least squares over anchors.

    What gold pays for length as well is not bias, which is why the score alone is not regressed. Take the estimate of
    earlier steps as `JudgeConfig.length_coefficient`; a coefficient fitted on the rollouts that it corrects would let
    the draw of anchors into their scores. Shapes: (n_anchors,) each; returns 0.0 where no group varies in length.
    """
    score, gold, chars = (np.asarray(a, np.float64) for a in (score_A, gold_A, chars_A))
    _, group = np.unique(np.asarray(group_A), return_inverse=True)
    if not score.shape == gold.shape == chars.shape == group.shape or score.ndim != 1 or (chars < 1).any():
        raise ScorerContractError(
            "score, gold, chars and group must be of one length, chars at least 1, got shapes "
            f"{score.shape}, {gold.shape}, {chars.shape}, {group.shape}. No slope could be fitted."
        )
    y, x = score - gold, np.log(chars)
    n = np.bincount(group)
    for values in (y, x):
        values -= (np.bincount(group, values) / n)[group]
    square = float(x @ x)
    return float(x @ y) / square if square > 0 else 0.0
