"""Answers that can be computed: exact text, numbers, quantities with units, mathematics.

`unknown` here means that the reference itself cannot be read, or that the checker cannot be trusted with this
pair. What the policy wrote can only pass or fail: an answer that cannot be read is wrong.
"""

from __future__ import annotations

import math
import re
import threading
import unicodedata
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from pydantic import Field

from trueup.errors import MissingExtraError
from trueup.types import Verdict, VerifierResult
from trueup.verifiers.base import Finding, VerifierSpec, run_check
from trueup.verifiers.plan.names import normalise_name

__all__ = ["ExactAnswer", "MathAnswer", "NumericAnswer", "QuantityAnswer", "parse_number"]

_MAX_CHARS = 500
_NUMBER = re.compile(r"[+-]?(\d+(?:,\d{3})+|\d+)?(\.\d+)?([eE][+-]?\d{1,4})?", re.ASCII)
_FRACTION = re.compile(r"([+-]?\d{1,40})\s*/\s*(\d{1,40})", re.ASCII)


def parse_number(text: str) -> Fraction | None:
    """An exact number from "12", "-3.50", "1,250", "2e-3", "3/4" or "12.5%"; None for anything else.

    The whole text must be the number. "1,25" is none: it is 1.25 to half of the world and a typing error to
    the other half. NaN and infinity are none.
    """
    text = unicodedata.normalize("NFKC", text).strip().replace("−", "-")
    percent = text.endswith("%")
    text = text[:-1].rstrip() if percent else text
    value: Fraction | None = None
    if match := _FRACTION.fullmatch(text):
        value = Fraction(int(match[1]), int(match[2])) if int(match[2]) else None
    elif len(text) <= 80 and (match := _NUMBER.fullmatch(text)) and (match[1] or match[2]):
        try:
            number = Decimal(text.replace(",", ""))
        except InvalidOperation:
            return None
        if abs(number.adjusted()) <= 400:
            value = Fraction(number)
    if value is None:
        return None
    return value / 100 if percent else value


class ExactAnswer(VerifierSpec):
    """The answer is one of `accepted`, after NFKC, case folding and trimming unless `strict`."""

    name: str = "exact_answer"
    role: Any = "obligation"
    accepted: tuple[str, ...] = Field(min_length=1)
    strict: bool = False

    def verify(self, answer: Any) -> VerifierResult:
        return run_check(self, self._check, answer)

    def _check(self, answer: Any) -> Finding:
        if not isinstance(answer, str):
            return Finding(Verdict.FAIL, None, (type(answer).__name__,), "the answer is no text")
        fold = (lambda s: s) if self.strict else normalise_name
        right = fold(answer) in {fold(a) for a in self.accepted}
        return Finding(Verdict.PASS) if right else Finding(Verdict.FAIL, None, (answer[:80],))


class NumericAnswer(VerifierSpec):
    """The answer is a number within `absolute` or `relative` tolerance of `value`, compared exactly.
    Margin: tolerance left, in the number's own unit."""

    name: str = "numeric_answer"
    role: Any = "obligation"
    value: str
    absolute: str = "0"
    relative: str = "0"

    def verify(self, answer: Any) -> VerifierResult:
        return run_check(self, self._check, answer)

    def _check(self, answer: Any) -> Finding:
        truth = parse_number(self.value)
        allowed = _tolerance(truth, self.absolute, self.relative)
        if truth is None or allowed is None:
            return Finding(Verdict.UNKNOWN, None, (self.value,), "the reference is no number")
        given = _as_number(answer)
        if given is None:
            return Finding(Verdict.FAIL, None, (str(answer)[:80],), "the answer is no number")
        return _by_slack(allowed - abs(given - truth), str(answer))


def _tolerance(truth: Fraction | None, absolute: str, relative: str) -> Fraction | None:
    a, r = parse_number(absolute), parse_number(relative)
    if truth is None or a is None or r is None or a < 0 or r < 0:
        return None
    return max(a, r * abs(truth))


def _as_number(answer: Any) -> Fraction | None:
    if isinstance(answer, str):
        return parse_number(answer)
    if isinstance(answer, bool) or not isinstance(answer, (int, float)) or not math.isfinite(answer):
        return None
    return Fraction(repr(answer)) if isinstance(answer, float) else Fraction(answer)


