"""One fresh process per run: under bubblewrap, or bare for those who insist (`unsafe`).

The host does the judging of resources. It reads three pipes up to their caps, follows the candidate's CPU
clock by its process id, and kills the first process of the candidate's process namespace, upon which the
kernel kills every other.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trueup.sandbox.guest.runner import READY
from trueup.sandbox.layout import GUEST_DIR
from trueup.sandbox.wire import Job, RawRun, pack_job

__all__ = ["OneShot", "boot_code", "memory_file"]

_MAX_STRETCH = 10.0  # a run that waits for a processor may take this many times its wall limit


def boot_code(guest_parent: str, package: str, packages: Sequence[str], function: str = "start") -> str:
    """The program given to the interpreter inside: find the guest package and call its entry point."""
    return (
        f"import sys; sys.path.insert(0, {guest_parent!r}); sys.path.extend({list(packages)!r}); "
        f"from {package}.main import {function}; {function}()"
    )


def memory_file(data: bytes, name: str = "job") -> int:
    """A descriptor of an anonymous file with `data`, at its start, sealed where the system can."""
    if hasattr(os, "memfd_create"):
        import fcntl

        fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        _write_all(fd, data)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
        _write_all(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def cpu_clock_s(pid: int) -> float | None:
    """CPU seconds that process `pid` has used, all its threads together; None if it is gone."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return None


def waited_for_cpu_s(pid: int) -> float:
    """Seconds that `pid` has been ready to run without a processor; 0 where the kernel does not say."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:  # noqa: PTH123 - called in a loop
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


@dataclass
class _Pipes:
    """Three streams being read, each up to a cap."""

    fds: list[int]
    cap: int
    data: list[bytearray]
    open: set[int]

    def read(self, fd: int) -> bool:
        """Take what is there; False once the stream exceeds its cap."""
        index = self.fds.index(fd)
        try:
            chunk = os.read(fd, 65536)
        except BlockingIOError:
            return True
        if not chunk:
            self.open.discard(fd)
            return True
        buffer = self.data[index]
        buffer += chunk
        # one byte of READY and the frames' own lengths do not count against the candidate
        limit = self.cap + (4096 if index == 2 else 0)
        if len(buffer) <= limit:
            return True
        del buffer[limit:]
        return False


class OneShot:
    """Run each job in a process of its own, started by `command(walls) -> argv`."""

    def __init__(
        self,
        argv: Callable[[str, int], list[str]],
        walls: dict[str, Any],
        *,
        pass_fds: tuple[int, ...] = (),
        info: bool = False,
        cwd: Callable[[], contextlib.AbstractContextManager[str]] | None = None,
    ) -> None:
        self._argv = argv
        self._walls = walls
        self._pass_fds = pass_fds
        self._info = info
        self._cwd = cwd

    def run(self, job: Job) -> RawRun:
        """The raw outcome of one job. Does not raise for anything the candidate or the machine does."""
        with contextlib.ExitStack() as stack:
            job_fd = _closing(stack, memory_file(pack_job(job)))
            stdin_fd = _closing(stack, memory_file(job.stdin, "stdin"))
            readers, writers = [], []
            for _ in range(4 if self._info else 3):
                read_end, write_end = os.pipe2(os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
                readers.append(_closing(stack, read_end))
                writers.append(write_end)
            info_fd = writers[3] if self._info else -1
            argv = self._argv(json.dumps(self._walls), info_fd)
            argv += [str(job_fd), str(writers[2]), json.dumps(self._walls)]
            cwd = stack.enter_context(self._cwd()) if self._cwd else None
            try:
                process = subprocess.Popen(
                    argv,
                    stdin=stdin_fd,
                    stdout=writers[0],
                    stderr=writers[1],
                    pass_fds=(job_fd, *writers[2:], *self._pass_fds),
                    env={"PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "HOME": "/tmp", "PATH": "/usr/bin:/bin"},
                    cwd=cwd,
                    start_new_session=True,
                )
            except OSError as error:
                for fd in writers:
                    os.close(fd)
                return _fault(f"could not start {argv[0]}: {error}")
            for fd in writers:
                os.close(fd)
            return self._follow(process, readers, job)

    def _follow(self, process: subprocess.Popen[bytes], readers: list[int], job: Job) -> RawRun:
        pid = _child_pid(readers[3]) if self._info else process.pid
        limits = job.limits
        pipes = _Pipes(
            readers[:3], limits.output_kb * 1024, [bytearray() for _ in range(3)], set(readers[:3])
        )
        for fd in pipes.fds:
            os.set_blocking(fd, False)
        started = time.monotonic()
        ready_at: float | None = None
        cpu_before = cpu = 0.0
        stopped: str | None = None
        poller = select.poll()
        for fd in pipes.fds:
            poller.register(fd, select.POLLIN)
        while pipes.open:
            for fd, _ in poller.poll(_tick_ms(limits.cpu_s - (cpu - cpu_before))):
                if not pipes.read(fd):
                    stopped = stopped or "output_limit"
                if fd not in pipes.open:
                    poller.unregister(fd)
            now = time.monotonic()
            used = cpu_clock_s(pid) if pid else None
            cpu = used if used is not None else cpu
            if ready_at is None and pipes.data[2][:1] == READY:
                ready_at, cpu_before = now, cpu
            if stopped is None and ready_at is not None:
                stopped = _over(limits.cpu_s, limits.wall_s, cpu - cpu_before, now - ready_at, pid)
            elif ready_at is None and now - started > 30.0:
                stopped = "start"
            if stopped or (process.poll() is not None and not _readable(pipes)):
                break
        _kill(process, pid)
        process.wait()
        for fd in pipes.open & set(pipes.fds):
            while len(pipes.data[pipes.fds.index(fd)]) < pipes.cap and _readable_fd(fd) and fd in pipes.open:
                if not pipes.read(fd):
                    break
        return _outcome(
            process.returncode, pipes, stopped, cpu - cpu_before, time.monotonic() - (ready_at or started)
        )


def _closing(stack: contextlib.ExitStack, fd: int) -> int:
    stack.callback(os.close, fd)
    return fd


def _tick_ms(cpu_left_s: float) -> int:
    return int(min(max(cpu_left_s, 0.002), 0.05) * 1000)


def _over(cpu_s: float, wall_s: float, cpu: float, wall: float, pid: int | None) -> str | None:
    """Why a run must end now. Time spent waiting for a processor does not count as the candidate's."""
    if cpu > cpu_s:
        return "cpu_limit"
    if wall > wall_s:
        waited = waited_for_cpu_s(pid) if pid else 0.0
        if wall - waited > wall_s or wall > _MAX_STRETCH * wall_s:
            return "timeout"
    return None


