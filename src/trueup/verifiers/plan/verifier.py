"""`PlanVerifier`: compile a task once, verify many plans.

Three stages gate the rest, in this order, because each later one would judge nonsense otherwise:
`shape` (readable, all days once, ids unique), `identity` (every word means one row of the tables),
`calendar` (every time exists and is filed under its day). A failed stage leaves the other checks
`not_applicable` and the partial credit 0; an undecidable stage leaves them `unknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trueup.errors import DataError, MissingExtraError
from trueup.types import Rollout, Verdict, VerifierResult
from trueup.verifiers.base import (
    Case,
    CaseOutcome,
    Finding,
    Report,
    VerifierSpec,
    error_result,
    obligation_credit,
    require_valid,
    run_check,
    to_result,
    validate_cases,
)
from trueup.verifiers.plan.always import ALWAYS
from trueup.verifiers.plan.compiled import CompiledTrip, ResolvedPlan
from trueup.verifiers.plan.constraint import Check, Constraint
from trueup.verifiers.plan.constraints import parse_constraints
from trueup.verifiers.plan.model import Plan, TripTask, parse_plan

__all__ = ["STAGES", "PlanVerifier", "RolloutVerifier", "load_task", "read_data"]

STAGES = (
    VerifierSpec(name="shape", role="shape", unit="faults", basis="plan format trueup.plan/1"),
    VerifierSpec(name="identity", role="shape", unit="names", basis="the task's tables"),
    VerifierSpec(name="calendar", role="shape", unit="times", basis="IANA time zones"),
)
_OK = Finding(Verdict.PASS)


class PlanVerifier:
    """All checks of one task. `extra` adds constraint classes that the task file may then name.

    Raises `DataError` for a task that no plan should be trained on: one without an obligation (doing nothing
    would be best), with an obligation that the empty plan meets, or whose constraints do not parse.
    """

    def __init__(self, task: TripTask, extra: Sequence[type[Constraint]] = ()) -> None:
        self.task = task
        self.trip = CompiledTrip(task)
        declared = parse_constraints(task.constraints, extra, f"task {task.id!r}")
        self.constraints: list[Constraint] = [*declared, *(cls(check=_name_of(cls)) for cls in ALWAYS)]
        pairs = [(c.spec(self.trip), c.compile(self.trip)) for c in self.constraints]
        pairs.sort(key=lambda pair: pair[0].role != "obligation")  # obligations before prohibitions
        self.checks: list[tuple[VerifierSpec, Check]] = pairs
        self._check_names()
        self._require_obligation()

    @classmethod
    def load(cls, path: str | Path, extra: Sequence[type[Constraint]] = ()) -> PlanVerifier:
        return cls(load_task(path), extra)

    @property
    def specs(self) -> tuple[VerifierSpec, ...]:
        """All checks in the order of a report."""
        return (*STAGES, *(spec for spec, _ in self.checks))

    def verify(self, answer: Any) -> Report:
        """Judge one plan (text, bytes, dict or `Plan`). Never raises for anything an answer can contain."""
        results: list[VerifierResult] = []
        resolved = self._resolve(answer, results)
        if resolved is None:
            stage = results[-1]
            verdict = Verdict.NOT_APPLICABLE if stage.verdict is Verdict.FAIL else Verdict.UNKNOWN
            skipped = Finding(verdict, None, (), f"not reached: {stage.name} is {stage.verdict}")
            rest = self.specs[len(results) :]
            return Report((*results, *(to_result(spec, skipped) for spec in rest)))
        results += [run_check(spec, check, resolved) for spec, check in self.checks]
        return Report(tuple(results))

    def verify_many(self, answers: Iterable[Any]) -> list[Report]:
        return [self.verify(answer) for answer in answers]

    def resolve(self, answer: Any) -> ResolvedPlan | None:
        """The plan against the tables, or None when it does not get through the three stages."""
        return self._resolve(answer, [])

    def validate(self) -> list[CaseOutcome]:
        """The task's own examples: gold passes, each known-bad plan fails exactly its check."""
        return validate_cases(self.verify, self._cases())

    def require_valid(self) -> None:
        """Raise `DataError` when the task contradicts its own examples."""
        require_valid(self.verify, self._cases(), self.task.id)

    def _cases(self) -> list[Case]:
        gold = [] if self.task.gold is None else [Case(self.task.gold, None, "gold")]
        return gold + [
            Case(bad.plan, bad.breaks, f"known_bad[{i}]") for i, bad in enumerate(self.task.known_bad)
        ]

    def _resolve(self, answer: Any, results: list[VerifierResult]) -> ResolvedPlan | None:
        shape, identity, calendar = STAGES
        trip = self.trip
        try:
            plan, finding = _read(answer, trip)
            results.append(to_result(shape, finding))
            if plan is None:
                return None
            finding, found = trip.resolve_names(plan)
            results.append(to_result(identity, finding))
            if finding.verdict is not Verdict.PASS:
                return None
            finding, steps = trip.resolve_times(found)
            results.append(to_result(calendar, finding))
            if finding.verdict is not Verdict.PASS:
                return None
            return ResolvedPlan(trip, tuple(steps), plan.claims)
        except Exception as exception:  # the fault boundary of the stages
            results.append(error_result(STAGES[min(len(results), 2)], exception))
            return None

    def _check_names(self) -> None:
        names = [spec.name for spec in self.specs]
        if twice := sorted({n for n in names if names.count(n) > 1}):
            raise DataError(
                f"Task {self.task.id!r} must name each check once, got {', '.join(twice)} twice. A report "
                "could not tell them apart. Give each line its own `name`."
            )

    def _require_obligation(self) -> None:
        empty = {"days": [{"day": i + 1, "date": d, "items": []} for i, d in enumerate(self.trip.dates)]}
        report = self.verify(empty)
        obliged = [r for r in report.results if r.role == "obligation" and r.hard]
        if met := [r.name for r in obliged if r.verdict is Verdict.PASS]:
            raise DataError(
                f"Task {self.task.id!r}: an obligation must fail for the plan that does nothing, got "
                f"{', '.join(met)} passing. Doing nothing would be paid. State what must be done."
            )
        if not any(r.verdict is Verdict.FAIL for r in obliged) or obligation_credit(report.results) > 0:
            raise DataError(
                f"Task {self.task.id!r} must state at least one obligation, got none. The empty plan breaks "
                "no prohibition, so doing nothing would be best. Add must_visit, nights, meals or a count."
            )


