"""Answers, schemas and PDDL plans: what passes, what fails, and what must not be guessed."""

from __future__ import annotations

import threading
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.errors import DataError
from trueup.types import Verdict
from trueup.verifiers.answer import ExactAnswer, MathAnswer, NumericAnswer, QuantityAnswer, parse_number
from trueup.verifiers.pddl import PddlVerifier
from trueup.verifiers.schema import SchemaVerifier


@pytest.mark.parametrize(
    ("text", "value"),
    [("12", 12), ("-3.50", Fraction(-7, 2)), ("1,250", 1250), ("1,250,000.5", Fraction(2500001, 2)),
     ("2e-3", Fraction(1, 500)), ("3/4", Fraction(3, 4)), ("12.5%", Fraction(1, 8)), (".5", Fraction(1, 2)),
     ("−7", -7), ("٣", None), ("1,25", None), ("12a", None), ("", None), (".", None), ("nan", None),
     ("inf", None), ("1/0", None), ("1e9999", None), ("1 2", None), ("0x10", None), ("1_000", None)],
)  # fmt: skip
def test_only_a_whole_unmistakable_number_is_a_number(text, value):
    assert parse_number(text) == value


@given(st.fractions(), st.fractions(min_value=0, max_value=100), st.integers(-3, 3))
def test_the_edge_of_a_tolerance_is_exact(value, tolerance, step):
    verifier = NumericAnswer(value=str(value), absolute=str(tolerance))
    given_ = value + tolerance + Fraction(step, 10**30)
    verdict = verifier.verify(f"{given_.numerator}/{given_.denominator}").verdict
    if len(str(given_.numerator)) <= 40 and len(str(given_.denominator)) <= 40:
        assert verdict is (Verdict.PASS if step <= 0 and given_ >= value - tolerance else Verdict.FAIL)


def test_a_tenth_is_a_tenth_although_no_float_is():
    assert NumericAnswer(value="0.3").verify("0.30").verdict is Verdict.PASS
    assert NumericAnswer(value="0.3").verify(0.1 + 0.2).verdict is Verdict.FAIL
    assert NumericAnswer(value="0.3", relative="1e-9").verify(0.1 + 0.2).verdict is Verdict.PASS


@pytest.mark.parametrize("answer", [None, True, float("nan"), float("inf"), [], "about 3", "3 or 4"])
def test_what_is_no_number_fails(answer):
    assert NumericAnswer(value="3", absolute="9").verify(answer).verdict is Verdict.FAIL


def test_a_reference_that_is_no_number_is_unknown_and_not_the_policys_fault():
    assert NumericAnswer(value="three").verify("3").verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [("Paris", "pass"), (" paris ", "pass"), ("Ｐａｒｉｓ", "pass"), ("Paris, or Rome", "fail"), (7, "fail")],
)
def test_exact_answers_are_folded_like_names(answer, verdict):
    assert ExactAnswer(accepted=("Paris",)).verify(answer).verdict == verdict
    assert ExactAnswer(accepted=("Paris",), strict=True).verify("paris").verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [("1.5 km", "pass"), ("1500 m", "pass"), ("1500 meter", "pass"), ("150000cm", "pass"), ("1500", "fail"),
     ("1.5 kg", "fail"), ("1.5 m", "fail"), ("0.93 mile", "fail"), ("1.5e3 m", "pass"), ("fast", "fail"),
     ("1.5 km or 2 km", "fail"), ("3/2 km", "pass")],
)  # fmt: skip
def test_quantities_are_compared_after_conversion(answer, verdict):
    pytest.importorskip("pint")
    assert QuantityAnswer(value="1500", unit="m", absolute="1").verify(answer).verdict == verdict


@pytest.mark.parametrize(
    ("truth", "answer", "verdict"),
    [
        ("\\frac12", "0.5", "pass"),
        ("x+1", "1+x", "pass"),
        ("5", "\\boxed{5}", "pass"),
        ("5", "We add and get $\\boxed{2+3}$.", "pass"),
        ("\\{1,2\\}", "\\{2,1\\}", "pass"),
        ("x=5", "5", "pass"),
        ("2^{10}", "1024", "pass"),
        ("7 \\text{ cm}", "7\\text{ cm}", "pass"),
        # What math-verify alone lets through:
        ("5", "4=5", "fail"),
        ("5", "3+1=5", "fail"),
        ("x=5", "y=5", "fail"),
        ("7 \\text{ cm}", "7 \\text{ m}", "fail"),
        ("7", "7 \\text{ m}", "fail"),
        ("4", "\\{4\\}", "fail"),
        ("1,2", "2,1", "fail"),
        # Hedging and prose:
        ("3", "\\boxed{3} or \\boxed{4}", "fail"),
        ("3", "either 3 or possibly 4", "fail"),
        ("3", "4", "fail"),
        ("3", "", "fail"),
        ("3", "1 " * 400, "fail"),
        # Numbers that would keep a machine busy for hours:
        ("3", "9^{9^{9^{9}}}", "fail"),
        ("3", "10^{99999999}", "fail"),
        ("3", "99999999!", "fail"),
        ("3", "9^9^9^9", "fail"),
        ("3", "(9!)!", "fail"),
    ],
)
def test_mathematics_is_equal_only_where_it_is(truth, answer, verdict):
    pytest.importorskip("math_verify")
    assert MathAnswer(value=truth).verify(answer).verdict == verdict


