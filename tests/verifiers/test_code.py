"""Programs through the real sandbox; grades that could not be had through the same door."""

from __future__ import annotations

import pytest

from trueup.sandbox import Grade, Sandbox, probe
from trueup.types import Score, Verdict
from trueup.verifiers.code import CallTests, grade_finding

SQUARES = CallTests(inputs=((3,), (4,)), expected=(9, 16))


@pytest.fixture(scope="module")
def sandbox():
    if not any(report.works for report in probe()):
        pytest.skip("nothing on this machine can isolate a program")
    with Sandbox(slots=1) as running:
        yield running


@pytest.mark.parametrize(
    ("source", "verdict", "margin"),
    [("def solve(x): return x * x", "pass", 0), ("def solve(x): return 9", "fail", -1),
     ("def solve(x): return float(x * x)", "fail", -2), ("def solve(x): raise SystemExit", "fail", -2),
     ("def other(x): return x", "fail", -2), ("import this(", "fail", -2), (None, "fail", -2)],
)  # fmt: skip
def test_a_program_passes_when_all_its_tests_do(sandbox, source, verdict, margin):
    result = SQUARES.verify(source, sandbox)
    assert (result.verdict, result.margin) == (verdict, margin)


def test_a_grade_that_could_not_be_had_is_unknown_and_not_a_failure():
    assert grade_finding(Grade(Score.unscored("sandbox_unavailable"), ())).verdict is Verdict.UNKNOWN


def test_a_grade_without_isolation_proves_nothing_unless_it_is_asked_for():
    grade = Grade(Score(1.0), (), unsafe=True)
    assert grade_finding(grade).verdict is Verdict.UNKNOWN
    assert grade_finding(grade, allow_unsafe=True).verdict is Verdict.PASS