def _name_of(cls: type[Constraint]) -> str:
    return str(cls.model_fields["check"].default)


def _read(answer: Any, trip: CompiledTrip) -> tuple[Plan | None, Finding]:
    """Shape: the format, then the days. What the policy wrote can fail here, and only fail."""
    try:
        plan = parse_plan(answer)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        where = tuple(f"{'.'.join(str(p) for p in f['loc']) or 'plan'}: {f['msg']}" for f in faults[:20])
        return None, Finding(Verdict.FAIL, -float(len(faults)), where)
    except (ValueError, TypeError, RecursionError) as error:
        return None, Finding(Verdict.FAIL, -1.0, (str(error)[:200],))
    finding = trip.check_days(plan)
    return (None, finding) if finding.verdict is Verdict.FAIL else (plan, _OK)


def read_data(path: str | Path) -> Any:
    """Plain data of a JSON file, or of a YAML file with the extra `plans`. Raises `DataError` for a file
    that cannot be read, and for NaN or a repeated key, which JSON readers disagree about."""
    import json

    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} must be a readable UTF-8 file, got {error}. Nothing was judged.") from None
    if path.suffix.lower() in (".yaml", ".yml"):
        return _parse_yaml(text, path)

    def no_constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    try:
        return json.loads(text, parse_constant=no_constant, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} must be JSON, got {error}. Nothing was judged. Mend the file.") from None


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object from its pairs; a key given twice is an error."""
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key is given twice")
    return out


def _parse_yaml(text: str, path: Path) -> Any:
    try:
        import yaml
    except ImportError:
        raise MissingExtraError("Reading a YAML task", "plans", "PyYAML") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise DataError(f"{path} must be YAML, got {error}. Nothing was judged. Mend the file.") from None


def load_task(path: str | Path) -> TripTask:
    """Read a task file. Raises `DataError` when it is not one."""
    return TripTask.from_dict(read_data(path), str(path))


class RolloutVerifier:
    """Plan verification where a loop wants a verifier of rollouts: `verify(rollouts)` answers one verdict each.

    `rollout.task` is a `TripTask`, or what `task_of` makes one from; the completion is the plan. Each task is
    compiled once. For partial credit use `report` with `trueup.rewards.gate` instead: a loop knows only that a
    hard constraint failed.
    """

    def __init__(
        self,
        task_of: Callable[[Any], TripTask] | None = None,
        extra: Sequence[type[Constraint]] = (),
    ) -> None:
        self._task_of = task_of
        self._extra = tuple(extra)
        self._verifiers: dict[str, PlanVerifier] = {}

    def report(self, rollout: Rollout) -> Report:
        """All checks of one rollout. Raises `DataError` when its task is none."""
        task = rollout.task if self._task_of is None else self._task_of(rollout.task)
        if not isinstance(task, TripTask):
            raise DataError(
                f"rollout.task must be a TripTask, got {type(task).__name__}. Nothing could be verified. Pass "
                "task_of to make one from it."
            )
        known = self._verifiers.get(task.id)
        if known is None or (known.task is not task and known.task != task):
            known = self._verifiers[task.id] = PlanVerifier(task, self._extra)
        return known.verify(rollout.completion)

    def verify(self, rollouts: Sequence[Rollout]) -> list[Verdict]:
        """fail where a hard check failed, unknown where one could not tell, else pass."""
        word = {True: Verdict.PASS, False: Verdict.FAIL, None: Verdict.UNKNOWN}
        return [word[self.report(r).feasible] for r in rollouts]
