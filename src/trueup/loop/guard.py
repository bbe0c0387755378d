"""The guard: a family's proxy takes part in an update only while there is evidence that it may.

It fails closed. A family starts closed and opens on evidence; it closes on an alarm and opens again on *fresh*
evidence only (hysteresis). While a family is closed its proxy scores are dropped from the update (unscored with the
reason `guarded`, never zero), its rollouts are anchored at the ceiling instead of the usual fraction, and the anchored
ones train on gold alone. What a step does is decided by evidence from earlier steps, so the estimators stay unbiased.

What closes a family, each with its evidence in the record:

* `coverage`: too few recent anchors;
* `residual`: the step means of gold − calibrated proxy leave ±band. A restarting betting e-process, so the chance of
  any false alarm within `horizon_steps` is at most alpha (`stats.sequential`). The unit is the step, because rollouts
  of one step share a policy and their residuals are not independent;
* `exploit`: the proxy's favourites of their groups turn out worst, more often than `exploit_limit` (betting e-process
  on the rate);
* `unscored`: too many proxy scores of this step are missing;
* `proxy_version`: the scorer says that it is another one than before.

Opening is not a sequential test: it asks for a number of fresh anchors and for intervals of about 95 % that lie inside
the limits. A wrong opening costs until the next alarm; a wrong closing costs gold only.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from trueup.stats.sequential import RestartingAlarm, clopper_pearson, restarting_rate_log_e
from trueup.types import BoolArray, FloatArray, IntArray

__all__ = ["Guard", "GuardConfig", "StepEvidence"]


class GuardConfig(BaseModel):
    """Limits of the guard. Scores are in units of the gold range's width."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    residual_band: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Tolerated mean residual, as a fraction of the gold range."""
    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Chance of a false alarm of one family within the horizon, residual and exploit together."""
    horizon_steps: Annotated[int, Field(ge=1)] = 500
    """Steps over which alpha is stated."""
    exploit_limit: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Tolerated share of groups whose proxy favourite is gold's worst."""
    exploit_margin: Annotated[float, Field(gt=0, le=1)] = 0.5
    """With single rollouts anchored: a favourite counts as an exploit if gold is this far below the proxy."""
    min_anchors: Annotated[int, Field(ge=1)] = 32
    """Anchors in the evidence on which a closed family opens."""
    fresh_steps: Annotated[int, Field(ge=2)] = 4
    """Steps in that evidence. Only the newest that suffice are looked at, so that a proxy that has healed is not
    held to what it did before, and all of them are newer than the closing."""
    coverage_window: Annotated[int, Field(ge=1)] = 20
    """Steps in which an open family that has rollouts must have been anchored at least once."""
    max_unscored_fraction: Annotated[float, Field(gt=0, le=1)] = 0.3
    """Share of a family's proxy scores in one step that may be missing."""
    ceiling: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Anchor fraction of a closed family."""


@dataclass(frozen=True, slots=True)
class StepEvidence:
    """What the guard learns from one step. Vectors are flat over rollouts; NaN is unscored."""

    family_P: IntArray
    group_P: IntArray
    proxy_asked_P: BoolArray
    calibrated_P: FloatArray
    gold_P: FloatArray
    anchored_P: BoolArray
    propensity_P: FloatArray
    width: float
    whole_groups: bool


@dataclass
class _Family:
    """One family's gate and the evidence since it last changed."""

    closed: bool = True
    reason: str = "coverage"
    since_step: int = 0
    idle_steps: int = 0
    # One row per step with anchors since the last change: anchors, mean residual, share of exploits among the
    # favourites (NaN without any), favourites, exploits; tied favourites count in parts.
    steps: list[tuple[float, float, float, float, float]] = field(default_factory=list)

    def change(self, closed: bool, reason: str, step: int) -> None:
        self.closed, self.reason, self.since_step = closed, reason, step
        self.idle_steps, self.steps = 0, []


