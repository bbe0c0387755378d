"""Composing hard verdicts with a soft score, so that no soft score buys back a violation.

    infeasible          a · c          c in [0, 1): partial credit, see `obligation_credit`
    feasible            b + (1 − b) · g(soft)      g monotone into [0, 1]
    could not be told   unscored

A group's advantage is the reward minus the group's mean, so it is not enough that every infeasible reward
lies below every feasible one: among many bad plans the least bad lies above the mean. What can be had is:

**In a group of G rollouts with at least one feasible one, no infeasible rollout has a positive centred
advantage if a ≤ b / (G − 1).** Its reward is at most a, the others are at least 0 and one is at least b, so
the mean is at least (a + b) / G ≥ a. Other settings are refused unless `allow_buy_back` says that they are
meant.

The trainer must not divide by the group's own spread: a group of feasible plans that differ by a thousandth
would get advantages of ±1 for the soft score's noise. `soft_advantages` divides by one constant instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

from trueup.errors import ConfigError
from trueup.types import Score, Verdict, VerifierResult
from trueup.verifiers.base import Report, obligation_credit

__all__ = [
    "Hard",
    "SoftMap",
    "fit_soft_map",
    "gate",
    "largest_partial_credit",
    "soft_advantages",
    "weighted_sum",
]

FloatArray: TypeAlias = NDArray[np.float64]
Hard: TypeAlias = "Report | Verdict | VerifierResult | str | Sequence[Verdict | VerifierResult | str]"
_UNDECIDED = frozenset({Verdict.UNKNOWN, Verdict.ERROR})


@dataclass(frozen=True, slots=True)
class SoftMap:
    """A monotone map from a soft score to [0, 1]: straight lines between knots, flat outside. Without knots
    it is ½ + ½·x/(1 + |x|), which needs no data and is only as good as the score's own scale."""

    x: tuple[float, ...] = ()
    y: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        x, y = np.asarray(self.x), np.asarray(self.y)
        ordered = x.shape == y.shape and bool(np.all(np.diff(x) > 0) and np.all(np.diff(y) >= 0))
        if not ordered or not bool(np.all(np.isfinite(x)) and np.all((y >= 0) & (y <= 1))):
            raise ConfigError(
                "A soft map must have rising x and y that never falls, inside [0, 1], got other knots. A "
                "better plan could be paid less. Use fit_soft_map."
            )

    def __call__(self, score: float) -> float:
        if not self.x:
            return 0.5 + 0.5 * score / (1.0 + abs(score))
        return float(np.interp(score, self.x, self.y))


def fit_soft_map(scores: ArrayLike, gold: ArrayLike | None = None, n_knots: int = 64) -> SoftMap:
    """Fit g on a calibration set of n soft scores.

    Without `gold`: the scores' own distribution function (mid-ranks at quantiles), so that a positive affine
    change of the scores, refitted, changes no reward. With `gold` (n values): the isotonic regression of gold
    on the score, stretched to [0, 1] over its range. Non-finite pairs are left out; fewer than two distinct
    scores raise `ConfigError`.
    """
    s = np.asarray(scores, np.float64).ravel()
    g = None if gold is None else np.asarray(gold, np.float64).ravel()
    if g is not None and g.shape != s.shape:
        raise ConfigError(
            f"gold must have one value per score, got {g.size} for {s.size}. Nothing was fitted."
        )
    keep = np.isfinite(s) if g is None else np.isfinite(s) & np.isfinite(g)
    s = s[keep]
    distinct, inverse, counts = np.unique(s, return_inverse=True, return_counts=True)
    if distinct.size < 2:
        raise ConfigError(
            f"A soft map must be fitted on at least two distinct finite scores, got {distinct.size}. It "
            "could not order anything. Collect more."
        )
    if g is None:
        y = (np.cumsum(counts) - counts / 2) / s.size
    else:
        means = np.bincount(inverse, g[keep]) / counts
        y = isotonic_regression(means, weights=counts).x
        span = y[-1] - y[0]
        y = (y - y[0]) / span if span > 0 else np.full_like(y, 0.5)
    if distinct.size > n_knots:
        chosen = np.unique(np.round(np.linspace(0, distinct.size - 1, n_knots)).astype(int))
        distinct, y = distinct[chosen], y[chosen]
    return SoftMap(tuple(distinct.tolist()), tuple(np.clip(y, 0.0, 1.0).tolist()))


def largest_partial_credit(b: float, group_size: int) -> float:
    """The largest `a` for which no infeasible rollout can get a positive advantage beside a feasible one."""
    return b if group_size <= 1 else b / (group_size - 1)


