"""What every verifier shares: a spec, the fault boundary, a report, and a task that proves its own checks.

A verifier answers `pass | fail | not_applicable | unknown | error` per constraint and never a bare bool,
because the three ways of not knowing have different owners. A plan that breaks a rule is the policy's fault
(`fail`). A table without the price is the task's fault (`unknown`). A check that raised is ours (`error`):
scored 0 it would punish the policy for our bug, scored 1 it would pay for crashing us.

The order of a report is fixed: shape first (nothing else can be judged in an unreadable answer), then
obligations, then prohibitions. An answer that does nothing breaks no prohibition, so a task without any
obligation is refused: its best answer would be the empty one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from trueup.errors import DataError
from trueup.types import Verdict, VerifierResult

__all__ = [
    "Case",
    "CaseOutcome",
    "Finding",
    "Frozen",
    "Report",
    "Role",
    "VerifierSpec",
    "error_result",
    "obligation_credit",
    "require_valid",
    "run_check",
    "to_result",
    "validate_cases",
]

Role: TypeAlias = Literal["shape", "obligation", "prohibition"]


class Frozen(BaseModel):
    """A value object read from a file: immutable, and a key that nobody knows is an error, not a no-op."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class VerifierSpec(Frozen):
    """What one check is called and how much it matters; the check's code is elsewhere."""

    name: str = Field(min_length=1, max_length=120)
    role: Role = "prohibition"
    hard: bool = True  # a soft check is reported and never gates
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)  # share in the partial credit
    unit: str = ""  # of the margin: "min", "EUR", "visits"
    basis: str = ""  # what the margin is measured against


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check's code answers; `margin` is signed slack in the spec's unit, negative when violated."""

    verdict: Verdict
    margin: float | None = None
    witness: tuple[str, ...] = ()
    detail: str = ""

    @classmethod
    def of_slack(
        cls, slack: float | None, witness: Iterable[str] = (), unknown: Iterable[str] = (), detail: str = ""
    ) -> Finding:
        """The usual case: `slack` is the smallest slack found (None when nothing applied), `witness` the
        offenders, `unknown` what could not be decided. A proven violation outranks an open question."""
        if slack is not None and slack < 0:
            return cls(Verdict.FAIL, float(slack), tuple(witness), detail)
        if missing := tuple(unknown):
            return cls(Verdict.UNKNOWN, None, missing, detail)
        if slack is None:
            return cls(Verdict.NOT_APPLICABLE, None, (), detail)
        return cls(Verdict.PASS, float(slack), (), detail)


def to_result(spec: VerifierSpec, finding: Finding) -> VerifierResult:
    """Spec and finding as one public record."""
    return VerifierResult(
        spec.name,
        finding.verdict,
        finding.margin,
        spec.unit,
        finding.witness,
        spec.hard,
        spec.weight,
        finding.detail,
        spec.role,
        spec.basis,
    )


def error_result(spec: VerifierSpec, exception: BaseException) -> VerifierResult:
    """A check that raised: neither the policy's failure nor its success."""
    detail = f"{type(exception).__name__}: {exception}"
    return to_result(spec, Finding(Verdict.ERROR, None, (), detail[:400]))


def run_check(spec: VerifierSpec, check: Callable[..., Finding], *args: Any) -> VerifierResult:
    """Call `check(*args)` inside the fault boundary. Any exception becomes `error`, as does an answer that
    is no `Finding`, or a margin that is NaN or contradicts its verdict."""
    try:
        finding = check(*args)
        if type(finding) is not Finding:
            raise TypeError(f"a check must return a Finding, got {type(finding).__name__}")
        margin = finding.margin
        if margin is not None:
            if math.isnan(margin):
                raise ValueError("a margin must be a number or None, got NaN")
            if margin < 0 and finding.verdict is Verdict.PASS:
                raise ValueError(f"a passing check must not have negative slack, got {margin}")
    except Exception as exception:  # this is the boundary: whatever a check does, the rollout survives
        return error_result(spec, exception)
    return to_result(spec, finding)


