"""What the numbers say, in sentences, and what each picture shows for those who cannot see it.

Every sentence is computed from the results and says how sure it is: a difference under two standard errors of itself
is called within noise. Nothing is said about a value that is missing, except that it is.
"""

from __future__ import annotations

import math

import numpy as np

from trueup.report.data import ArmResult, CalibrationResult, FloatArray, Results, ScenarioResult

__all__ = ["alt_text", "calibration_error", "read_calibration", "read_scenario"]

_NBSP = "\u00a0"
_GAP = 0.05  # proxy over gold reward at the end of training from which the proxy is said to have been gamed


def amount(mean: float | None, se: float | None = None) -> str:
    """A reward as text; a dash where there is none. A small error is said to be small, not to be zero."""
    if mean is None:
        return "–"
    if se is None:
        return f"{mean:.3f}"
    error = f"{se:.3f}" if se >= 0.0005 or se == 0 else "<0.001"
    return f"{mean:.3f}{_NBSP}±{_NBSP}{error}"


def read_scenario(scenario: ScenarioResult) -> list[str]:
    """What one scenario shows, in the order in which a reader would ask."""
    sentences = [
        _read_proxy(scenario),
        _read_best(scenario),
        _read_published(scenario),
        _read_speed(scenario),
    ]
    return [s for s in sentences if s] or ["Too little was scored here to say anything."]


def _read_proxy(scenario: ScenarioResult) -> str:
    proxy, gold = scenario.arm("proxy"), scenario.arm("gold")
    if proxy is None or proxy.final_mean is None:
        return ""
    reached = amount(proxy.final_mean, proxy.final_se)
    text = f"Trained on the proxy alone, the policy ends at a gold reward of {reached}"
    if gold is not None and gold.final_mean is not None:
        text += f"; with gold for every rollout, at {amount(gold.final_mean, gold.final_se)}"
    believed = _last(proxy.curve.proxy_mean)
    if believed is not None and believed - proxy.final_mean >= _GAP:
        return f"{text}. The proxy itself still says {believed:.3f}: what was learned is to please it."
    return text + "."


def _read_best(scenario: ScenarioResult) -> str:
    gold = scenario.arm("gold")
    budget = [a for a in scenario.arms if a.key not in ("gold", "proxy") and a.final_mean is not None]
    if not budget:
        return ""
    ranked = sorted(budget, key=lambda a: a.final_mean or 0.0, reverse=True)
    best = ranked[0]
    reached = amount(best.final_mean, best.final_se)
    text = f"Of the arms on a gold budget, {best.label} ends highest, at {reached}"
    close = [a.label for a in ranked[1:] if _verdict(best, a) == "within noise of"]
    if close:
        text += f"; {_list(close)} {'is' if len(close) == 1 else 'are'} within noise of it"
    if gold is not None and gold.gold_queries and best.gold_queries is not None:
        share = best.gold_queries / gold.gold_queries
        text += f". It asked gold {best.gold_queries:,.0f} times, {100 * share:.3g}{_NBSP}% of what all gold needs"
    return text + "."


def _read_published(scenario: ScenarioResult) -> str:
    """The default estimator against the published method and against simply dropping the proxy."""
    ours = scenario.arm("corrected")
    if ours is None or ours.final_mean is None:
        return ""
    parts = []
    for key in ("wmrl", "gold_budget"):
        other = scenario.arm(key)
        if other is not None and other.final_mean is not None:
            parts.append(
                f"{_verdict(ours, other)} {other.label} ({amount(other.final_mean, other.final_se)})"
            )
    return (
        f"{ours.label.capitalize()} ({amount(ours.final_mean, ours.final_se)}) is {_list(parts)}."
        if parts
        else ""
    )


def _read_speed(scenario: ScenarioResult) -> str:
    arms = [a for a in scenario.arms if a.key not in ("gold", "proxy") and a.final_mean is not None]
    reached = [a for a in arms if a.steps_to_90 is not None]
    never = [a.label for a in arms if a.steps_to_90 is None]
    parts = []
    if reached:
        first = min(reached, key=lambda a: a.steps_to_90 or 0.0)
        same = [a.label for a in reached if a.steps_to_90 == first.steps_to_90]
        parts.append(
            f"first to 90{_NBSP}% of the final reward of all gold: {_list(same)}, after {first.steps_to_90:.0f} steps"
        )
    if never:
        parts.append(f"never there: {_list(never)}")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _verdict(a: ArmResult, b: ArmResult) -> str:
    """How a's final reward stands to b's. Seeds are paired, so separate errors overstate the noise: cautious."""
    difference = (a.final_mean or 0.0) - (b.final_mean or 0.0)
    if a.final_se is None or b.final_se is None:
        return "above" if difference > 0 else "below"
    if abs(difference) <= 2 * math.hypot(a.final_se, b.final_se):
        return "within noise of"
    return "above" if difference > 0 else "below"


def calibration_error(said: FloatArray, c: CalibrationResult) -> float | None:
    """Root mean squared distance between what a score says and what gold measures, bins weighted by rollouts."""
    known = np.isfinite(said) & np.isfinite(c.gold_mean) & np.isfinite(c.n)
    total = c.n[known].sum()
    if not total > 0:
        return None
    return float(np.sqrt((c.n[known] * (said[known] - c.gold_mean[known]) ** 2).sum() / total))


def read_calibration(c: CalibrationResult) -> str:
    """One sentence on how far scores are from gold, before and after the map."""
    before, after = calibration_error(c.proxy_mean, c), calibration_error(c.calibrated_mean, c)
    if before is None or after is None:
        return f"{c.label}: too little was scored to compare."
    text = (
        f"{c.label}: a raw score is {before:.3f} from gold (root mean square over bins), "
        f"a calibrated one {after:.3f}."
    )
    known = np.isfinite(c.proxy_mean) & np.isfinite(c.gold_mean) & np.isfinite(c.gold_se)
    order = np.argsort(c.proxy_mean[known], kind="stable")
    gold, se = c.gold_mean[known][order], c.gold_se[known][order]
    if (np.diff(gold) < -2 * np.hypot(se[1:], se[:-1])).any():
        text += " Gold falls somewhere as the raw score rises, and no monotone map can repair that."
    return text


def alt_text(results: Results, kind: str, scenario: str, what: str) -> str:
    """What a panel shows, with its numbers, in one or two sentences."""
    if kind == "reliability":
        c = next(c for c in results.calibrations if c.key == scenario)
        return f"Mean gold against mean score per bin, before and after calibration. {read_calibration(c)}"
    s = next(s for s in results.scenarios if s.key == scenario)
    if kind == "learning":
        ends = [(arm.label, _last(getattr(arm.curve, f"{what}_mean"))) for arm in s.arms]
        listed = "; ".join(f"{label} {amount(end)}" for label, end in ends)
        return f"{s.label}: {what} reward over training steps, one line per arm. At the end: {listed}."
    if kind == "final":
        listed = "; ".join(f"{a.label} {amount(a.final_mean, a.final_se)}" for a in s.arms)
        return f"{s.label}: gold reward of the final policy with standard errors. {listed}."
    unit = "gold queries" if what == "gold_queries" else "measured sandbox seconds"
    values = [(a.label, getattr(a, what)) for a in s.arms]
    listed = "; ".join(f"{label} {'–' if v is None else f'{v:,.4g}'}" for label, v in values)
    return f"{s.label}: {unit} per run. {listed}."


def _last(values: FloatArray) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite[-1]) if finite.size else None


def _list(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