def _by_slack(slack: Fraction, answer: str) -> Finding:
    """Decided exactly; the float margin is for people and never decides."""
    margin = float(slack)
    if slack < 0:
        return Finding(Verdict.FAIL, min(margin, -math.ulp(0.0)), (answer[:80],))
    return Finding(Verdict.PASS, max(margin, 0.0))


class QuantityAnswer(VerifierSpec):
    """A number with a unit, compared after conversion; needs the extra `answers` (pint). An answer without a
    unit fails, whatever its number, and so does one of another dimension."""

    name: str = "quantity_answer"
    role: Any = "obligation"
    value: str
    unit: str
    absolute: str = "0"
    relative: str = "0"

    def verify(self, answer: Any) -> VerifierResult:
        _pint()  # a missing package is the caller's mistake, not an `error` of the check
        return run_check(self, self._check, answer)

    def _check(self, answer: Any) -> Finding:
        registry = _pint()
        truth = parse_number(self.value)
        allowed = _tolerance(truth, self.absolute, self.relative)
        target = _parse_unit(registry, self.unit)
        if truth is None or allowed is None or target is None:
            return Finding(
                Verdict.UNKNOWN, None, (f"{self.value} {self.unit}",), "the reference is unreadable"
            )
        match = re.fullmatch(
            r"\s*([^A-Za-z°µΩ%]*?(?:[eE][+-]?\d+)?)\s*([A-Za-z°µΩ%].{0,60}?)\s*", str(answer)
        )
        number = parse_number(match[1]) if match else None
        unit = _parse_unit(registry, match[2]) if match else None
        if number is None or unit is None:
            return Finding(Verdict.FAIL, None, (str(answer)[:80],), "the answer is no number with a unit")
        if unit.dimensionality != target.dimensionality:
            return Finding(Verdict.FAIL, None, (str(answer)[:80],), f"{unit} does not measure {target}")
        converted = registry.Quantity(number, unit).to(target).magnitude
        return _by_slack(allowed - abs(Fraction(converted) - truth), str(answer))


_QUANTITY = re.compile(r"\s*([^A-Za-z°µΩ%]*?(?:[eE][+-]?\d+)?)\s*([A-Za-z°µΩ%].{0,60}?)\s*")
_REGISTRY: Any = None


def _pint() -> Any:
    """One exact unit registry, made on first use."""
    global _REGISTRY
    if _REGISTRY is None:
        try:
            import pint
        except ImportError:
            raise MissingExtraError("Comparing quantities", "answers", "pint") from None
        _REGISTRY = pint.UnitRegistry(non_int_type=Fraction)
    return _REGISTRY


def _parse_unit(registry: Any, text: str) -> Any:
    try:
        unit = registry.parse_units(text)
    except Exception:  # pint raises half a dozen unrelated types for text that is no unit
        return None
    return None if unit.dimensionless and "%" not in text and text not in ("radian", "rad") else unit


class MathAnswer(VerifierSpec):
    """The answer is mathematically equal to `value`: math-verify behind a guard, by the extra `answers`.

    math-verify by itself accepts some wrong answers: the right side of any equation ("4=5" for 5), a number
    with another unit ("7 m" for "7 cm"), a one-element set for its element, a list in another order; and it
    picks one expression out of prose. So the guard wants exactly one final answer (the whole text, or one
    distinct \\boxed{…}), compares shape first (equation, set, list, units), and only then asks.
    """

    name: str = "math_answer"
    role: Any = "obligation"
    value: str
    ordered: bool = True  # lists must be in the reference's order

    def verify(self, answer: Any) -> VerifierResult:
        _math_verify()
        return run_check(self, self._check, answer)

    def _check(self, answer: Any) -> Finding:
        if threading.current_thread() is not threading.main_thread():
            return Finding(Verdict.UNKNOWN, None, (), "its time limit works in the main thread only")
        if not isinstance(answer, str):
            return Finding(Verdict.FAIL, None, (str(answer)[:80],), "the answer is no text")
        truth, given = _final_answer(self.value), _final_answer(answer)
        if truth is None:
            return Finding(Verdict.UNKNOWN, None, (self.value[:80],), "the reference is not one expression")
        if given is None:
            return Finding(Verdict.FAIL, None, (answer[:80],), "there is not exactly one final answer")
        if why := _shapes_differ(truth, given, self.ordered):
            return Finding(Verdict.FAIL, None, (given[:80],), why)
        parse, verify = _math_verify()
        left, right = parse(f"${truth}$"), parse(f"${given}$")
        if not left:
            return Finding(Verdict.UNKNOWN, None, (truth[:80],), "the reference cannot be parsed")
        # Both directions: equality is symmetric, the library is not.
        if right and verify(left, right) and verify(right, left):
            return Finding(Verdict.PASS)
        return Finding(Verdict.FAIL, None, (given[:80],))


