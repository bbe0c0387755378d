"""The results of an experiment as the report reads them: checked once, ordered, and with gaps kept as gaps.

A value that is null, absent or not finite is NaN in an array and None outside; it is drawn as a gap and written as a
dash. Nothing here or below turns it into 0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError

__all__ = [
    "ARM_LABELS",
    "SCENARIO_LABELS",
    "ArmResult",
    "CalibrationResult",
    "Curve",
    "Results",
    "ScenarioResult",
    "plain",
    "read_results",
]

FloatArray: TypeAlias = NDArray[np.float64]

# Order and names of what is known; anything else follows, under its own name.
ARM_LABELS = {
    "gold": "all gold",
    "proxy": "proxy only",
    "gold_budget": "gold on the budget",
    "wmrl": "WMRL",
    "control_variate": "control variate",
    "corrected": "corrected",
    "mse": "MSE shrinkage",
}
SCENARIO_LABELS = {
    "monotone": "Monotone judge",
    "hackable": "Hackable judge",
    "contextual_benign": "Contextual task, benign proxy",
    "contextual_exploit": "Contextual task, exploitable proxy",
}


@dataclass(frozen=True, slots=True)
class Curve:
    """Reward over training steps, mean over seeds with standard errors; vectors of one length, NaN where missing."""

    step: FloatArray
    gold_mean: FloatArray
    gold_se: FloatArray
    proxy_mean: FloatArray
    proxy_se: FloatArray


@dataclass(frozen=True, slots=True)
class ArmResult:
    """What one way of forming rewards reached in one scenario."""

    key: str
    label: str
    final_mean: float | None  # gold reward of the final policy
    final_se: float | None
    gold_queries: float | None  # per run
    steps_to_90: float | None  # None: never
    auc: float | None
    learning_rate: float | None
    sandbox_seconds: float | None  # per run
    curve: Curve


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    key: str
    label: str
    arms: tuple[ArmResult, ...]

    def arm(self, key: str) -> ArmResult | None:
        return next((arm for arm in self.arms if arm.key == key), None)


@dataclass(frozen=True, slots=True)
class CalibrationResult:
    """Means per bin of the raw proxy score; vectors of one length, NaN where missing."""

    key: str
    label: str
    proxy_mean: FloatArray
    calibrated_mean: FloatArray
    gold_mean: FloatArray
    gold_se: FloatArray
    n: FloatArray


@dataclass(frozen=True, slots=True)
class Results:
    scenarios: tuple[ScenarioResult, ...]
    calibrations: tuple[CalibrationResult, ...]
    learning_rates: Mapping[str, Any]
    sandbox: Mapping[str, Any]
    programs: tuple[Mapping[str, Any], ...]
    config: Mapping[str, Any]
    versions: Mapping[str, Any]


def read_results(results: Mapping[str, Any]) -> Results:
    """Check and order a results dict. Raises DataError where it cannot be read as one."""
    scenarios = _section(results, "scenarios", "results")
    if not scenarios:
        raise DataError(
            "results must hold at least one scenario, got none. There is nothing to report. Run the experiment."
        )
    calibration = _section(results, "calibration", "results", optional=True)
    sandbox = _section(results, "sandbox", "results", optional=True)
    programs = sandbox.get("programs") or []
    return Results(
        scenarios=tuple(_scenario(key, scenarios) for key in _ordered(scenarios, SCENARIO_LABELS)),
        calibrations=tuple(_calibration(key, calibration) for key in _ordered(calibration, SCENARIO_LABELS)),
        learning_rates=_section(results, "learning_rates", "results", optional=True),
        sandbox={name: value for name, value in sandbox.items() if name != "programs"},
        programs=tuple(program for program in programs if isinstance(program, Mapping)),
        config=_section(results, "config", "results", optional=True),
        versions=_section(results, "versions", "results", optional=True),
    )


def _scenario(key: str, scenarios: Mapping[str, Any]) -> ScenarioResult:
    arms = _section(scenarios, key, "scenarios")
    return ScenarioResult(
        key=key,
        label=SCENARIO_LABELS.get(key, plain(key)),
        arms=tuple(_arm(name, arms, key) for name in _ordered(arms, ARM_LABELS)),
    )


def _arm(key: str, arms: Mapping[str, Any], scenario: str) -> ArmResult:
    where = f"scenarios.{scenario}"
    arm = _section(arms, key, where)
    final = _section(arm, "final_gold_reward", f"{where}.{key}", optional=True)
    curve = _vectors(
        _section(arm, "curve", f"{where}.{key}", optional=True),
        ("step", "gold_mean", "gold_se", "proxy_mean", "proxy_se"),
        f"{where}.{key}.curve",
    )
    return ArmResult(
        key=key,
        label=ARM_LABELS.get(key, plain(key)),
        final_mean=_number(final.get("mean"), f"{where}.{key}.final_gold_reward.mean"),
        final_se=_number(final.get("se"), f"{where}.{key}.final_gold_reward.se"),
        **{
            name: _number(arm.get(name), f"{where}.{key}.{name}")
            for name in ("gold_queries", "steps_to_90", "auc", "learning_rate", "sandbox_seconds")
        },
        curve=Curve(**curve),
    )


def _calibration(key: str, calibration: Mapping[str, Any]) -> CalibrationResult:
    vectors = _vectors(
        _section(calibration, key, "calibration"),
        ("proxy_mean", "calibrated_mean", "gold_mean", "gold_se", "n"),
        f"calibration.{key}",
    )
    return CalibrationResult(key, SCENARIO_LABELS.get(key, plain(key)), **vectors)


def _vectors(section: Mapping[str, Any], names: tuple[str, ...], where: str) -> dict[str, FloatArray]:
    """The named lists as equally long vectors; an absent list is all NaN."""
    given = {name: section.get(name) or [] for name in names}
    for name, values in given.items():
        if not isinstance(values, (list, tuple)):
            raise _wrong(f"{where}.{name}", "a list", values)
    length = max((len(values) for values in given.values()), default=0)
    out = {}
    for name, values in given.items():
        if values and len(values) != length:
            raise _wrong(f"{where}.{name}", f"of length {length} like its neighbours", len(values))
        numbers = [_number(value, f"{where}.{name}") for value in values] or [None] * length
        out[name] = np.array([math.nan if v is None else v for v in numbers], dtype=np.float64)
    return out


def _number(value: Any, where: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise _wrong(where, "a number or null", value)
    return float(value) if math.isfinite(value) else None


def _section(parent: Mapping[str, Any], key: str, where: str, optional: bool = False) -> Mapping[str, Any]:
    value = parent.get(key) if isinstance(parent, Mapping) else None
    if value is None and optional:
        return {}
    if not isinstance(value, Mapping):
        raise _wrong(f"{where}.{key}", "an object", value)
    return value


def _wrong(where: str, rule: str, got: Any) -> DataError:
    shown = repr(got)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return DataError(f"{where} must be {rule}, got {shown}. No report was written. Check results.json.")


def _ordered(section: Mapping[str, Any], known: Mapping[str, str]) -> list[str]:
    return [key for key in known if key in section] + [str(key) for key in section if key not in known]


def plain(text: object, limit: int = 48) -> str:
    """Any value as one printable line: control characters (illegal in SVG) become spaces, long text is cut."""
    value = text if isinstance(text, str) else json.dumps(text, default=str)
    line = "".join(c if c.isprintable() else " " for c in value)
    return line if len(line) <= limit else line[: limit - 1] + "…"
