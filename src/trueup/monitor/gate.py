"""May the candidate replace the baseline? Non-inferiority on held-out gold, decided as early as it can be.

Two one-sided e-processes on the same differences, each at level alpha:
- against "the candidate is worse by the margin or more": if it reaches 1/alpha, the gate is passed;
- against "the candidate is not worse by the margin": if it reaches 1/alpha, the gate is not passed.
Neither: cannot tell yet. One may look after every group and stop at the first answer.

Where both logs hold the same groups, differences are taken within a group, which removes the variance of
prompts; otherwise the i-th group of one meets the i-th of the other in a seeded random order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConfigError, DataError
from trueup.monitor.findings import plain
from trueup.monitor.table import PairTable
from trueup.stats.sequential import betting_log_e, running_mean_bounds

__all__ = ["GateResult", "gate", "group_means"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GateResult:
    """Candidate minus baseline in gold's unit; `interval` is the last of its confidence sequence."""

    verdict: Literal["passed", "failed", "undecided"]
    difference: float
    interval: tuple[float, float]
    margin: float
    alpha: float
    e_non_inferior: float
    e_inferior: float
    decided_after: int | None  # groups compared when the answer was known
    n_groups: int
    paired: bool

    @property
    def exit_code(self) -> int:
        return {"passed": 0, "failed": 1, "undecided": 3}[self.verdict]

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = plain({name: getattr(self, name) for name in self.__slots__})
        return out


def group_means(table: PairTable, source: str) -> dict[str, float]:
    """Group → mean gold, over all its steps; groups without gold are left out."""
    seen = ~np.isnan(table.gold)
    if not seen.any():
        raise DataError(
            f"{source} must have gold for at least one rollout, got none. Nothing can be compared."
        )
    group = table.group[seen]
    total = np.bincount(group, weights=table.gold[seen], minlength=len(table.groups))
    count = np.bincount(group, minlength=len(table.groups))
    return {name: float(total[i] / count[i]) for i, name in enumerate(table.groups) if count[i]}


def gate(
    baseline: dict[str, float],
    candidate: dict[str, float],
    *,
    margin: float,
    alpha: float = 0.05,
    low: float = 0.0,
    high: float = 1.0,
    seed: int = 0,
) -> GateResult:
    """Compare mean gold by group.

    Args:
        baseline, candidate: group → mean gold of its rollouts, within [low, high].
        margin: how much worse the candidate may be, in gold's unit; above 0.
        alpha: chance of passing a candidate that is worse by the margin, and of failing one that is not.
        seed: of the order in which groups are compared, fixed before any gold is seen.
    """
    if not 0.0 < alpha < 1.0 or not 0.0 < margin < high - low:
        raise ConfigError(
            f"alpha must lie in (0, 1) and margin in (0, {high - low:g}), got {alpha} and {margin}. "
            "Without a margin no amount of data shows that nothing was lost. Give for instance 0.02."
        )
    for name, golds in (("baseline", baseline), ("candidate", candidate)):
        if not golds:
            raise DataError(
                f"The {name} must have gold for at least one group, got none. Nothing was compared."
            )
        outside = [v for v in golds.values() if not low - 1e-9 <= v <= high + 1e-9]
        if outside:
            raise DataError(
                f"The {name}'s gold must lie in [{low:g}, {high:g}], got {outside[0]:g}. The test's "
                "level rests on the range. Give it with --gold-range."
            )
    shared = sorted(baseline.keys() & candidate.keys())
    paired = len(shared) >= 0.5 * min(len(baseline), len(candidate))
    rng = np.random.default_rng(seed)
    if paired:
        order = [shared[i] for i in rng.permutation(len(shared))]
        d = np.array([candidate[g] - baseline[g] for g in order])
    else:
        n = min(len(baseline), len(candidate))
        b = rng.permutation(np.array([baseline[g] for g in sorted(baseline)]))[:n]
        c = rng.permutation(np.array([candidate[g] for g in sorted(candidate)]))[:n]
        d = c - b
    return _decide(d / (high - low), high - low, margin, alpha, paired)


def _decide(d: FloatArray, width: float, margin: float, alpha: float, paired: bool) -> GateResult:
    m = margin / width
    good = betting_log_e((d + m) / (1 + m))
    bad = betting_log_e((-d - m) / (1 + m))
    level = -np.log(alpha)
    passed = np.flatnonzero(good >= level)
    failed = np.flatnonzero(bad >= level)
    first_pass = int(passed[0]) if passed.size else d.size
    first_fail = int(failed[0]) if failed.size else d.size
    verdict: Literal["passed", "failed", "undecided"] = "undecided"
    if min(first_pass, first_fail) < d.size:
        verdict = "passed" if first_pass < first_fail else "failed"
    low, high = running_mean_bounds(d, alpha, low=-1.0, high=1.0)
    return GateResult(
        verdict, float(d.mean()) * width, (float(low[-1]) * width, float(high[-1]) * width), margin, alpha,
        float(np.exp(min(good.max(), 700.0))), float(np.exp(min(bad.max(), 700.0))),
        None if verdict == "undecided" else min(first_pass, first_fail) + 1, int(d.size), paired,
    )  # fmt: skip