def gate(
    hard: Hard,
    soft: float | Score | None = None,
    *,
    a: float | None = None,
    b: float = 0.5,
    group_size: int = 8,
    soft_map: SoftMap | None = None,
    allow_buy_back: bool = False,
) -> Score:
    """The reward of one rollout. `hard` is a report, one verdict or its name, or a list of verdicts, names
    or `VerifierResult`s; `soft` is any float or `Score`, or None for verifiers alone (feasible is then 1).

    `a` defaults to b / group_size, strictly inside the bound of the module's guarantee. Any hard check that
    is unknown or in error leaves the rollout unscored, and so does a feasible one whose soft score is
    missing, NaN or infinite. A bare name counts as a prohibition of weight 1. No passing check at all proves
    nothing and is unscored. Raises `ConfigError` for settings under which a violation could pay.
    """
    a = _check_settings(a, b, group_size, allow_buy_back)
    results = _results(hard)
    verdicts = {r.verdict for r in results if r.hard}
    if verdicts & _UNDECIDED:
        which = ", ".join(r.name for r in results if r.hard and r.verdict in _UNDECIDED)
        return Score.unscored("verifier_unknown", which)
    if Verdict.FAIL in verdicts:
        return Score(a * obligation_credit(results))
    if Verdict.PASS not in verdicts:
        return Score.unscored("verifier_unknown", "no hard check applied, so nothing was verified")
    if soft is None:
        return Score(1.0)
    value = _soft_value(soft)
    if isinstance(value, Score):
        return value
    g = (soft_map or SoftMap())(value)
    return Score(b + (1.0 - b) * min(max(g, 0.0), 1.0))


def weighted_sum(
    hard: Hard, soft: float | Score, *, weight_hard: float = 1.0, weight_soft: float = 1.0
) -> Score:
    """For comparison only: weighted share of hard checks passed, plus the soft score. A soft score that can
    move by more than `weight_hard` × one check's share buys that check back, as docs/rewards.md shows."""
    results = [r for r in _results(hard) if r.hard and r.verdict is not Verdict.NOT_APPLICABLE]
    if not results or any(r.verdict in _UNDECIDED for r in results):
        return Score.unscored("verifier_unknown")
    value = _soft_value(soft)
    if isinstance(value, Score):
        return value
    passed = sum(r.weight for r in results if r.verdict is Verdict.PASS) / sum(r.weight for r in results)
    return Score(weight_hard * passed + weight_soft * value)


def soft_advantages(rewards_PG: ArrayLike, scale: float) -> FloatArray:
    """Centred advantages over a constant scale: (r − mean of its group) / scale, NaN where unscored.

    `rewards_PG` is groups × rollouts with NaN for unscored; `scale` > 0 is one number for the whole run (say
    1 − b, or a slow average of earlier steps' spread). In a group of feasible plans every |advantage| is then
    at most (1 − b) / scale, however small the group's own spread is. Raises `ConfigError` for a bad scale.
    """
    rewards = np.asarray(rewards_PG, np.float64)
    if rewards.ndim != 2 or not (scale > 0 and math.isfinite(scale)):
        raise ConfigError(
            f"soft_advantages needs a groups × rollouts array and a finite scale above 0, got shape "
            f"{rewards.shape} and scale {scale}. Pass the grid of one step and a constant."
        )
    scored = np.isfinite(rewards)
    counts = scored.sum(axis=1, keepdims=True)
    mean = np.where(scored, rewards, 0.0).sum(axis=1, keepdims=True) / np.maximum(counts, 1)
    out: FloatArray = np.where(scored, (rewards - mean) / scale, np.nan)
    return out


def _check_settings(a: float | None, b: float, group_size: int, allow_buy_back: bool) -> float:
    whole = isinstance(group_size, (int, np.integer)) and not isinstance(group_size, bool)
    if not whole or group_size < 1:
        raise ConfigError(f"group_size must be a whole number from 1, got {group_size!r}. Mend it.")
    if not 0.0 < b <= 1.0:
        raise ConfigError(
            f"b must be in (0, 1], got {b}. It is what a feasible plan earns at least. Try 0.5."
        )
    if a is None:
        return b / max(group_size, 2)
    if not 0.0 <= a <= 1.0:
        raise ConfigError(f"a must be in [0, 1], got {a}. It is what an infeasible plan earns at most.")
    limit = largest_partial_credit(b, group_size)
    if not allow_buy_back and a > limit * (1 + 1e-12):
        raise ConfigError(
            f"a must be at most b / (group_size - 1) = {limit:.6g}, got {a}. An infeasible rollout could "
            "get a positive advantage beside a feasible one. Lower a, raise b, or say allow_buy_back=True."
        )
    return float(a)


def _soft_value(soft: float | Score) -> float | Score:
    """The number, or why there is none."""
    if isinstance(soft, Score):
        return soft if soft.value is None else float(soft.value)
    try:
        value = float(soft)
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"soft must be a float or Score, got {soft!r}. It cannot order plans.") from None
    return value if math.isfinite(value) else Score.unscored("non_finite", f"soft score {value}")


def _results(hard: Hard) -> Sequence[VerifierResult]:
    if isinstance(hard, Report):
        return hard.results
    if isinstance(hard, VerifierResult):
        return (hard,)
    if isinstance(hard, str):  # a Verdict is one too
        return (_named(hard, 0),)
    return tuple(h if isinstance(h, VerifierResult) else _named(h, i) for i, h in enumerate(hard))


def _named(name: Any, index: int) -> VerifierResult:
    try:
        return VerifierResult(f"check {index}", Verdict(name))
    except ValueError:
        raise ConfigError(
            f"A hard verdict must be one of {', '.join(Verdict)}, got {name!r}. Reading it as pass or fail "
            "would be a guess. Use a Verdict."
        ) from None