def _readable(pipes: _Pipes) -> bool:
    return any(_readable_fd(fd) for fd in pipes.open)


def _readable_fd(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])


def _child_pid(info_fd: int) -> int | None:
    """The candidate's process id as bubblewrap reports it."""
    data = b""
    while chunk := os.read(info_fd, 4096):
        data += chunk
        with contextlib.suppress(ValueError):
            return int(json.loads(data)["child-pid"])
    return None


def _kill(process: subprocess.Popen[bytes], pid: int | None) -> None:
    """Kill the tree: the namespace's first process, the launcher and its session."""
    if process.poll() is None and pid is not None and pid != process.pid:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _fault(text: str) -> RawRun:
    return RawRun(False, b"", b"", b"", None, None, None, 0.0, 0.0, {}, fault=text)


def _outcome(code: int, pipes: _Pipes, stopped: str | None, cpu: float, wall: float) -> RawRun:
    stdout, stderr, records = (bytes(part) for part in pipes.data)
    if records[:1] != READY:
        said = stderr[-300:].decode("utf-8", "replace").strip()
        return _fault(f"the worker ended with status {code} before the candidate started: {said}")
    killed = -code if code < 0 else code - 128 if code > 128 else None
    if stopped is None and killed == signal.SIGXCPU:
        stopped, killed = "cpu_limit", None
    exit_status = None if stopped or killed else code
    return RawRun(True, stdout, stderr, records[1:], exit_status, killed, stopped, max(cpu, 0.0), wall, {})


def unsafe_argv(packages: Sequence[str]) -> list[str]:
    """The bare interpreter: no wall at all, other than resource limits."""
    boot = boot_code(str(GUEST_DIR.parent), GUEST_DIR.name, packages)
    return [sys.executable, "-s", "-P", "-B", "-S", "-c", boot]