def obligation_credit(results: Sequence[VerifierResult]) -> float:
    """Partial credit c in [0, 1] of an answer, from its hard checks: c = O · P.

    O is the weighted share of obligations met (1 when there are none among the results), P = 1/(1 + w) with
    w the weight of violated prohibitions. A failed shape check gives 0. So doing nothing earns 0, mending a
    violation never lowers c, and a check that passes adds nothing by being there: P looks at violations only.
    """
    met = owed = violated = 0.0
    for result in results:
        if not result.hard:
            continue
        failed = result.verdict is Verdict.FAIL
        if result.role == "obligation":
            if result.verdict is not Verdict.NOT_APPLICABLE:
                owed += result.weight
                met += 0.0 if failed else result.weight
        elif failed:
            if result.role == "shape":
                return 0.0
            violated += result.weight
    return (met / owed if owed else 1.0) / (1.0 + violated)


@dataclass(frozen=True)
class Report:
    """All checks of one answer, in the order shape, obligations, prohibitions."""

    results: tuple[VerifierResult, ...]

    @cached_property
    def feasible(self) -> bool | None:
        """False when a hard check failed, None when none did but one could not tell, else True."""
        verdicts = {r.verdict for r in self.results if r.hard}
        if Verdict.FAIL in verdicts:
            return False
        if Verdict.UNKNOWN in verdicts or Verdict.ERROR in verdicts:
            return None
        return True if Verdict.PASS in verdicts else None

    @property
    def credit(self) -> float:
        """Partial credit of the hard checks, see `obligation_credit`."""
        return obligation_credit(self.results)

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the checks that failed, hard and soft."""
        return tuple(r.name for r in self.results if r.verdict is Verdict.FAIL)

    @property
    def undecided(self) -> tuple[str, ...]:
        """Names of the checks that answered unknown or error."""
        return tuple(r.name for r in self.results if r.verdict in (Verdict.UNKNOWN, Verdict.ERROR))

    def __getitem__(self, name: str) -> VerifierResult:
        for result in self.results:
            if result.name == name:
                return result
        raise KeyError(name)

    def to_json(self) -> dict[str, Any]:
        """`feasible` and `checks` as plain data; a missing or unbounded margin is null."""
        return {"feasible": self.feasible, "checks": [_result_json(r) for r in self.results]}


def _result_json(result: VerifierResult) -> dict[str, Any]:
    margin = result.margin
    return {
        "name": result.name,
        "verdict": str(result.verdict),
        "margin": margin if margin is not None and math.isfinite(margin) else None,
        "unit": result.unit,
        "witness": list(result.witness),
        "hard": result.hard,
        "role": result.role,
        "weight": result.weight,
        "basis": result.basis,
        "detail": result.detail,
    }


@dataclass(frozen=True, slots=True)
class Case:
    """An answer with known truth: `breaks` is None for a gold answer, else the one check that must fail."""

    answer: Any
    breaks: str | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """A case that did not come out as it must."""

    case: Case
    failed: tuple[str, ...]
    undecided: tuple[str, ...]

    def __str__(self) -> str:
        want = "no check to fail" if self.case.breaks is None else f"only {self.case.breaks!r} to fail"
        got = ", ".join(self.failed) or "none"
        open_ = f"; undecided: {', '.join(self.undecided)}" if self.undecided else ""
        return f"{self.case.label or 'case'}: wanted {want}, failed: {got}{open_}"


def validate_cases(verify: Callable[[Any], Report], cases: Iterable[Case]) -> list[CaseOutcome]:
    """Run the cases; return those that went wrong. Gold must pass everything, a known-bad answer must fail
    exactly its intended check, and nothing may stay undecided."""
    wrong = []
    for case in cases:
        report = verify(case.answer)
        want = () if case.breaks is None else (case.breaks,)
        if report.failed != want or report.undecided:
            wrong.append(CaseOutcome(case, report.failed, report.undecided))
    return wrong


def require_valid(verify: Callable[[Any], Report], cases: Iterable[Case], task: str) -> None:
    """Raise `DataError` naming each case whose outcome is not its label's."""
    if wrong := validate_cases(verify, cases):
        raise DataError(
            f"Task {task!r} must agree with its own examples, got "
            + "; ".join(str(w) for w in wrong)
            + ". A reward from it would be wrong. Mend the constraint or the example."
        )
