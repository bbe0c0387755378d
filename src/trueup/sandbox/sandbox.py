"""`Sandbox`: run untrusted programs, judge what they returned, outside.

    with Sandbox() as sandbox:
        grade = sandbox.grade_calls("def solve(x): return x * x", inputs=[[3], [4]], expected=[9, 16])

The candidate's process receives the source and the inputs. It never receives an expected value. What it
returns is judged in a third process, which holds the expected values and can be killed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from types import TracebackType
from typing import Any, Protocol

from trueup.errors import ConfigError
from trueup.sandbox.backends import choose, start_worker
from trueup.sandbox.base import CallResult, CallsResult, ExecResult, Grade, Limits
from trueup.sandbox.cache import VerdictCache
from trueup.sandbox.grading import Grader
from trueup.sandbox.judge import Tolerance
from trueup.sandbox.judging import JudgePool
from trueup.sandbox.pool import Pool, Ran
from trueup.sandbox.remote import RemotePool
from trueup.sandbox.wire import Job, RawRun, calls_of, read_calls
from trueup.types import Score

__all__ = ["Sandbox"]


class _Executor(Protocol):
    """Runs jobs to outcomes that can be judged: a local pool, remote workers, a cluster."""

    @property
    def in_flight(self) -> int: ...

    def execute(self, job: Job) -> Ran: ...

    def close(self) -> None: ...


class Sandbox:
    """A pool of isolated workers for untrusted Python programs.

    `slots` programs run at a time. `backend` is "auto" (the best that works here) or a name; `packages` are
    the top-level packages of site-packages that candidates may import. Raises `SandboxUnavailable` on
    entering where nothing can isolate; with `unsafe_no_isolation=True` programs then run bare, and every
    result says `unsafe`. `verdict_cache` is how many grades to remember, so that a program that the policy
    writes again is not run again. `workers` are addresses of remote workers (`trueup serve sandbox`) with
    their `token`, used by backend "remote", and by "auto" where nothing here can isolate. Backend "ray" runs
    `slots_per_node` programs on every node of the Ray cluster. For both, `slots` is how many jobs are in
    flight at a time. Methods may be called from several threads.
    """

    def __init__(
        self,
        slots: int = 2,
        backend: str = "auto",
        limits: Limits | None = None,
        unsafe_no_isolation: bool = False,
        packages: Sequence[str] = (),
        verdict_cache: int = 0,
        workers: Sequence[str] = (),
        token: str | None = None,
        slots_per_node: int = 2,
    ) -> None:
        if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:
            raise ConfigError(
                f"slots must be a whole number of at least 1, got {slots!r}. No program could run. "
                "Use about the number of processors."
            )
        self.slots = slots
        self.limits = limits or Limits()
        self.backend = ""  # the name of the backend in use, once started
        self._asked = backend
        self._unsafe_ok = unsafe_no_isolation
        self._packages = tuple(packages)
        self._workers = tuple(workers) if not isinstance(workers, str) else (workers,)
        self._token = token
        self._slots_per_node = slots_per_node
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._pool: _Executor | None = None
        self._judges: JudgePool | None = None
        self._cache = VerdictCache(verdict_cache)

    def __enter__(self) -> Sandbox:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Choose the backend; `with` does this, and so does the first run. Does nothing if started.

        After a fork the child starts workers of its own: two processes must not talk to one zygote.
        """
        if self._owner != os.getpid():
            self._lock, self._pool, self._judges = threading.Lock(), None, None
            self._owner = os.getpid()
        with self._lock:
            self._start()

    def _start(self) -> None:
        if self._pool is None:
            self.backend = choose(self._asked, self._packages, self._unsafe_ok, bool(self._workers))
            self._pool = self._make_pool()
            self._judges = JudgePool(min(self.slots, os.cpu_count() or 1))

    def _make_pool(self) -> _Executor:
        if self.backend == "remote":
            remote = RemotePool(self._workers, self._token)
            remote.health()
            return remote
        if self.backend == "ray":
            from trueup.sandbox.cluster import RayPool

            return RayPool(self._slots_per_node, packages=self._packages)
        return Pool(self.slots, lambda: start_worker(self.backend, self._packages))

    def close(self) -> None:
        """End all workers and judges; `with` does this."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if self._judges is not None:
            self._judges.close()
            self._judges = None

    @property
    def in_flight(self) -> int:
        """Runs that have begun or wait for a worker, for whoever schedules more."""
        return self._pool.in_flight if self._pool is not None else 0

    @property
    def unsafe(self) -> bool:
        """Whether programs run without isolation."""
        return self.backend == "unsafe"

    def run(
        self, source: str, inputs: Sequence[Any], limits: Limits | None = None, function: str = "solve"
    ) -> CallsResult:
        """Call `function` of `source` once per item of `inputs` (a list of positional arguments each).

        Nothing is judged. Raises `ConfigError` for inputs that are not plain data.
        """
        calls = calls_of(inputs)
        ran = self.execute(Job("calls", source, limits or self.limits, function, calls))
        n = len(calls)
        run = ran.run
        if run is None:
            reason = "suspect" if ran.suspect else "unscored"
            results = (CallResult(None, reason, ran.unavailable),) * n
            return CallsResult(results, b"", b"", 0.0, 0.0, self.backend, self.unsafe, _unscored(ran))
        results = read_calls(run, n)
        return CallsResult(results, run.stdout, run.stderr, run.cpu_s, run.wall_s, self.backend, self.unsafe)

    def run_script(
        self,
        source: str,
        stdin: str | bytes = "",
        limits: Limits | None = None,
        artefacts: Sequence[str] = (),
    ) -> ExecResult:
        """Run `source` as a program with `stdin`; bring back the files of /tmp that `artefacts` names.

        Nothing is judged; the exit code is only reported.
        """
        data = stdin.encode("utf-8", "surrogateescape") if isinstance(stdin, str) else stdin
        job = Job("script", source, limits or self.limits, stdin=data, artefacts=_names(artefacts))
        ran = self.execute(job)
        run = ran.run
        if run is None:
            reason = "suspect" if ran.suspect else None
            return ExecResult(b"", b"", None, reason, 0.0, 0.0, {}, self.backend, self.unsafe, _unscored(ran))
        return ExecResult(
            run.stdout,
            run.stderr,
            run.exit,
            run.ended,
            run.cpu_s,
            run.wall_s,
            run.artefacts,
            self.backend,
            self.unsafe,
        )

    def grade_calls(
        self,
        source: str,
        function: str = "solve",
        inputs: Sequence[Any] = (),
        expected: Sequence[Any] = (),
        *,
        limits: Limits | None = None,
        tolerance: Tolerance | None = None,
        one_process_per_call: bool = False,
        all_or_nothing: bool = False,
    ) -> Grade:
        """The share of calls that return the expected value, as a `Grade`.

        All calls share one process, unless `one_process_per_call`, where each also has the limits to itself.
        With `all_or_nothing` the score is 1.0 or 0.0, and calls after the first failure need not be run.
        Raises `ConfigError` when there is nothing to compare, the lengths differ, or a value is not plain.
        """
        return self._grader().calls(
            source,
            function,
            calls_of(inputs),
            list(expected),
            limits or self.limits,
            tolerance or Tolerance(),
            one_process_per_call=one_process_per_call,
            all_or_nothing=all_or_nothing,
        )

    def grade_script(
        self,
        source: str,
        stdins: Sequence[str] = (),
        expected: Sequence[str] | None = None,
        *,
        comparator: str = "tokens",
        check: str | Callable[[str, str], bool | float] | None = None,
        exit_code: int | None = 0,
        limits: Limits | None = None,
        tolerance: Tolerance | None = None,
        all_or_nothing: bool = False,
    ) -> Grade:
        """The share of runs, one per item of `stdins`, whose standard output is right.

        Right is what `comparator` says of it and `expected` (exact, tokens, lines, unordered_lines, floats),
        or what the task's `check(stdin, stdout)` answers, an importable function that the judge runs.
        `exit_code` is required of the program beside that (None: any); it is never enough.
        """
        return self._grader().script(
            source,
            list(stdins),
            None if expected is None else list(expected),
            comparator,
            check,
            exit_code,
            limits or self.limits,
            tolerance or Tolerance(rel=1e-6, abs=1e-9),
            all_or_nothing,
        )

    def grade_asserts(
        self,
        source: str,
        function: str,
        tests: str | Sequence[str],
        *,
        helpers: str = "",
        limits: Limits | None = None,
    ) -> Grade:
        """The share of assert-style test blocks that pass; a block defines `check(candidate)` or asserts.

        The tests are trusted code of the task's author and run in the judge; the candidate sees the calls
        they make and nothing else. `helpers` is trusted code that the tests need (in HumanEval: the prompt).
        """
        blocks = [tests] if isinstance(tests, str) else list(tests)
        return self._grader().asserts(source, function, blocks, helpers, limits or self.limits)

    def grade_files(
        self,
        source: str,
        artefacts: Sequence[str],
        check: str | Callable[[dict[str, Any]], bool | float],
        *,
        stdin: str = "",
        limits: Limits | None = None,
    ) -> Grade:
        """What the task's `check({name: content})` says of the files that the program leaves in /tmp.

        `.npy` (without pickle), `.csv`, `.json` and `.txt` are parsed, other files are bytes. A file that is
        not there, not regular, or larger than `output_kb` fails as `missing_artefact`.
        """
        names = _names(artefacts)
        return self._grader().files(source, names, check, stdin, limits or self.limits)

    def grade_many(
        self,
        jobs: Sequence[Mapping[str, Any]],
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Grade]:
        """`grade_calls(**job)` for every job, all slots busy, in the order of the jobs.

        A job may name another kind: `{"kind": "script", ...}` for `grade_script`, likewise `asserts` and
        `files`. `progress(done, total)` is called after each, on this thread.
        """
        self.start()
        with ThreadPoolExecutor(self.slots, thread_name_prefix="trueup-grade") as threads:
            pending = [threads.submit(self._grade_one, job) for job in jobs]
            try:
                for done, future in enumerate(as_completed(pending), start=1):
                    future.result()
                    if progress is not None:
                        progress(done, len(pending))
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                raise
        return [future.result() for future in pending]

    def _grade_one(self, job: Mapping[str, Any]) -> Grade:
        arguments = dict(job)
        kind = arguments.pop("kind", "calls")
        methods: dict[str, Callable[..., Grade]] = {
            "calls": self.grade_calls,
            "script": self.grade_script,
            "asserts": self.grade_asserts,
            "files": self.grade_files,
        }
        if kind not in methods:
            raise ConfigError(
                f"A job's kind must be one of {', '.join(methods)}, got {kind!r}. It was not run."
            )
        return methods[kind](**arguments)

    def execute(self, job: Job) -> Ran:
        """Run a job on a free slot, to an outcome that can be judged."""
        if len(job.source) > job.limits.source_kb * 1024:
            return Ran(RawRun(True, b"", b"", b"", None, None, "source_too_large", 0.0, 0.0, {}))
        self.start()
        assert self._pool is not None
        if job.artefacts and self.backend in ("landlock", "unsafe"):
            raise ConfigError(
                f"Artefacts must be left in a private /tmp, which the backend {self.backend} does not have. "
                "No program was run. Make bubblewrap work here (trueup doctor says how)."
            )
        return self._pool.execute(job)

    def _grader(self) -> Grader:
        self.start()
        assert self._judges is not None
        image = f"{self.backend}:{','.join(self._packages)}"
        return Grader(self.execute, self._judges, self._cache, self.backend, image)


def _unscored(ran: Ran) -> Score | None:
    return Score.unscored("sandbox_unavailable", ran.unavailable) if ran.unavailable else None


def _names(artefacts: Sequence[str]) -> tuple[str, ...]:
    names = (artefacts,) if isinstance(artefacts, str) else tuple(artefacts)
    for name in names:
        if not name or "/" in name or name in (".", ".."):
            raise ConfigError(
                f"Artefacts must be plain file names in /tmp, got {name!r}. A path could lead out of it. "
                "Name the file alone."
            )
    return names
