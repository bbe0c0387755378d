"""From a task to a grade: plan the runs, make them, have the judge look at what came back.

What is sent to the sandbox and what is sent to the judge are built apart here, and no expected value, check
or test is ever part of a `Job`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from trueup.errors import ConfigError, InfrastructureError
from trueup.sandbox.base import CallVerdict, Grade, Limits
from trueup.sandbox.cache import VerdictCache
from trueup.sandbox.judge import Tolerance
from trueup.sandbox.judging import JudgePool, SuspectError
from trueup.sandbox.pool import Ran
from trueup.sandbox.scripts import COMPARATORS, check_reference
from trueup.sandbox.wire import Call, Job, RawRun, read_calls
from trueup.types import Score

__all__ = ["Grader"]

_MAX_ROUNDS = 12  # of record and replay, for tests whose calls depend on earlier results


class _UnscoredError(Exception):
    def __init__(self, score: Score) -> None:
        super().__init__(score.detail)
        self.score = score


@dataclass
class _Tally:
    """Verdicts and costs of one grade as its runs come in."""

    verdicts: list[CallVerdict] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    wall_s: float = 0.0
    suspect: bool = False

    def add(self, share: float, reason: str | None, detail: str) -> None:
        share = float(share)
        self.shares.append(share)
        self.verdicts.append(CallVerdict(share == 1.0, reason, detail))
        self.suspect = self.suspect or reason == "suspect"

    def fill(self, n: int, reason: str, detail: str = "") -> None:
        for _ in range(n):
            self.add(0.0, reason, detail)

    def took(self, run: RawRun) -> None:
        self.cpu_s += run.cpu_s
        self.wall_s += run.wall_s

    @property
    def failed(self) -> bool:
        return any(share < 1.0 for share in self.shares)


@dataclass(frozen=True)
class Grader:
    """Grades on one started sandbox."""

    execute: Callable[[Job], Ran]
    judges: JudgePool
    cache: VerdictCache
    backend: str
    image: str

    def calls(
        self,
        source: str,
        function: str,
        calls: tuple[Call, ...],
        expected: list[Any],
        limits: Limits,
        tolerance: Tolerance,
        *,
        one_process_per_call: bool,
        all_or_nothing: bool,
    ) -> Grade:
        """See `Sandbox.grade_calls`."""
        _require_tests(len(calls), len(expected), "inputs", "expected")
        task = [
            "calls", source, function, [[list(c.args), dict(c.kwargs)] for c in calls], expected,
            tolerance.rel, tolerance.abs, one_process_per_call, all_or_nothing,
        ]  # fmt: skip
        chunks = _chunks(len(calls), one_process_per_call, all_or_nothing)

        def grade(tally: _Tally) -> None:
            for start, stop in chunks:
                if all_or_nothing and tally.failed:
                    tally.fill(stop - start, "not_run")
                    continue
                run = self._run(
                    Job("calls", source, limits, function, calls[start:stop]), tally, stop - start
                )
                if run is None:
                    continue
                verdicts = self._ask(
                    "calls",
                    records=run.records,
                    ended=run.ended or "missing_records",
                    expected=expected[start:stop],
                    rel=float(tolerance.rel),
                    abs=float(tolerance.abs),
                )
                for verdict in verdicts or [[False, "suspect", ""]] * (stop - start):
                    tally.add(*verdict)

        return self._graded(limits, task, grade, all_or_nothing)

    def script(
        self,
        source: str,
        stdins: list[str],
        expected: list[str] | None,
        comparator: str,
        check: str | Callable[..., Any] | None,
        exit_code: int | None,
        limits: Limits,
        tolerance: Tolerance,
        all_or_nothing: bool,
    ) -> Grade:
        """See `Sandbox.grade_script`."""
        if (check is None) == (expected is None):
            raise ConfigError(
                "grade_script must be given either expected outputs or a check, got "
                f"{'neither' if check is None else 'both'}. The verdict would be undefined. Give one of them."
            )
        if comparator not in COMPARATORS:
            raise ConfigError(
                f"comparator must be one of {', '.join(COMPARATORS)}, got {comparator!r}. Nothing was run. "
                "Use 'tokens' for programming-contest outputs."
            )
        reference = None if check is None else check_reference(check)
        wanted: Sequence[str | None] = expected if expected is not None else [None] * len(stdins)
        _require_tests(len(stdins), len(wanted), "stdins", "expected")
        task = [
            "script", source, stdins, expected, comparator, reference, exit_code, tolerance.rel,
            tolerance.abs, all_or_nothing,
        ]  # fmt: skip

        def grade(tally: _Tally) -> None:
            for stdin, output in zip(stdins, wanted, strict=True):
                if all_or_nothing and tally.failed:
                    tally.fill(1, "not_run")
                    continue
                data = stdin.encode("utf-8", "surrogateescape")
                run = self._run(Job("script", source, limits, stdin=data), tally, 1)
                if run is None:
                    continue
                verdict = self._ask(
                    "script",
                    stdout=run.stdout,
                    ended=run.ended,
                    exit=run.exit,
                    need_exit=exit_code,
                    expected=output,
                    comparator=comparator,
                    check=reference,
                    stdin=data,
                    rel=float(tolerance.rel),
                    abs=float(tolerance.abs),
                )
                tally.add(*(verdict or [False, "suspect", ""]))

        return self._graded(limits, task, grade, all_or_nothing)

    def asserts(self, source: str, function: str, tests: list[str], helpers: str, limits: Limits) -> Grade:
        """See `Sandbox.grade_asserts`."""
        _require_tests(len(tests), len(tests), "tests", "tests")
        task = ["asserts", source, function, tests, helpers]

        def grade(tally: _Tally) -> None:
            test: dict[str, Any] = {"tests": tests, "helpers": helpers, "function": function}
            calls = self._ask("record_asserts", **test)
            for _ in range(_MAX_ROUNDS):
                if calls is None:
                    break
                flat = tuple(Call(tuple(args), kwargs) for block in calls for args, kwargs in block)
                run = self._run(Job("calls", source, limits, function, flat), tally, len(tests))
                if run is None:
                    return
                results = iter([_as_known(result) for result in read_calls(run, len(flat))])
                known = [[next(results) for _ in block] for block in calls]
                answers = self._ask("replay_asserts", calls=calls, results=known, **test)
                if answers is None:
                    break
                if all(answer[0] == "done" for answer in answers):
                    for _, passed, reason, detail in answers:
                        tally.add(passed, reason, detail)
                    return
                calls = [
                    answer[1] if answer[0] == "need" else block
                    for answer, block in zip(answers, calls, strict=True)
                ]
            else:
                tally.fill(
                    len(tests), "check_failed", "the calls of the test differ from one run to the next"
                )
                return
            tally.fill(len(tests), "suspect")

        return self._graded(limits, task, grade, all_or_nothing=False)

    def files(
        self,
        source: str,
        names: tuple[str, ...],
        check: str | Callable[..., Any],
        stdin: str,
        limits: Limits,
    ) -> Grade:
        """See `Sandbox.grade_files`."""
        reference = check_reference(check)
        _require_tests(len(names), len(names), "artefacts", "artefacts")
        task = ["files", source, list(names), reference, stdin]

        def grade(tally: _Tally) -> None:
            job = Job("script", source, limits, stdin=stdin.encode(), artefacts=names)
            run = self._run(job, tally, 1)
            if run is not None:
                verdict = self._ask(
                    "files", files=dict(run.artefacts), names=list(names), check=reference, ended=run.ended
                )
                tally.add(*(verdict or [False, "suspect", ""]))

        return self._graded(limits, task, grade, all_or_nothing=False)

    def _run(self, job: Job, tally: _Tally, n_tests: int) -> RawRun | None:
        """The run of a job; None when it was suspect, which then fails its `n_tests` tests."""
        ran = self.execute(job)
        if ran.unavailable:
            raise _UnscoredError(Score.unscored("sandbox_unavailable", ran.unavailable))
        if ran.run is None:
            tally.fill(n_tests, "suspect")
            return None
        tally.took(ran.run)
        return ran.run

    def _ask(self, kind: str, **request: Any) -> Any:
        """The judge's answer, None when judge after judge died on it."""
        try:
            return self.judges.ask(kind, **request)
        except SuspectError:
            return None
        except InfrastructureError as error:
            raise _UnscoredError(Score.unscored("scorer_error", str(error))) from error

    def _graded(
        self, limits: Limits, task: list[Any], grade: Callable[[_Tally], None], all_or_nothing: bool
    ) -> Grade:
        unsafe = self.backend == "unsafe"
        key = self.cache.key(self.image, limits, task)
        found = self.cache.get(key) if key else None
        if found is not None:
            return found
        tally = _Tally()
        try:
            grade(tally)
        except _UnscoredError as error:
            return Grade(error.score, (), tally.cpu_s, tally.wall_s, False, unsafe, self.backend)
        share = sum(tally.shares) / len(tally.shares)
        result = Grade(
            Score(float(share == 1.0) if all_or_nothing else share),
            tuple(tally.verdicts),
            tally.cpu_s,
            tally.wall_s,
            tally.suspect,
            unsafe,
            self.backend,
        )
        self.cache.put(key, result)
        return result


def _require_tests(n_left: int, n_right: int, left: str, right: str) -> None:
    if n_left != n_right or not n_left:
        raise ConfigError(
            f"{left} and {right} must be of one length above 0, got {n_left} and {n_right}. "
            "No share could be formed. Give one expected value per test."
        )


def _chunks(n: int, one_process_per_call: bool, all_or_nothing: bool) -> list[tuple[int, int]]:
    """Which calls share a process. All do, but where the first failure ends the matter, a few go first."""
    if one_process_per_call:
        return [(i, i + 1) for i in range(n)]
    if not all_or_nothing:
        return [(0, n)]
    chunks, start, size = [], 0, 1
    while start < n:
        stop = min(n, start + size)
        chunks.append((start, stop))
        start, size = stop, size * 8
    return chunks


def _as_known(result: Any) -> list[Any]:
    """A result as the stand-in of a replay wants it: a value, an exception to raise, or no answer at all."""
    if result.reason is None:
        return ["ok", result.value]
    if result.reason == "exception":
        return ["error", result.detail.partition(":")[0]]
    return ["failed", result.reason]
