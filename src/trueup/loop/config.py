"""Settings of an anchored loop. Frozen; unknown keys fail; contradictions are refused here, before any scoring."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trueup.errors import ConfigError
from trueup.loop.guard import GuardConfig

__all__ = ["AnchorConfig", "CalibrationConfig", "Estimator"]

Estimator: TypeAlias = Literal[
    "corrected", "control_variate", "wmrl", "gold", "proxy", "gold_budget", "mse", "adaptive"
]
Scaling: TypeAlias = Literal["predictable", "mean", "std"]

_UNIT_OF: dict[str, Literal["rollout", "group"]] = {"corrected": "rollout", "adaptive": "rollout"}
_SCALING_OF: dict[str, Scaling] = {"corrected": "predictable", "adaptive": "predictable"}


class CalibrationConfig(BaseModel):
    """How the proxy is mapped to expected gold."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = True
    """False keeps the identity map for good."""
    min_pairs: Annotated[int, Field(ge=2)] = 200
    """Anchor pairs before the first fit; until then the map is the identity."""
    refit_every: Annotated[int, Field(ge=1)] = 64
    """New pairs between fits."""
    capacity: Annotated[int, Field(ge=2)] = 5_000
    """Pairs kept, first in first out."""
    by_family: bool = True
    """Fit each family too and use its map as far as the evidence separates it from the pooled one."""
    min_family_pairs: Annotated[int, Field(ge=2)] = 50
    """Pairs of a family before it gets a map of its own."""


