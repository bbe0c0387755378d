"""verl's reward function, saying "not yet": the trainer of `trueup.adapters.verl` scores the whole batch later.

A file of its own, because verl loads a reward function by path, in workers that need nothing else of trueup.
"""

from __future__ import annotations

from typing import Any

__all__ = ["compute_score"]


def compute_score(data_source: Any, solution_str: str, ground_truth: Any, extra_info: Any, **_: Any) -> float:
    """NaN, until the trainer has put a reward in its place."""
    return float("nan")