def _math_verify() -> tuple[Any, Any]:
    try:
        from math_verify import parse, verify
    except ImportError:
        raise MissingExtraError("Comparing mathematics", "answers", "math-verify") from None
    return parse, verify


def _boxed(text: str) -> Sequence[str]:
    """Contents of every \\boxed{…}, with balanced braces."""
    out = []
    for match in re.finditer(r"\\boxed\s*\{", text):
        depth, i = 1, match.end()
        while i < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[i], 0)
            i += 1
        if not depth:
            out.append(text[match.end() : i - 1].strip())
    return out


def _final_answer(text: str) -> str | None:
    """The one expression that the text commits to, or None."""
    if boxed := set(_boxed(text)):
        return _bare(boxed.pop()) if len(boxed) == 1 else None
    return None if len(text) > _MAX_CHARS or "\n" in text.strip() else _bare(text)


def _bare(text: str) -> str | None:
    text = text.strip().strip("$").strip().rstrip(".").strip()
    text = re.sub(r"\\(left|right|,|;|!|displaystyle)(?![A-Za-z])", "", text)
    words = re.findall(r"(?<![\\A-Za-z])[A-Za-z]{4,}", re.sub(r"\\(text|mathrm)\s*\{[^}]*\}", "", text))
    known = {"sqrt", "sinh", "cosh", "tanh"}
    prose = [w for w in words if w.lower() not in known]
    return None if not text or "$" in text or len(prose) > 1 else text


# Evaluating a tower of powers or a large factorial can take hours inside one uninterruptible call.
_HUGE = re.compile(r"\^\s*\{?[^{}]*\^|\^\s*\{?\s*-?\d{4,}|\*\*|\d{4,}\s*!|!\s*!|\)\s*!")
_UNIT = re.compile(r"(?<=[\d})])\s*(?:\\(?:text|mathrm)\s*\{\s*)?((?:[A-Za-zµ°]|\\circ|\\%|%){1,12})\}?$")


def _shapes_differ(truth: str, given: str, ordered: bool) -> str:
    """Why the two cannot be equal whatever their parts are worth, or an empty string."""
    left, right = _variable(truth), _variable(given)
    if "" in (left, right):
        return "an equation must name one variable on its left"
    if left is not None and right is not None and left != right:
        return f"{right} is not {left}"
    if _HUGE.search(given):
        return "a number too large to be compared"
    a, b = (t.split("=", 1)[-1].strip() for t in (truth, given))
    if (a[:2] == "\\{") != (b[:2] == "\\{"):
        return "a set is not its element"
    if _unit_of(a) != _unit_of(b):
        return f"unit {_unit_of(b) or 'missing'} instead of {_unit_of(a) or 'none'}"
    if (
        ordered
        and "," in a
        and a[0] not in "\\(["
        and _parts(a) != _parts(b)
        and set(_parts(a)) == set(_parts(b))
    ):
        return "the list is in another order"
    return ""


def _variable(text: str) -> str | None:
    """None without an equation, the variable of "x = …", "" for any other equation."""
    if "=" not in text or re.search(r"\\(le|ge|neq)|[<>!]=", text):
        return None
    left = text.split("=", 1)[0].strip()
    return left if re.fullmatch(r"[A-Za-z](_\{?\w+\}?)?", left) and text.count("=") == 1 else ""


def _unit_of(text: str) -> str:
    match = _UNIT.search(text)
    unit = match[1] if match else ""
    # One letter right after a digit is a variable ("2x"); after a space it is a unit ("7 m").
    return "" if len(unit) == 1 and match and text[match.start() : match.start() + 1].strip() else unit


def _parts(text: str) -> list[str]:
    return [p.replace(" ", "") for p in text.split(",")]