class AnchorConfig(BaseModel):
    """All settings of `AnchoredReward`. Fractions are in [0, 1]; scores are in the units of `gold_range`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    estimator: Estimator = "corrected"
    """Which learning signal `step` returns; docs/estimators.md says when each one loses."""
    anchor_fraction: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of rollouts (or of groups) that gold scores, on average over steps."""
    unit: Literal["rollout", "group"] | None = None
    """What is anchored. None: rollouts for `corrected`, whole groups otherwise."""
    propensity: Literal["active", "uniform"] | None = None
    """active: anchor where the proxy is expected to be wrong; uniform: all alike. None: active for rollouts."""
    mode: Literal["train", "shadow"] = "train"
    """shadow: train on gold for everything and score the proxy beside it, to learn what anchoring would do."""
    schedule: Literal["constant", "front_loaded", "adaptive"] = "constant"
    """front_loaded: the first `front_steps` at 100 %, then a constant rate with the same total over `n_steps`.
    adaptive: the fraction that buys the least variance per cost, by `cost_ratio`, between `fraction_range`; starts at
    `anchor_fraction` and moves as residuals are seen."""
    cost_ratio: Annotated[float, Field(gt=0)] = 0.05
    """Cost of generating a rollout and scoring it with the proxy, over the cost of one gold score; for adaptive."""
    fraction_range: tuple[float, float] = (0.02, 0.5)
    """Floor and ceiling of the adaptive fraction."""
    n_steps: Annotated[int, Field(ge=1)] | None = None
    """Length of the run; needed by front_loaded."""
    front_steps: Annotated[int, Field(ge=1)] = 1
    """Steps at 100 % for front_loaded."""
    min_anchors_per_step: Annotated[int, Field(ge=0)] = 1
    """Floor on anchored units per step. With small steps it can exceed `anchor_fraction`; 0 lets steps go without."""
    max_anchors_per_step: Annotated[int, Field(ge=1)] | None = None
    """Cap on anchored units per step, for instance the sandbox's slots."""
    seed: int = 0
    """Anchors are a pure function of (seed, step, ids)."""
    gold_range: tuple[float, float] = (0.0, 1.0)
    """Declared range of gold scores; a score outside it raises."""
    proxy_range: tuple[float, float] | None = None
    """Declared range of proxy scores. None: as gold."""
    scaling: Scaling | None = None
    """predictable: centred, divided by the spread of earlier steps; mean: centred only; std: divided by the group's
    own spread, as GRPO. None: predictable for `corrected`, std otherwise."""
    std_eps: Annotated[float, Field(gt=0)] = 1e-4
    """Added to the group's standard deviation."""
    coefficient: float | None = None
    """λ, how much of the proxy to use. None: 1 for `corrected`, estimated for `control_variate`."""
    correction_clip: Annotated[float, Field(gt=0)] | None = None
    """Bound on |(r − λf̂)/π|, in score units. Less variance at small budgets, at the price of a bias. None: off."""
    uniform_mix: Annotated[float, Field(gt=0, le=1)] = 0.3
    """Uniform share of active propensities; every π stays above uniform_mix · (anchors of the step / rollouts)."""
    scale_half_life: Annotated[float, Field(gt=0)] = 20.0
    """Steps after which a step's spread counts half in the predictable scale."""
    scale_floor_fraction: Annotated[float, Field(gt=0)] = 0.1
    """Floor of the predictable scale, as a fraction of the width of `gold_range`."""
    adaptive_horizon: Annotated[float, Field(gt=0)] = 30.0
    """Steps over which a bias of the learning signal adds up while noise averages out, for `adaptive`."""
    calibration: CalibrationConfig = CalibrationConfig()
    guard: GuardConfig | None = None
    """Drop a family's proxy from the update unless there is evidence for it (`loop/guard.py`). None: no guard."""

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise ConfigError(_explain(error)) from None

    @model_validator(mode="after")
    def _check_ranges(self) -> AnchorConfig:
        for name in ("gold_range", "proxy_range"):
            limits = getattr(self, name)
            if limits is not None and not (limits[0] < limits[1] and all(map(math.isfinite, limits))):
                raise ValueError(f"{name} must be two finite numbers, the lower one first, got {limits}")
        return self

    @model_validator(mode="after")
    def _check_combinations(self) -> AnchorConfig:
        if self.estimator in ("corrected", "adaptive") and self.scaling == "std":
            raise ValueError(
                f"scaling must be 'predictable' or 'mean' for estimator {self.estimator!r}, got 'std'. Dividing by the "
                "group's own spread is not linear, so corrected rewards would be biased. "
                "Leave scaling out, or use estimator 'control_variate'"
            )
        if self.estimator == "adaptive" and self.unit == "group":
            raise ValueError(
                "unit must be 'rollout' for estimator 'adaptive', got 'group'. Its evidence comes from rollouts spread "
                "over groups. Leave unit out"
            )
        if self.estimator in ("control_variate", "wmrl", "gold_budget") and self.unit == "rollout":
            raise ValueError(
                f"unit must be 'group' for estimator {self.estimator!r}, got 'rollout'. It compares whole groups. "
                "Leave unit out, or use estimator 'corrected'"
            )
        if self.guard is not None and self.estimator in ("gold", "gold_budget", "proxy"):
            raise ValueError(
                f"guard must be left out for estimator {self.estimator!r}, got one. Without both scores there is "
                "no evidence to guard by. Use an anchored estimator"
            )
        low, high = self.fraction_range
        if not 0 < low <= high <= 1:
            raise ValueError(
                f"fraction_range must be two fractions in (0, 1], the lower one first, got {self.fraction_range}"
            )
        if self.mode == "shadow" and self.estimator == "proxy":
            raise ValueError(
                "mode must be 'train' for estimator 'proxy', got 'shadow'. Shadow mode trains on gold. Leave "
                "estimator out"
            )
        if self.schedule == "front_loaded" and self.n_steps is None:
            raise ValueError(
                "n_steps must be given with schedule 'front_loaded', got None. The later rate depends on how many "
                "steps share the budget. Give the number of steps of the run"
            )
        return self

    @property
    def scores_all_with_gold(self) -> bool:
        return self.estimator == "gold" or self.mode == "shadow"

    @property
    def asks_proxy(self) -> bool:
        return self.mode == "shadow" or self.estimator not in ("gold", "gold_budget")

    @property
    def learns(self) -> bool:
        """Whether steps have both scores, so that there is something to learn from them."""
        return self.asks_proxy and self.estimator != "proxy"

    @property
    def anchor_unit(self) -> Literal["rollout", "group"]:
        return self.unit or _UNIT_OF.get(self.estimator, "group")

    @property
    def is_active(self) -> bool:
        if self.propensity is None:
            return self.anchor_unit == "rollout"
        return self.propensity == "active"

    @property
    def advantage_scaling(self) -> Scaling:
        if self.scaling is not None:
            return self.scaling
        return "predictable" if self.anchor_unit == "rollout" else _SCALING_OF.get(self.estimator, "std")

    @property
    def width(self) -> float:
        """Width of the gold range, the unit of all relative thresholds."""
        return self.gold_range[1] - self.gold_range[0]


def _explain(error: ValidationError) -> str:
    """pydantic's report as one line per fault, in this project's form."""
    lines = []
    for fault in error.errors(include_url=False):
        where = ".".join(str(part) for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            known = ", ".join(AnchorConfig.model_fields)
            lines.append(f"{where} is not a setting. It would be ignored. Known settings: {known}.")
        elif fault["type"] == "value_error":
            lines.append(str(fault["ctx"]["error"]) + ".")
        else:
            rule = fault["msg"].removeprefix("Input should be ")
            lines.append(
                f"{where} must be {rule}, got {fault['input']!r}. No step could be planned. Correct it."
            )
    return " ".join(lines)
