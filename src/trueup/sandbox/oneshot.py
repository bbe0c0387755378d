"""One fresh process per run: under bubblewrap, or bare for those who insist (`unsafe`).

The host measures and ends the run. It follows the candidate's CPU clock by its process id and kills the
first process of the candidate's process namespace, upon which the kernel kills every other.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

from trueup.sandbox.guest.clock import cpu_used_s, why_stop
from trueup.sandbox.guest.runner import READY
from trueup.sandbox.streams import Streams
from trueup.sandbox.wire import Job, RawRun, outcome, pack_job

__all__ = ["CLEAN_ENV", "OneShot", "boot_code", "child_pid"]

CLEAN_ENV = {
    "PYTHONHASHSEED": "0",
    "LANG": "C.UTF-8",
    "HOME": "/tmp",
    "PATH": "/usr/bin:/bin",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""All that a candidate finds in its environment. Hash order and the number of threads of numerical libraries are
fixed, so that equal runs give equal bytes and use no processor beside their own."""

_START_S = 30.0  # a process that has not come as far as the candidate by then has failed


def boot_code(guest_parent: str, package: str, packages: Sequence[str], entry: str) -> str:
    """The program given to the interpreter inside: find the guest package and call its entry point."""
    return (
        f"import sys; sys.path.insert(0, {guest_parent!r}); from {package}.main import {entry}; del sys.path[0]; "
        f"sys.path.extend({list(packages)!r}); {entry}()"
    )


class OneShot:
    """Run each job in a process of its own. `argv(info_fd)` gives the command up to the guest's arguments."""

    def __init__(
        self,
        argv: Callable[[int], list[str]],
        walls: dict[str, Any],
        *,
        pass_fds: tuple[int, ...] = (),
        info: bool = False,
        scratch: Callable[[], contextlib.AbstractContextManager[str]] | None = None,
    ) -> None:
        self._argv = argv
        self._walls = json.dumps(walls)
        self._pass_fds = pass_fds
        self._info = info
        self._scratch = scratch

    def run(self, job: Job) -> RawRun:
        """The raw outcome of one job. Does not raise for anything the candidate or the machine does."""
        with contextlib.ExitStack() as stack:
            cap = job.limits.output_kb * 1024
            streams = stack.enter_context(Streams(pack_job(job), job.stdin, cap, bool(job.artefacts)))
            info_read, info_write = os.pipe() if self._info else (-1, -1)
            if self._info:
                stack.callback(os.close, info_read)
                streams.writers.append(info_write)
            argv = self._argv(info_write)
            argv += [str(streams.job_fd), str(streams.writers[2]), str(streams.side_fd), self._walls]
            try:
                process = subprocess.Popen(
                    argv,
                    stdin=streams.stdin_fd,
                    stdout=streams.writers[0],
                    stderr=streams.writers[1],
                    pass_fds=(streams.job_fd, *streams.writers[2:], *self._pass_fds),
                    env=CLEAN_ENV,
                    cwd=stack.enter_context(self._scratch()) if self._scratch else None,
                    start_new_session=True,
                )
            except OSError as error:
                return RawRun.faulty(f"could not start {argv[0]}: {error}")
            streams.hand_over()
            return self._follow(process, child_pid(info_read) if self._info else process.pid, streams, job)

    def _follow(
        self, process: subprocess.Popen[bytes], pid: int | None, streams: Streams, job: Job
    ) -> RawRun:
        limits = job.limits
        started = time.monotonic()
        ready_at: float | None = None
        cpu_before = cpu = 0.0
        stopped: str | None = None
        while stopped is None and streams.open and process.poll() is None:
            left = limits.cpu_s - (cpu - cpu_before)
            readable, _, _ = select.select(list(streams.open), [], [], min(max(left, 0.002), 0.05))
            for fd in readable:
                streams.read(fd)
            now = time.monotonic()
            cpu = (cpu_used_s(pid) if pid else None) or cpu
            if ready_at is None and streams.records[:1] == READY:
                ready_at, cpu_before = now, cpu
            if streams.overflow:
                stopped = "output_limit"
            elif ready_at is not None:
                stopped = why_stop(pid, limits.cpu_s, limits.wall_s, cpu - cpu_before, now - ready_at)
            elif now - started > _START_S:
                stopped = "start"
        ended = _end(process, pid, kill=stopped is not None)
        if stopped is None and ended[1] == signal.SIGKILL and cpu - cpu_before > limits.cpu_s:
            stopped = "cpu_limit"  # the kernel's own limit was quicker
        wall = time.monotonic() - (ready_at or started)
        streams.drain()
        return outcome(streams, job, ended, stopped, max(cpu - cpu_before, 0.0), wall)


def child_pid(info_fd: int) -> int | None:
    """The process id outside of the sandbox's first process, as bubblewrap reports it."""
    data = b""
    while chunk := os.read(info_fd, 4096):
        data += chunk
        with contextlib.suppress(ValueError):
            return int(json.loads(data)["child-pid"])
    return None


def _end(process: subprocess.Popen[bytes], pid: int | None, *, kill: bool) -> tuple[int | None, int | None]:
    """Wait for the process, or kill the tree: the namespace's first process, the launcher, its session.

    Gives exit status or signal; bubblewrap reports its child's signal n as status 128 + n."""
    if not kill:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)  # its streams have ended, or it has
    if process.poll() is None and pid is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    code = process.wait()
    if code < 0 or code > 128:
        return None, -code if code < 0 else code - 128
    return code, None
