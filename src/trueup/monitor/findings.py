"""What the monitor says: a finding with the evidence it rests on, and the settings of its checks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from trueup.errors import ConfigError

__all__ = ["KINDS", "Finding", "FindingKind", "MonitorConfig", "plain"]

FindingKind: TypeAlias = Literal[
    "drift", "rank_reversal", "exploit", "over_optimisation", "phase_change", "miscalibration", "coverage"
]
KINDS: tuple[str, ...] = (
    "drift", "rank_reversal", "exploit", "over_optimisation", "phase_change", "miscalibration", "coverage",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong in one family, from which step on it could be known, and why it is believed."""

    kind: FindingKind
    family: str
    since_step: int  # the step at which the evidence was complete, not the (unknown) one at which it began
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "since_step": self.since_step, "evidence": plain(dict(self.evidence))}


@dataclass(frozen=True, slots=True)
class MonitorConfig:
    """Levels and limits of the checks. Scores count in units of gold's range within the family."""

    alpha: float = 0.01  # chance of any false alarm of one kind over the log, all families together
    confidence: float = 0.95  # of reported intervals and upper bounds
    horizon: int | None = None  # groups per family over which alpha holds; None: the groups logged
    drift_band: float = 0.03  # tolerated change of the mean residual
    drop_margin: float = 0.05  # tolerated fall of gold from its best
    agreement_margin: float = 0.1  # tolerated fall of the within-group AUROC from its best
    calibration_tolerance: float = 0.1  # tolerated expected calibration error
    exploit_limit: float | None = None  # largest accepted share of groups whose favourite is gold's worst
    min_pairs: int = 200  # fewer pairs: too few to calibrate
    min_groups: int = 30  # fewer groups with two scored rollouts: too few to rank
    max_anchor_age: int = 50  # steps since the newest anchor
    cost_ratio: float = 0.05  # cost of generating and proxy-scoring a rollout over that of its gold
    seed: int = 0  # of the bootstrap and of thinning

    def __post_init__(self) -> None:
        for name in ("alpha", "confidence"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise ConfigError(
                    f"{name} must lie between 0 and 1, got {getattr(self, name)}. No level follows from it."
                )
        for name in ("drift_band", "drop_margin", "agreement_margin", "calibration_tolerance", "cost_ratio"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ConfigError(
                    f"{name} must be at least 0, got {getattr(self, name)}. Give for instance 0.05."
                )
        if self.exploit_limit is not None and not 0.0 < self.exploit_limit < 1.0:
            raise ConfigError(
                f"exploit_limit must lie between 0 and 1, got {self.exploit_limit}. A rate of 0 cannot be "
                "tested. Give the largest rate you accept, for instance 0.02."
            )
        if self.horizon is not None and self.horizon < 1:
            raise ConfigError(
                f"horizon must be at least 1 group, got {self.horizon}. Leave it out to use the log's."
            )


def plain(value: Any) -> Any:
    """Plain JSON data: NaN and infinity become null."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return value
