"""PDDL plans, validated by unified-planning's own validator; needs the extra `pddl`.

Three checks, in the order in which they can fail: `plan_syntax` (every line is a known action with known
objects), `plan_applicable` (each action's preconditions hold when it is taken), `plan_goal` (the goal holds
at the end). A domain or problem that cannot be read is the task's mistake and raises.
"""

from __future__ import annotations

from typing import Any

from trueup.errors import DataError, MissingExtraError
from trueup.types import Verdict
from trueup.verifiers.base import Finding, Report, VerifierSpec, error_result, to_result

__all__ = ["PddlVerifier"]

_SYNTAX = VerifierSpec(name="plan_syntax", role="shape", basis="PDDL domain and problem")
_APPLICABLE = VerifierSpec(name="plan_applicable", role="prohibition", basis="PDDL domain and problem")
_GOAL = VerifierSpec(name="plan_goal", role="obligation", basis="PDDL domain and problem")
_MAX_ACTIONS = 2_000


class PddlVerifier:
    """One planning problem, parsed once. Sequential plans, one `(action object …)` a line."""

    def __init__(self, domain: str, problem: str) -> None:
        try:
            from unified_planning.environment import get_environment
            from unified_planning.io import PDDLReader
        except ImportError:
            raise MissingExtraError("Validating PDDL plans", "pddl", "unified-planning") from None
        environment = get_environment()
        environment.credits_stream = None  # it prints a banner otherwise
        self._environment = environment
        self._reader: Any = PDDLReader()
        try:
            self._problem: Any = self._reader.parse_problem_string(domain, problem)
        except Exception as error:  # pyparsing, assertion and value errors alike
            raise DataError(
                f"The PDDL domain and problem must be readable, got {type(error).__name__}: {error}. No plan "
                "was judged. Mend the files."
            ) from None

    def verify(self, answer: Any) -> Report:
        """Judge one plan. The check that fails is the first that can; those after it are not applicable."""
        try:
            plan = self._parse(answer)
        except Exception as error:  # whatever the parser raises, the text came from the policy
            syntax = Finding(Verdict.FAIL, None, (str(error)[:200],))
            return self._report(syntax, None, None)
        ok = Finding(Verdict.PASS)
        try:
            with self._environment.factory.PlanValidator(
                problem_kind=self._problem.kind, plan_kind=plan.kind
            ) as validator:
                result = validator.validate(self._problem, plan)
        except Exception as error:
            failed = error_result(_APPLICABLE, error)
            return Report((to_result(_SYNTAX, ok), error_result(_GOAL, error), failed))
        if result:
            return self._report(ok, ok, ok)
        if result.inapplicable_action is not None:
            bad = Finding(
                Verdict.FAIL, None, (str(result.inapplicable_action),), "its preconditions do not hold"
            )
            return self._report(ok, bad, None)
        return self._report(ok, ok, Finding(Verdict.FAIL, None, (), "the goal does not hold at the end"))

    def _parse(self, answer: Any) -> Any:
        if not isinstance(answer, str):
            raise ValueError(f"the answer is no text but {type(answer).__name__}")
        lines = [line.split(";")[0].strip() for line in answer.splitlines()]
        lines = [line for line in lines if line]
        if len(lines) > _MAX_ACTIONS:
            raise ValueError(f"more than {_MAX_ACTIONS} actions")
        return self._reader.parse_plan_string(self._problem, "\n".join(lines))

    def _report(self, syntax: Finding, applicable: Finding | None, goal: Finding | None) -> Report:
        skipped = Finding(Verdict.NOT_APPLICABLE, None, (), "not reached")
        return Report(
            (
                to_result(_SYNTAX, syntax),
                to_result(_GOAL, goal or skipped),
                to_result(_APPLICABLE, applicable or skipped),
            )
        )
