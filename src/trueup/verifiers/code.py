"""Programs as a hard constraint: all tests pass in the sandbox.

The sandbox runs the candidate and judges outside of it; here its grade becomes a verdict. A grade that could
not be had is `unknown` (the machine's fault), and so is one that was obtained without isolation unless that
was asked for: a program that could have reached the judge has proven nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from trueup.sandbox import Grade, Sandbox
from trueup.types import Verdict, VerifierResult
from trueup.verifiers.base import Finding, VerifierSpec, run_check

__all__ = ["CallTests", "grade_finding"]


class CallTests(VerifierSpec):
    """`function` of the candidate's source returns `expected[i]` for the arguments `inputs[i]`, for all i.
    Margin: minus the number of failed tests."""

    name: str = "tests"
    role: Any = "obligation"
    unit: str = "tests"
    function: str = "solve"
    inputs: tuple[tuple[Any, ...], ...] = Field(min_length=1)
    expected: tuple[Any, ...]
    allow_unsafe: bool = False  # accept verdicts of a sandbox that runs without isolation

    def verify(self, source: Any, sandbox: Sandbox) -> VerifierResult:
        """Run the tests on one source. The sandbox is the caller's, because it is costly to start."""
        return run_check(self, self._check, source, sandbox)

    def _check(self, source: Any, sandbox: Sandbox) -> Finding:
        if not isinstance(source, str):
            return Finding(Verdict.FAIL, -float(len(self.inputs)), (type(source).__name__,), "no source text")
        inputs: Sequence[list[Any]] = [list(arguments) for arguments in self.inputs]
        grade = sandbox.grade_calls(
            source, inputs=inputs, expected=list(self.expected), function=self.function
        )
        return grade_finding(grade, self.allow_unsafe)


def grade_finding(grade: Grade, allow_unsafe: bool = False) -> Finding:
    """A sandbox's grade as a finding: every failed call is in the witness with its reason."""
    if not grade.score.is_scored:
        return Finding(Verdict.UNKNOWN, None, (), f"{grade.score.reason}: {grade.score.detail}"[:300])
    if grade.unsafe and not allow_unsafe:
        return Finding(Verdict.UNKNOWN, None, (), "the program ran without isolation")
    failed = [f"test {i}: {call.reason}" for i, call in enumerate(grade.calls) if not call.passed]
    return Finding.of_slack(-len(failed), failed[:20])
