"""Page-Hinkley and ADWIN as river ships them, for the comparison in `trueup bench alarms` only."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import MissingExtraError

__all__ = ["available", "river_alarm"]


def available() -> bool:
    return importlib.util.find_spec("river") is not None


def river_alarm(name: str, x: NDArray[np.float64]) -> NDArray[np.int64]:
    """(runs,) time of the first detection in each run of (runs, time), defaults as shipped; -1 for none.

    Args:
        name: `page_hinkley` or `adwin`.
    """
    try:
        from river import drift
    except ImportError:
        raise MissingExtraError("The comparison with Page-Hinkley and ADWIN", "bench", "river") from None
    make: Any = {"page_hinkley": drift.PageHinkley, "adwin": drift.ADWIN}[name]
    first = np.full(x.shape[0], -1, np.int64)
    for i, run in enumerate(x.tolist()):
        detector = make()
        for t, value in enumerate(run):
            detector.update(value)
            if detector.drift_detected:
                first[i] = t
                break
    return first
