"""The scalars of a step, under names that trainers aggregate as meant.

verl reduces a metric over workers by looking for substrings in its *whole* name, in the order "max", "min",
"sum" or "total", "mean" or "avg", else the mean. A name such as `examined` would be min-reduced by accident.
`check_metric_name` refuses it: the rule must arrive at what the last segment says.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConfigError
from trueup.types import REASONS, StepRecord

__all__ = ["aggregation_of", "check_metric_name", "safe_segment", "step_metrics", "weighted_mean"]

Aggregation = Literal["max", "min", "sum", "mean"]

_SUBSTRINGS: tuple[tuple[str, Aggregation], ...] = (
    ("max", "max"), ("min", "min"), ("sum", "sum"), ("total", "sum"), ("mean", "mean"), ("avg", "mean"),
)  # fmt: skip


def aggregation_of(name: str) -> Aggregation:
    """How verl reduces a metric of this name over workers."""
    return next((how for part, how in _SUBSTRINGS if part in name), "mean")


def check_metric_name(name: str) -> str:
    """The name itself, if substring rules arrive at what its last segment says; a `ConfigError` otherwise."""
    last = name.rsplit("/", 1)[-1]
    meant: Aggregation = last if last in ("max", "min", "sum", "mean") else "mean"  # type: ignore[assignment]
    if aggregation_of(name) != meant:
        part = next(part for part, _ in _SUBSTRINGS if part in name)
        raise ConfigError(
            f"A metric name must not contain {part!r} by accident, got {name!r}. verl would reduce it by "
            f"{aggregation_of(name)} over workers, not by {meant}. Rename it, or pass the segment "
            "through safe_segment."
        )
    return name


def safe_segment(text: str) -> str:
    """A family's name as one segment that no substring rule can read: `minigrid` becomes `m-in-igrid`."""
    segment = "".join(c if c.isalnum() or c in "-_." else "_" for c in text) or "_"
    for part, _ in _SUBSTRINGS:
        while part in segment:
            segment = segment.replace(part, f"{part[0]}-{part[1:]}")
    return segment


def weighted_mean(x: NDArray[np.float64], weight: NDArray[np.float64] | None = None) -> float | None:
    """Mean over what is scored; None where nothing is. Weighted by 1/π it is Hájek's estimate."""
    seen = ~np.isnan(x)
    if not seen.any():
        return None
    return float(np.average(x[seen], weights=None if weight is None else weight[seen]))


def step_metrics(record: StepRecord, *, per_family: bool = False) -> dict[str, float]:
    """Name → value for a metrics sink. What is unknown is left out, never sent as 0 or NaN.

    `trueup/gold/mean` and `trueup/residual/mean` weight each anchor by 1/propensity, so that an active choice
    of anchors does not shift them. Scalars in `record.metrics` keep their names under `trueup/`.
    """
    n = record.proxy.size
    inverse = 1.0 / np.where(record.propensity > 0, record.propensity, 1.0)
    unscored = np.isnan(record.advantage)
    found: dict[str, float | None] = {
        "trueup/proxy/mean": weighted_mean(record.proxy),
        "trueup/calibrated/mean": weighted_mean(record.calibrated),
        "trueup/gold/mean": weighted_mean(record.gold, inverse),
        "trueup/residual/mean": weighted_mean(record.gold - record.calibrated, inverse),
        "trueup/anchor/fraction": float(record.realised_fraction),
        "trueup/anchor/queries": float(record.n_gold_queries),
        "trueup/unscored/fraction": float(unscored.mean()) if n else None,
    }
    # A rollout that nobody asked gold about did not fail.
    asked = {c: r for c, r in enumerate(REASONS, start=1) if r != "not_selected"}
    for code, reason in asked.items():
        failed = (record.proxy_code == code) | (record.anchored & (record.gold_code == code))
        if failed.any():
            found[f"trueup/failure/{reason}"] = float(failed.mean())
    for name, value in record.metrics.items():
        full = name if name.startswith("trueup/") else f"trueup/{name}"
        found.setdefault(full, float(value))
    if per_family:
        found |= _family_metrics(record, inverse)
    return {
        check_metric_name(name): value
        for name, value in found.items()
        if value is not None and math.isfinite(value)
    }


def _family_metrics(record: StepRecord, inverse: NDArray[np.float64]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for index, family in enumerate(record.families):
        here = record.family == index
        at = f"trueup/family/{safe_segment(family)}"
        found[f"{at}/proxy/mean"] = weighted_mean(record.proxy[here])
        found[f"{at}/gold/mean"] = weighted_mean(record.gold[here], inverse[here])
    return found