class Guard:
    """Gates of all families. `closed` reads, `observe` learns; the loop calls them in this order."""

    OPENING_CONFIDENCE = 0.9  # of the exploit rate's upper bound
    RESIDUAL_BOUND = 0.5  # step means are clipped to it; a narrower range lets the bets be bolder
    MAX_STREAM = 512  # step means kept for an alarm; older ones have lost their say long before

    def __init__(self, config: GuardConfig) -> None:
        self.config = config
        self._families: dict[int, _Family] = {}
        self._alarms: dict[int, RestartingAlarm] = {}
        self._version: str | None = None

    def _get(self, code: int) -> _Family:
        return self._families.setdefault(code, _Family())

    def copy(self) -> Guard:
        """An independent copy; a family's rows are shared, because they are replaced and not written to."""
        other = Guard(self.config)
        other._families = {code: copy(family) for code, family in self._families.items()}
        other._alarms = {code: copy(alarm) for code, alarm in self._alarms.items()}
        other._version = self._version
        return other

    def closed(self, family_P: IntArray) -> BoolArray:
        """Which rollouts belong to a family whose proxy is not trusted at present."""
        shut = np.zeros(family_P.shape, np.bool_)
        for code in np.unique(family_P).tolist():
            family = self._families.get(code)
            if family is None or family.closed:  # nothing is known of it yet
                shut |= family_P == code
        return shut

    def reasons(self, names: list[str]) -> list[str]:
        """One line per closed family, for the record."""
        return [
            f"{names[code]}: proxy left out of the update since step {f.since_step} ({f.reason})"
            for code, f in sorted(self._families.items())
            if f.closed
        ]

    def lost_now(self, family_P: IntArray, asked_P: BoolArray, proxy_P: FloatArray) -> list[int]:
        """Families of which too many proxy scores are missing in this very step."""
        lost = []
        for code in np.unique(family_P[asked_P]).tolist():
            mine = asked_P & (family_P == code)
            if np.isnan(proxy_P[mine]).mean() > self.config.max_unscored_fraction:
                lost.append(code)
        return lost

    def version_changed(self, version: str | None) -> bool:
        """Whether the proxy says it is another one than at the last observed step."""
        return self._version is not None and version is not None and version != self._version

    def observe(self, step: int, evidence: StepEvidence, lost: list[int], version: str | None) -> list[str]:
        """Learn from a finished step; returns events such as "search: closed (residual)" as family codes' lines."""
        events = []
        swapped = self.version_changed(version)
        if version is not None:
            self._version = version
        for code in np.unique(evidence.family_P).tolist():
            family = self._get(code)
            if swapped:
                events += self._close(code, "proxy_version", step)
                continue
            self._gather(family, code, evidence)
            if code in lost:
                events += self._close(code, "unscored", step)
            elif not family.closed:
                events += self._judge_open(family, code, step)
            elif self._may_open(family):
                family.change(False, "", step)
                self._alarms.pop(code, None)
                events.append(f"{code}:opened")
        return events

    def _close(self, code: int, reason: str, step: int) -> list[str]:
        family = self._get(code)
        already = family.closed
        family.change(True, reason, step)
        self._alarms.pop(code, None)
        return [] if already else [f"{code}:closed ({reason})"]

    def _gather(self, family: _Family, code: int, e: StepEvidence) -> None:
        index = np.flatnonzero(
            e.anchored_P & (e.family_P == code) & np.isfinite(e.gold_P) & np.isfinite(e.calibrated_P)
        )
        family.idle_steps = 0 if index.size else family.idle_steps + 1
        if not index.size:
            return
        weight = 1.0 / e.propensity_P[index]
        mean = float(weight @ (e.gold_P[index] - e.calibrated_P[index]) / weight.sum() / e.width)
        exploited, favourite_weight, count = _favourites(e, code, self.config.exploit_margin)
        share = float("nan")
        if exploited.size:
            share = float(favourite_weight @ exploited / favourite_weight.sum())
        row = (
            float(index.size),
            min(max(mean, -self.RESIDUAL_BOUND), self.RESIDUAL_BOUND),
            share,
            float(count.sum()),
            float(count[exploited].sum()),
        )
        family.steps = [*family.steps[-self.MAX_STREAM :], row]

    def _judge_open(self, family: _Family, code: int, step: int) -> list[str]:
        c = self.config
        if family.idle_steps >= c.coverage_window:
            return self._close(code, "coverage", step)
        if family.idle_steps or not family.steps:
            return []
        alarm = self._alarms.setdefault(code, self._new_alarm())
        if alarm.update(family.steps[-1][1]):
            return self._close(code, "residual", step)
        shares = np.array([row[2] for row in family.steps])
        log_e = restarting_rate_log_e(shares, c.exploit_limit / 2, c.horizon_steps)
        if float(log_e[-1]) >= -np.log(c.alpha / 2):
            return self._close(code, "exploit", step)
        return []

    def _new_alarm(self) -> RestartingAlarm:
        c = self.config
        return RestartingAlarm(c.residual_band, c.horizon_steps, c.alpha / 2, bound=self.RESIDUAL_BOUND)

    def _may_open(self, family: _Family) -> bool:
        """Whether the newest evidence since the closing suffices and is within the limits."""
        c = self.config
        newest = np.array(family.steps[::-1]).reshape(-1, 5)
        anchors, favourites = np.cumsum(newest[:, 0]), np.cumsum(newest[:, 3])
        needed = np.log(1.0 - self.OPENING_CONFIDENCE) / np.log(1.0 - c.exploit_limit)  # without any exploit
        enough = (anchors >= c.min_anchors) & (np.arange(1, anchors.size + 1) >= c.fresh_steps)
        enough &= favourites >= needed
        if not enough.any():
            return False
        used = newest[: int(np.argmax(enough)) + 1]
        residuals = used[:, 1]
        error = 2.0 * float(residuals.std(ddof=1)) / np.sqrt(residuals.size)
        if abs(float(residuals.mean())) + error > c.residual_band:
            return False
        _, upper = clopper_pearson(used[:, 4].sum(), used[:, 3].sum(), self.OPENING_CONFIDENCE)
        return float(upper) <= c.exploit_limit

    def state_dict(self) -> dict[str, Any]:
        return {
            "version": self._version,
            "families": {
                str(code): asdict(family) | {"steps": [[_null(v) for v in row] for row in family.steps]}
                for code, family in self._families.items()
            },
            "alarms": {str(code): alarm.state_dict() for code, alarm in self._alarms.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._version = state["version"]
        self._families = {
            int(code): _Family(**{**family, "steps": [tuple(map(_number, row)) for row in family["steps"]]})
            for code, family in state["families"].items()
        }
        self._alarms = {}
        for code, saved in state["alarms"].items():
            alarm = self._new_alarm()
            alarm.load_state_dict(saved)
            self._alarms[int(code)] = alarm


def _null(value: float) -> float | None:
    return None if np.isnan(value) else value


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _favourites(e: StepEvidence, code: int, margin: float) -> tuple[BoolArray, FloatArray, FloatArray]:
    """Of the family's proxy favourites that gold has seen: which were exploits, their weights 1/(πk), and 1/k.

    A favourite has the highest calibrated score of its group; where k rollouts share it each counts 1/k, as if the
    tie were broken at random. With whole groups anchored it is an exploit if gold has it at the bottom of a group
    with spread; with single rollouts, if gold is `margin` below the proxy.
    """
    mine = np.flatnonzero(e.family_P == code)
    f = np.where(np.isfinite(e.calibrated_P[mine]), e.calibrated_P[mine], -np.inf)
    groups, place = np.unique(e.group_P[mine], return_inverse=True)
    top = np.full(groups.size, -np.inf)
    np.maximum.at(top, place, f)
    at_top = (f == top[place]) & np.isfinite(f)
    share = 1.0 / np.maximum(np.bincount(place[at_top], minlength=groups.size), 1)[place]
    gold = e.gold_P[mine]
    seen = at_top & e.anchored_P[mine] & np.isfinite(gold)
    if e.whole_groups:
        scored = np.isfinite(gold)
        low, high = np.full(groups.size, np.inf), np.full(groups.size, -np.inf)
        np.minimum.at(low, place[scored], gold[scored])
        np.maximum.at(high, place[scored], gold[scored])
        seen &= (high > low)[place]
        exploited = gold <= low[place]
    else:
        exploited = gold <= f - margin * e.width
    return exploited[seen], share[seen] / e.propensity_P[mine][seen], share[seen]
