"""Gold for the catalogue: every program is run on every unit test, in the sandbox.

Twenty programs are few enough to run at the start and to remember: within one experiment a program's verdict
does not change, and `measure_pass_rates` sees to that by running everything twice. What an arm would have
paid without that memory is its number of gold queries times the measured seconds per run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trueup.errors import DataError, InfrastructureError
from trueup.sandbox import Grade, Sandbox
from trueup.tasks.catalogue.candidates import Program
from trueup.tasks.catalogue.unit_tests import FUNCTION, UNIT_TESTS

__all__ = ["PassRates", "measure_pass_rates"]

_REPEATS = 2


@dataclass(frozen=True, slots=True)
class PassRates:
    """What the sandbox found. Everything here was measured."""

    pass_rate: tuple[float, ...]  # share of the unit tests passed, per program
    passed: tuple[tuple[bool, ...], ...]  # per program and unit test
    n_runs: int  # one run: one program on all unit tests
    seconds_total: float  # slot-seconds: wall time times the programs that ran side by side
    backend: str

    @property
    def seconds_per_run(self) -> float:
        """Mean seconds for which a run holds a slot, starting and ending its process included."""
        return self.seconds_total / self.n_runs


def measure_pass_rates(
    sandbox: Sandbox, programs: Sequence[Program], progress: Callable[[int, int], None] | None = None
) -> PassRates:
    """Run every program on every unit test, twice.

    Raises:
        InfrastructureError: a program could not be graded; a pass rate with a hole in it would not be one.
        DataError: two runs of one program disagree, so it is not the deterministic specimen that it should be.
    """
    sandbox.start()
    jobs = [
        {
            "source": program.source,
            "function": FUNCTION,
            "inputs": [[test.text] for test in UNIT_TESTS],
            "expected": [test.canonical for test in UNIT_TESTS],
        }
        for program in programs
    ]
    begin = time.perf_counter()
    grades = sandbox.grade_many(jobs * _REPEATS, progress)
    elapsed = time.perf_counter() - begin
    passed = []
    for k, program in enumerate(programs):
        runs = [_passed(grades[k + r * len(jobs)], program) for r in range(_REPEATS)]
        if len(set(runs)) > 1:
            raise DataError(
                f"Program {program.name!r} must pass the same unit tests in every run, got "
                f"{[sum(run) for run in runs]} of {len(UNIT_TESTS)}. Its pass rate would be a matter of luck. "
                "Look for a time limit that a busy machine exceeds, then try again."
            )
        passed.append(runs[0])
    return PassRates(
        pass_rate=tuple(sum(tests) / len(tests) for tests in passed),
        passed=tuple(passed),
        n_runs=len(grades),
        seconds_total=elapsed * min(sandbox.slots, len(grades)),
        backend=sandbox.backend,
    )


def _passed(grade: Grade, program: Program) -> tuple[bool, ...]:
    if not grade.score.is_scored:
        raise InfrastructureError(
            f"Program {program.name!r} could not be graded: {grade.score.detail or grade.score.reason}. "
            "The experiment has no gold without it. `trueup doctor` says what works on this machine.",
            reason=grade.score.reason or "sandbox_unavailable",
        )
    return tuple(call.passed for call in grade.calls)