def test_the_guard_is_needed_math_verify_alone_accepts_these():
    math_verify = pytest.importorskip("math_verify")
    for truth, answer in [("$5$", "$4=5$"), ("$7$ cm", "$7$ m"), ("$4$", "$\\{4\\}$"), ("$1,2$", "$2,1$")]:
        assert math_verify.verify(math_verify.parse(truth), math_verify.parse(answer)), (truth, answer)


def test_outside_the_main_thread_mathematics_is_unknown_and_not_wrong():
    pytest.importorskip("math_verify")
    results = []
    thread = threading.Thread(target=lambda: results.append(MathAnswer(value="5").verify("5")))
    thread.start()
    thread.join()
    assert results[0].verdict is Verdict.UNKNOWN


SCHEMA = {
    "type": "object",
    "required": ["day", "n"],
    "additionalProperties": False,
    "properties": {"day": {"type": "string", "format": "date"}, "n": {"type": "integer", "minimum": 1}},
}


@pytest.mark.parametrize(
    ("answer", "n_faults"),
    [('{"day": "2026-06-05", "n": 2}', 0), ({"day": "2026-06-05", "n": 2}, 0), ('{"day": "2026-06-05"}', 1),
     ('{"day": "yesterday", "n": 0}', 2), ('{"day": "2026-06-05", "n": 1, "x": 1}', 1), ("{", 1),
     ('{"day": "2026-06-05", "n": NaN}', 1), ('{"n": 1, "n": 2, "day": "2026-06-05"}', 1), ("[" * 9999, 1)],
)  # fmt: skip
def test_a_schema_counts_its_faults(answer, n_faults):
    pytest.importorskip("jsonschema")
    result = SchemaVerifier(definition=SCHEMA).verify(answer)
    assert result.verdict is (Verdict.FAIL if n_faults else Verdict.PASS)
    assert result.margin == -n_faults


def test_a_schema_that_is_none_is_refused_when_it_is_made():
    pytest.importorskip("jsonschema")
    with pytest.raises(ValueError, match="must be a JSON schema"):
        SchemaVerifier(definition={"type": "objekt"})


DOMAIN = """(define (domain rooms) (:requirements :strips :typing) (:types room)
 (:predicates (at ?r - room) (link ?a ?b - room))
 (:action go :parameters (?a ?b - room) :precondition (and (at ?a) (link ?a ?b))
  :effect (and (at ?b) (not (at ?a)))))"""
PROBLEM = """(define (problem p) (:domain rooms) (:objects r1 r2 r3 - room)
 (:init (at r1) (link r1 r2) (link r2 r3)) (:goal (at r3)))"""


@pytest.mark.parametrize(
    ("plan", "broken"),
    [("(go r1 r2)\n(go r2 r3)", None), ("; first\n(go r1 r2)\n\n(go r2 r3) ; done", None),
     ("(go r1 r3)", "plan_applicable"), ("(go r1 r2)", "plan_goal"), ("", "plan_goal"),
     ("(fly r1 r2)", "plan_syntax"), ("(go r1 r9)", "plan_syntax"), ("(go r1 r2", "plan_syntax"),
     ("go there", "plan_syntax"), (None, "plan_syntax"), ("(go r1)", "plan_syntax")],
)  # fmt: skip
def test_a_pddl_plan_fails_by_the_first_check_that_can(plan, broken):
    pytest.importorskip("unified_planning")
    report = PddlVerifier(DOMAIN, PROBLEM).verify(plan)
    assert report.failed == (() if broken is None else (broken,))
    assert report.feasible is (broken is None)


def test_a_domain_that_cannot_be_read_is_the_tasks_mistake():
    pytest.importorskip("unified_planning")
    with pytest.raises(DataError):
        PddlVerifier("(define (domain", PROBLEM)
