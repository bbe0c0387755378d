"""Summing up over seeds, with unknown kept unknown."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from trueup.types import FloatArray

__all__ = ["mean_and_se", "none_if_nan"]


def mean_and_se(values_S: Sequence[float] | FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and standard error over the first axis; the error of a single value is NaN (unknown), not 0."""
    values = np.asarray(values_S, dtype=np.float64)
    mean = values.mean(axis=0)
    n = values.shape[0]
    if n < 2:
        return mean, np.full_like(mean, np.nan)
    return mean, np.asarray(values.std(axis=0, ddof=1) / math.sqrt(n))


def none_if_nan(value: float) -> float | None:
    """For files, which hold no NaN."""
    return float(value) if math.isfinite(value) else None
