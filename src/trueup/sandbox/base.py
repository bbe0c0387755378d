"""What a caller gives to the sandbox and gets back. Frozen values, no behaviour.

Two things must never be confused, so they have different types. *The candidate failed* is a scored 0.0 (or
a share) whose calls carry a `reason`. *It could not be graded* is `Score.unscored`, for faults of the
machine alone. `reason` is one of `FAILURES`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from trueup.errors import ConfigError

if TYPE_CHECKING:  # the judge reads these types too, and must start without NumPy
    from trueup.types import Score

__all__ = ["FAILURES", "CallResult", "CallVerdict", "CallsResult", "ExecResult", "Grade", "Limits"]

FAILURES: Mapping[str, str] = {
    "wrong_value": "returned plain data that differs from the expected value, in value or in type",
    "bad_type": "returned something that is not plain data, or too deep or too large to be read",
    "exception": "raised an exception in this call",
    "load_error": "could not be loaded: a syntax error, or an exception at its top level",
    "no_function": "defines no such function",
    "missing_records": "ended before it had answered this call",
    "forged_stream": "wrote to the record stream itself; nothing of this run counts",
    "cpu_limit": "used up its CPU time",
    "call_timeout": "used up the CPU time of one call",
    "timeout": "used up its wall time without using its CPU time",
    "memory": "ran out of the memory that it may use",
    "output_limit": "wrote more than it may",
    "source_too_large": "is longer than a source may be",
    "not_run": "was not run, because an earlier test had failed and all were needed",
    "exit_code": "ended with an exit code other than 0 (scripts only)",
    "check_failed": "did not satisfy the task's own check",
    "check_error": "made the task's own check raise an exception; its author may want to look",
    "missing_artefact": "did not leave the file that was asked for, or not in a form that can be read",
    "suspect": "fresh workers (or judges) died on it each time, and a known program ran well in between",
}
"""Why a candidate was not paid, beside `signal_<n>`: killed by signal n, not by us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one run may use. The defaults suit programming exercises."""

    cpu_s: float = 2.0
    """CPU seconds of the run: the limit that judges. A loaded machine does not use it up."""
    wall_s: float = 8.0
    """Wall seconds, the backstop for programs that sleep: 3 to 5 times `cpu_s`."""
    memory_mb: int = 512
    """Address space of each process, in MiB, beyond the interpreter's own."""
    output_kb: int = 256
    """KiB that may be written to each of standard output, standard error and the record stream."""
    tmp_mb: int = 32
    """Size of the private /tmp, in MiB."""
    tmp_inodes: int = 512
    """How many files and directories /tmp may hold."""
    n_processes: int = 1
    """Processes at a time. At 1 the run can neither fork nor execute another program."""
    n_threads: int = 16
    """Threads at a time, beside the main one."""
    call_cpu_s: float | None = None
    """CPU seconds of one call; None: no limit but the run's. A later call goes on after one that exceeds it.
    A hostile candidate can ignore it, and then still has the run's limit; see `one_process_per_call`."""
    source_kb: int = 1024
    """KiB of source; a longer one is refused unread."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is None and item.name == "call_cpu_s":
                continue
            whole = item.name not in ("cpu_s", "wall_s", "call_cpu_s")
            good = not isinstance(value, bool) and isinstance(value, int if whole else (int, float))
            if not good or not math.isfinite(value) or value <= 0:
                raise ConfigError(
                    f"Limits.{item.name} must be a positive {'whole ' * whole}number, got {value!r}. "
                    "No run could be bounded by it. Give a positive value."
                )
        if self.wall_s < self.cpu_s:
            raise ConfigError(
                f"Limits.wall_s must be at least cpu_s ({self.cpu_s} s), got {self.wall_s}. "
                "A loaded machine would then fail honest programs. Use 3 to 5 times cpu_s."
            )


@dataclass(frozen=True, slots=True)
class ExecResult:
    """One script's run, unjudged. `reason` is None when it ended by itself, whatever its exit code."""

    stdout: bytes
    stderr: bytes
    exit: int | None  # None when it was killed
    reason: str | None
    cpu_s: float
    wall_s: float
    artefacts: Mapping[str, bytes] = field(default_factory=dict)
    backend: str = ""
    unsafe: bool = False  # ran without isolation
    unscored: Score | None = None  # set when the machine, not the script, failed


@dataclass(frozen=True, slots=True)
class CallResult:
    """What one call returned: plain data in `value` when `reason` is None."""

    value: Any
    reason: str | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class CallsResult:
    """All calls of one run, unjudged, in the order of the inputs."""

    calls: tuple[CallResult, ...]
    stdout: bytes
    stderr: bytes
    cpu_s: float
    wall_s: float
    backend: str = ""
    unsafe: bool = False
    unscored: Score | None = None


@dataclass(frozen=True, slots=True)
class CallVerdict:
    """One test: `reason` is one of `FAILURES` (or `signal_<n>`), None when it passed."""

    passed: bool
    reason: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Grade:
    """The share of tests passed, or the reason why that could not be found out."""

    score: Score
    calls: tuple[CallVerdict, ...]
    cpu_s: float = 0.0
    wall_s: float = 0.0
    suspect: bool = False  # its runs kill workers; worth a person's look
    unsafe: bool = False  # ran without isolation; do not train on it
    backend: str = ""
    cached: bool = False

    @property
    def reason(self) -> str | None:
        """The first failing test's reason, or why there is no score; None when all passed."""
        if not self.score.is_scored:
            return self.score.reason
        return next((call.reason for call in self.calls if not call.passed), None)
