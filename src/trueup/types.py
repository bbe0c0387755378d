"""What flows through trueup: rollouts in, scores beside them, advantages and a record out.

Everything here is frozen. This is also the only module that turns scores into arrays and back, so that
"NaN means unscored" is a convention of arrays alone: a `Score` never holds NaN, and a file never does.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trueup.errors import GroupError, ScorerContractError

__all__ = [
    "REASONS",
    "Group",
    "Rollout",
    "Score",
    "ScoreArray",
    "StepRecord",
    "StepResult",
    "UnscoredReason",
    "Verdict",
    "VerifierResult",
]

FloatArray: TypeAlias = NDArray[np.float64]
BoolArray: TypeAlias = NDArray[np.bool_]
IntArray: TypeAlias = NDArray[np.int64]

UnscoredReason: TypeAlias = Literal[
    "timeout_infrastructure",
    "scorer_error",
    "unparsable_verdict",
    "non_finite",
    "sandbox_unavailable",
    "cancelled",
    "not_selected",
    "abstained",
    "verifier_unknown",
    "gold_unavailable",
    "guarded",
]
"""Why a rollout has no number. A closed vocabulary, so that counts of it can be compared between runs."""

REASONS: tuple[str, ...] = (
    "timeout_infrastructure",  # our deadline passed, not the candidate's budget
    "scorer_error",  # the scorer raised
    "unparsable_verdict",  # it answered, but not in a form that can be read
    "non_finite",  # it answered NaN or infinity
    "sandbox_unavailable",  # nothing could run the candidate
    "cancelled",  # the step was stopped before the answer came
    "not_selected",  # not an anchor, and this estimator trains on anchors only
    "abstained",  # the scorer answered None: it could not tell
    "verifier_unknown",  # a hard constraint could not be decided
    "gold_unavailable",  # no anchor of this step came back, so nothing could correct the proxy
    "guarded",  # the family's proxy is not trusted at present, and the rollout was no anchor
)
_CODE_OF = {reason: code for code, reason in enumerate(REASONS, start=1)}


def reason_code(reason: str) -> int:
    """Position of `reason` in `REASONS`, from 1; 0 is kept for "scored"."""
    try:
        return _CODE_OF[reason]
    except KeyError:
        raise ScorerContractError(
            f"An unscored reason must be one of {', '.join(REASONS)}, got {reason!r}. "
            "Reasons are counted and compared between runs, so the vocabulary is closed. "
            "Use the nearest one and put the particulars into `detail`."
        ) from None


@dataclass(frozen=True, slots=True)
class Score:
    """A finite number, or the reason why there is none. Never NaN, never a stand-in 0."""

    value: float | None
    reason: str | None = None
    detail: str = ""

    def __post_init__(self) -> None:
        if self.value is None:
            reason_code(self.reason if self.reason is not None else "")
        elif isinstance(self.value, bool) or not math.isfinite(self.value):
            raise ScorerContractError(
                f"Score.value must be a finite float or None, got {self.value!r}. "
                "It would spread through the whole group. Use Score.unscored('non_finite')."
            )
        elif self.reason is not None:
            raise ScorerContractError(
                f"A scored Score must not carry a reason, got value {self.value!r} and {self.reason!r}. "
                "It would be counted as scored and as failed. Leave one of them out."
            )

    @classmethod
    def unscored(cls, reason: UnscoredReason, detail: str = "") -> Score:
        """No number, because of `reason` (one of `REASONS`); `detail` is free text for a person."""
        return cls(None, reason, detail)

    @property
    def is_scored(self) -> bool:
        return self.value is not None

    def to_json(self) -> dict[str, Any]:
        """Plain data for files: a null with status and reason, never NaN and never 0 for unscored."""
        if self.value is not None:
            return {"value": float(self.value), "status": "scored"}
        return {"value": None, "status": "unscored", "reason": self.reason, "detail": self.detail}


class Verdict(StrEnum):
    """What a verifier says of one hard constraint. Never a bare bool."""

    PASS = "pass"
    FAIL = "fail"
    NOT_APPLICABLE = "not_applicable"
    UNKNOWN = "unknown"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class VerifierResult:
    """One constraint's verdict on one rollout, with the evidence for it."""

    name: str
    verdict: Verdict
    margin: float | None = None  # signed slack in `unit`; negative when violated
    unit: str = ""
    witness: tuple[str, ...] = ()  # the offending items
    hard: bool = True
    weight: float = 1.0
    detail: str = ""
    # What the constraint asks: to be readable at all, to do something, or to refrain from something.
    role: Literal["shape", "obligation", "prohibition"] = "prohibition"
    basis: str = ""  # what the margin was measured against, e.g. the price table and its exchange date


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sampled attempt: what was asked, what the policy answered, and the task's own data.

    `task` is whatever verifiers and scorers need (a test set, an answer key); trueup never looks inside.
    `family` is the kind of task, the slice of every report. `id` makes anchor choices independent of the
    order in which ranks hold the rollouts; without it the place in the step is used.
    """

    prompt: Any
    completion: Any
    task: Any = None
    family: str = "default"
    id: Hashable | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one prompt: what GRPO centres over. `id` must be unique within a step."""

    rollouts: tuple[Rollout, ...]
    id: Hashable | None = None

    def __init__(self, rollouts: Sequence[Rollout], id: Hashable | None = None) -> None:
        object.__setattr__(self, "rollouts", tuple(rollouts))
        object.__setattr__(self, "id", id)
        if not self.rollouts:
            raise GroupError("A group must hold at least one rollout, got none. Leave empty groups out.")

    def __len__(self) -> int:
        return len(self.rollouts)

    def __iter__(self) -> Iterator[Rollout]:
        return iter(self.rollouts)


