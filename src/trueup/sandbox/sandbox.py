"""`Sandbox`: run untrusted programs, judge what they returned, outside.

    with Sandbox() as sandbox:
        grade = sandbox.grade_calls("def solve(x): return x * x", inputs=[[3], [4]], expected=[9, 16])

The candidate's process receives the source and the inputs. It never receives an expected value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from types import TracebackType
from typing import Any

from trueup.errors import ConfigError
from trueup.sandbox.backends import choose, start_worker
from trueup.sandbox.base import CallResult, CallsResult, ExecResult, Grade, Limits
from trueup.sandbox.judge import Tolerance, judge_calls
from trueup.sandbox.pool import Pool, Ran
from trueup.sandbox.wire import Job, RawRun, calls_of, read_calls
from trueup.types import Score

__all__ = ["Sandbox"]


class Sandbox:
    """A pool of isolated workers for untrusted Python programs.

    `slots` programs run at a time. `backend` is "auto" (the best that works here) or a name; `packages` are
    the top-level packages of site-packages that candidates may import. Raises `SandboxUnavailable` on
    entering where nothing can isolate; with `unsafe_no_isolation=True` programs then run bare, and every
    result says `unsafe`. Methods may be called from several threads.
    """

    def __init__(
        self,
        slots: int = 2,
        backend: str = "auto",
        limits: Limits | None = None,
        unsafe_no_isolation: bool = False,
        packages: Sequence[str] = (),
    ) -> None:
        if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:
            raise ConfigError(
                f"slots must be a whole number of at least 1, got {slots!r}. No program could run. "
                "Use about the number of processors."
            )
        self.slots = slots
        self.limits = limits or Limits()
        self._asked = backend
        self._unsafe_ok = unsafe_no_isolation
        self._packages = tuple(packages)
        self._pool: Pool | None = None
        self.backend = ""  # the name of the backend in use, once started

    def __enter__(self) -> Sandbox:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Choose the backend; `with` does this. Does nothing if started."""
        if self._pool is None:
            self.backend = choose(self._asked, self._packages, self._unsafe_ok)
            self._pool = Pool(self.slots, lambda: start_worker(self.backend, self._packages))

    def close(self) -> None:
        """End all workers; `with` does this."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

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
        job = Job("calls", source, limits or self.limits, function, calls)
        ran = self._execute(job)
        n = len(calls)
        if ran.run is None:
            reason = "suspect" if ran.suspect else "unscored"
            results = (CallResult(None, reason, ran.unavailable),) * n
            return CallsResult(results, b"", b"", 0.0, 0.0, self.backend, self.unsafe, _unscored(ran))
        run = ran.run
        return CallsResult(
            read_calls(run, n), run.stdout, run.stderr, run.cpu_s, run.wall_s, self.backend, self.unsafe
        )

    def run_script(self, source: str, stdin: str | bytes = "", limits: Limits | None = None) -> ExecResult:
        """Run `source` as a program with `stdin`. Nothing is judged; the exit code is only reported."""
        data = stdin.encode("utf-8", "surrogateescape") if isinstance(stdin, str) else stdin
        ran = self._execute(Job("script", source, limits or self.limits, stdin=data))
        run = ran.run
        if run is None:
            reason = "suspect" if ran.suspect else None
            unscored = _unscored(ran)
            return ExecResult(b"", b"", None, reason, 0.0, 0.0, {}, self.backend, self.unsafe, unscored)
        reason = run.stopped or (f"signal_{run.signal}" if run.signal is not None else None)
        return ExecResult(
            run.stdout,
            run.stderr,
            run.exit,
            reason,
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
    ) -> Grade:
        """The share of calls that return the expected value, as a `Grade`.

        Raises `ConfigError` when there is nothing to compare or the lengths differ.
        """
        if len(inputs) != len(expected) or not inputs:
            raise ConfigError(
                f"inputs and expected must be of one length above 0, got {len(inputs)} and {len(expected)}. "
                "No share could be formed. Give one expected value per call."
            )
        result = self.run(source, inputs, limits, function)
        if result.unscored is not None:
            return Grade(result.unscored, (), unsafe=self.unsafe, backend=self.backend)
        verdicts = judge_calls(result.calls, expected, tolerance or Tolerance())
        return Grade(
            Score(sum(v.passed for v in verdicts) / len(verdicts)),
            verdicts,
            result.cpu_s,
            result.wall_s,
            any(v.reason == "suspect" for v in verdicts),
            self.unsafe,
            self.backend,
        )

    def grade_many(
        self,
        jobs: Sequence[Mapping[str, Any]],
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Grade]:
        """`grade_calls(**job)` for every job, all slots busy, in the order of the jobs.

        `progress(done, total)` is called after each, on this thread.
        """
        self.start()
        with ThreadPoolExecutor(self.slots, thread_name_prefix="trueup-grade") as threads:
            pending = [threads.submit(self.grade_calls, **job) for job in jobs]
            for done, future in enumerate(as_completed(pending), start=1):
                future.result()
                if progress is not None:
                    progress(done, len(pending))
        return [future.result() for future in pending]

    def _execute(self, job: Job) -> Ran:
        if len(job.source) > job.limits.source_kb * 1024:
            return Ran(RawRun(True, b"", b"", b"", None, None, "source_too_large", 0.0, 0.0, {}))
        self.start()
        assert self._pool is not None
        return self._pool.execute(job)


def _unscored(ran: Ran) -> Score | None:
    return Score.unscored("sandbox_unavailable", ran.unavailable) if ran.unavailable else None
