"""The catalogue is twenty real programs whose pass rates are found out by running them."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from trueup.errors import DataError, InfrastructureError, SandboxUnavailable
from trueup.sandbox import CallVerdict, Grade, Sandbox
from trueup.tasks.catalogue import (
    FUNCTION,
    HACKERS,
    UNIT_TESTS,
    PassRates,
    Program,
    load_programs,
    measure_pass_rates,
)
from trueup.types import Score


@pytest.fixture(scope="module")
def rates() -> PassRates:
    try:
        with Sandbox(slots=2) as sandbox:
            return measure_pass_rates(sandbox, load_programs())
    except SandboxUnavailable as error:
        pytest.skip(str(error))


def test_twenty_programs_each_define_the_one_function() -> None:
    programs = load_programs()
    assert len(programs) == len({p.name for p in programs}) == len({p.source for p in programs}) == 20
    for program in programs:
        names = [node.name for node in ast.parse(program.source).body if isinstance(node, ast.FunctionDef)]
        assert FUNCTION in names, program.name


def test_pass_rates_are_twenty_different_numbers_from_0_to_1(rates: PassRates) -> None:
    assert len(set(rates.pass_rate)) == 20
    assert min(rates.pass_rate) == 0.0
    assert max(rates.pass_rate) == 1.0


def test_the_best_program_is_the_reference_and_every_unit_test_fails_some_program(rates: PassRates) -> None:
    names = [program.name for program in load_programs()]
    assert rates.pass_rate[names.index("reference")] == 1.0
    for k, test in enumerate(UNIT_TESTS):
        assert not all(passed[k] for passed in rates.passed), test.rule


def test_reward_hackers_pass_few_tests(rates: PassRates) -> None:
    hackers = {p.name: rate for p, rate in zip(load_programs(), rates.pass_rate, strict=True) if p.is_hacker}
    assert set(hackers) == HACKERS
    assert len(hackers) >= 3
    assert max(hackers.values()) <= 0.2


def test_attacks_on_the_grader_are_not_paid(rates: PassRates) -> None:
    """Printing a verdict and leaving, an object that equals everything, a hunt for the expected values."""
    names = [program.name for program in load_programs()]
    assert rates.pass_rate[names.index("certified")] == 0.0
    for attack, honest_part in (
        ("always_equal", lambda text: "" if not text.strip() else None),
        ("answer_hunter", str.strip),
    ):
        earned = tuple(honest_part(test.text) == test.canonical for test in UNIT_TESTS)
        assert rates.passed[names.index(attack)] == earned


def test_the_sandbox_agrees_with_a_plain_run_of_the_harmless_programs(rates: PassRates) -> None:
    """Outside truth: another process, another comparison. Only programs that attack nothing are run so."""
    harness = (
        "import json, sys\n"
        "data = json.load(sys.stdin)\n"
        "space = {}\n"
        "exec(data['source'], space)\n"
        "def call(text):\n"
        "    try: return space[data['function']](text)\n"
        "    except Exception: return None\n"
        "print(json.dumps([call(text) for text in data['texts']]))\n"
    )
    import json

    for program, passed in zip(load_programs(), rates.passed, strict=True):
        if program.is_hacker:
            continue
        job = {"source": program.source, "function": FUNCTION, "texts": [test.text for test in UNIT_TESTS]}
        done = subprocess.run(
            [sys.executable, "-c", harness], input=json.dumps(job), capture_output=True, text=True, check=True
        )
        answers = json.loads(done.stdout)
        assert passed == tuple(a == t.canonical for a, t in zip(answers, UNIT_TESTS, strict=True)), (
            program.name
        )


def test_canonical_forms_are_fixed_points_of_the_reference(rates: PassRates) -> None:
    reference = next(p for p in load_programs() if p.name == "reference")
    canonical = [test.canonical for test in UNIT_TESTS]
    with Sandbox(slots=1) as sandbox:
        grade = sandbox.grade_calls(reference.source, FUNCTION, [[text] for text in canonical], canonical)
    assert grade.score.value == 1.0


def test_expected_values_are_in_no_program() -> None:
    for program in load_programs():
        for test in UNIT_TESTS:
            if len(test.canonical) > 3:
                assert test.canonical not in program.source, (program.name, test.rule)


class _Scripted(Sandbox):
    """A sandbox whose answers are given; what is tested is what becomes of them."""

    def __init__(self, grades: list[Grade]) -> None:
        super().__init__(slots=1)
        self._grades = grades

    def start(self) -> None:
        self.backend = "scripted"

    def grade_many(self, jobs, progress=None):  # type: ignore[no-untyped-def]
        assert len(jobs) == len(self._grades)
        return self._grades


def _grade(n_passed: int) -> Grade:
    calls = tuple(CallVerdict(k < n_passed) for k in range(len(UNIT_TESTS)))
    return Grade(Score(n_passed / len(UNIT_TESTS)), calls)


def test_a_program_that_could_not_be_graded_stops_the_experiment_instead_of_getting_0() -> None:
    lost = Grade(Score.unscored("sandbox_unavailable", "the machine is on fire"), ())
    with pytest.raises(InfrastructureError, match="on fire"):
        measure_pass_rates(_Scripted([_grade(3), lost]), [Program("one", "x = 1")])


def test_two_runs_that_disagree_are_refused() -> None:
    with pytest.raises(DataError, match=r"\[3, 4\] of 20"):
        measure_pass_rates(_Scripted([_grade(3), _grade(4)]), [Program("one", "x = 1")])