@dataclass(frozen=True, slots=True)
class ScoreArray:
    """Scores of n rollouts as arrays. `value` is float64 with NaN where unscored; `code` is 0 where scored
    and 1 + the index into `REASONS` elsewhere; `details` maps an index to free text."""

    value: FloatArray
    code: NDArray[np.int8]
    details: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def unscored(cls, n: int, reason: UnscoredReason, detail: str = "") -> ScoreArray:
        """n scores that are all missing for one reason."""
        details = {0: detail} if detail and n else {}
        return cls(np.full(n, np.nan), np.full(n, reason_code(reason), np.int8), details)

    @classmethod
    def from_answers(cls, answers: Any, n: int, who: str) -> ScoreArray:
        """Read what a scorer returned: n of `Score`, float or None, in a list or a float array.

        None becomes `abstained`, NaN and infinity become `non_finite`. A wrong length or type raises
        `ScorerContractError`, because no rollout could be paired with its score any more.
        """
        if isinstance(answers, np.ndarray):
            value = answers.astype(np.float64, copy=True)
            if value.shape != (n,):
                raise _wrong_length(who, f"an array of shape {answers.shape}", n)
            return cls(value, _code_non_finite(value))
        if isinstance(answers, (str, bytes, Mapping)) or not isinstance(answers, Sequence):
            raise ScorerContractError(
                f"{who} must return a list with one Score, float or None per rollout, "
                f"got {type(answers).__name__}. Nothing was scored. Return a list."
            )
        if len(answers) != n:
            raise _wrong_length(who, f"{len(answers)}", n)
        if all(type(a) is float for a in answers):
            value = np.array(answers, dtype=np.float64)
            return cls(value, _code_non_finite(value))
        return cls._from_mixed(answers, n, who)

    @classmethod
    def _from_mixed(cls, answers: Sequence[Any], n: int, who: str) -> ScoreArray:
        value = np.full(n, np.nan)
        code = np.zeros(n, np.int8)
        details: dict[int, str] = {}
        for i, answer in enumerate(answers):
            if isinstance(answer, Score):
                if answer.value is not None:
                    value[i] = answer.value
                    continue
                code[i] = reason_code(answer.reason or "")
                if answer.detail:
                    details[i] = answer.detail
            elif answer is None:
                code[i] = _CODE_OF["abstained"]
            elif isinstance(answer, (int, float, np.integer, np.floating)) and not isinstance(answer, bool):
                value[i] = float(answer)
            else:
                raise ScorerContractError(
                    f"{who} must return a Score, float or None per rollout, got {answer!r} for rollout {i}. "
                    "A value of another type has no agreed meaning as a reward. Convert it first."
                )
        missing = (code == 0) & ~np.isfinite(value)
        code[missing] = _CODE_OF["non_finite"]
        value[missing] = np.nan
        return cls(value, code, details)

    def to_scores(self) -> list[Score]:
        """Back to `Score` objects, in order."""
        return [
            Score(float(v)) if c == 0 else Score(None, REASONS[c - 1], self.details.get(i, ""))
            for i, (v, c) in enumerate(zip(self.value, self.code, strict=True))
        ]


def _wrong_length(who: str, got: str, n: int) -> ScorerContractError:
    return ScorerContractError(
        f"{who} must return one score per rollout ({n}), got {got}. "
        "No rollout could be paired with its score. Return None for those that you cannot score."
    )


def _code_non_finite(value: FloatArray) -> NDArray[np.int8]:
    """Codes for a plain float array; non-finite entries are set to NaN in place."""
    code = np.zeros(value.shape, np.int8)
    missing = ~np.isfinite(value)
    if missing.any():
        value[missing] = np.nan
        code[missing] = _CODE_OF["non_finite"]
    return code


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What one step did: enough for a run log, a monitor and a report, and nothing that needs the loop.

    Arrays are flat over the step's rollouts, in the order of the groups; `group` gives each rollout's group.
    NaN means unscored, and `*_code` says why (see `ScoreArray`).
    """

    step: int
    estimator: str
    unit: Literal["rollout", "group"]
    group_ids: tuple[Hashable, ...]
    families: tuple[str, ...]  # the distinct families of this step
    group: IntArray  # index into group_ids, per rollout
    family: IntArray  # index into families, per rollout
    proxy: FloatArray  # raw proxy scores
    proxy_code: NDArray[np.int8]
    calibrated: FloatArray  # the same through the map that was in force before this step
    gold: FloatArray  # gold scores of the anchors
    gold_code: NDArray[np.int8]
    anchored: BoolArray
    propensity: FloatArray  # probability with which each rollout was to be anchored
    reward: FloatArray  # what was centred
    advantage: FloatArray
    planned_fraction: float
    realised_fraction: float
    n_gold_queries: int
    metrics: Mapping[str, float]  # everything scalar, by name
    notes: tuple[str, ...] = ()  # decisions a person should know of
    refit: Mapping[str, Any] | None = None  # report of the calibration refit that followed, if any

    def to_json(self) -> dict[str, Any]:
        """Plain data for files. Unscored is null; the reasons are kept by name and index."""
        arrays = ("proxy", "calibrated", "gold", "propensity", "reward", "advantage")
        out: dict[str, Any] = {name: _nulls(getattr(self, name)) for name in arrays}
        for name in ("proxy", "gold"):
            codes = getattr(self, f"{name}_code")
            out[f"{name}_unscored"] = {int(i): REASONS[codes[i] - 1] for i in np.flatnonzero(codes)}
        out |= {
            "step": self.step,
            "estimator": self.estimator,
            "unit": self.unit,
            "group_ids": [g if isinstance(g, (int, str)) else repr(g) for g in self.group_ids],
            "families": list(self.families),
            "group": self.group.tolist(),
            "family": self.family.tolist(),
            "anchored": self.anchored.tolist(),
            "planned_fraction": self.planned_fraction,
            "realised_fraction": self.realised_fraction,
            "n_gold_queries": self.n_gold_queries,
            "metrics": {k: (v if math.isfinite(v) else None) for k, v in self.metrics.items()},
            "notes": list(self.notes),
            "refit": dict(self.refit) if self.refit is not None else None,
        }
        return out


def _nulls(values: FloatArray) -> list[float | None]:
    return [v if math.isfinite(v) else None for v in values.tolist()]


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a trainer takes from one step.

    Grids are `(n_groups, group_size)` arrays when all groups have one size, otherwise lists of 1-d arrays.
    """

    advantages: Any  # NaN where unscored
    rewards: Any  # what was centred to give the advantages; NaN where unscored
    propensities: Any  # probability with which each rollout was to be anchored
    anchored: Any  # bool: scored by gold as well
    reasons: Any  # str or None: why a rollout is unscored
    anchor_ids: tuple[Hashable, ...]  # of groups (whole-group anchors) or of rollouts
    record: StepRecord
    anchor_weight: float = 1.0  # factor on the anchor groups' advantages (`wmrl`), else 1
