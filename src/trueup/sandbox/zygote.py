"""The host's end of a zygote: hand it jobs with their descriptors, read what comes back.

The zygote is the first process of its slot. It leaves when the control socket closes, so it cannot outlive
its host; closing also kills it by its process id, in case it hangs.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any

from trueup.errors import SandboxUnavailable
from trueup.sandbox.base import Limits
from trueup.sandbox.cgroup import SlotGroup, make_group
from trueup.sandbox.guest.clock import MAX_STRETCH
from trueup.sandbox.oneshot import CLEAN_ENV, child_pid
from trueup.sandbox.streams import Streams
from trueup.sandbox.wire import Job, RawRun, outcome, pack_job

__all__ = ["Zygote"]

_START_S = 30.0
_PROCESS_MB, _ZYGOTE_MB = 64, 128  # what an interpreter and the zygote need themselves
_GRACE_S = 10.0  # beyond the zygote's own last deadline; after that the zygote itself is stuck


class Zygote:
    """One slot. `argv(info_fd)` gives the command up to the guest's arguments; `info` says that the command
    is bubblewrap, which reports its child there. Raises `SandboxUnavailable` if it does not come up."""

    def __init__(
        self,
        argv: Callable[[int], list[str]],
        walls: dict[str, Any],
        *,
        pass_fds: tuple[int, ...] = (),
        info: bool = False,
    ) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        info_read, info_write = os.pipe() if info else (-1, -1)
        self._log = os.memfd_create("log", os.MFD_CLOEXEC)
        inherited = (theirs.fileno(), *pass_fds) + ((info_write,) if info else ())
        try:
            self._process = subprocess.Popen(
                [*argv(info_write), str(theirs.fileno()), json.dumps(walls)],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=inherited,
                env=CLEAN_ENV,
                cwd="/",  # a candidate behind Landlock would learn ours
                start_new_session=True,
            )
        except OSError as error:
            self._control.close()
            os.close(self._log)
            raise SandboxUnavailable(f"The zygote could not be started: {error}.") from None
        finally:
            theirs.close()
            if info:
                os.close(info_write)
        self.pid: int | None = self._process.pid  # of the zygote, as seen from outside
        if info:
            self.pid = child_pid(info_read)
            os.close(info_read)
        self._handle = _pidfd(self.pid)
        self._await_hello()
        self.group = self._join_group()

    def _join_group(self) -> SlotGroup | None:
        """The zygote in a control group of its own, where that is possible."""
        group = make_group()
        if group is not None:
            try:
                for pid in {self._process.pid, self.pid} - {None}:
                    group.add(pid or 0)
            except OSError:
                group.close()
                return None
        return group

    def _await_hello(self) -> None:
        self._control.settimeout(_START_S)
        try:
            hello = self._control.recv(4096)
        except OSError:
            hello = b""
        if not hello:
            self._kill()
            said = os.pread(self._log, 4096, 0)[-400:].decode("utf-8", "replace").strip()
            self._control.close()
            os.close(self._log)
            raise SandboxUnavailable(f"The zygote ended before its first run: {said or 'no word from it'}.")
        self._control.settimeout(None)

    def run(self, job: Job) -> RawRun:
        """The raw outcome of one job. Does not raise for anything the candidate or the machine does."""
        limits = job.limits
        with Streams(pack_job(job), job.stdin, limits.output_kb * 1024, bool(job.artefacts)) as streams:
            fds = [streams.job_fd, streams.stdin_fd, *streams.writers]
            many = limits.n_processes > 1
            request = json.dumps({"cpu_s": limits.cpu_s, "wall_s": limits.wall_s, "many": many}).encode()
            kills = self._bound(limits)
            try:
                socket.send_fds(self._control, [request], fds)
                streams.hand_over()
                answer = self._collect(streams, MAX_STRETCH * limits.wall_s + _GRACE_S)
            except OSError as error:
                return RawRun.faulty(f"lost the zygote: {error}")
            if answer is None:
                return RawRun.faulty("the zygote died or hung during the run")
            streams.drain()
            ended, stopped = (answer["exit"], answer["signal"]), answer["stopped"]
            if ended[1] == signal.SIGKILL and self.group is not None and self.group.oom_kills() > kills:
                stopped = stopped or "memory"
            return outcome(streams, job, ended, stopped, answer["cpu_s"], answer["wall_s"])

    def _bound(self, limits: Limits) -> int:
        """Set the group's bounds for a run; gives the number of kills for memory so far."""
        if self.group is None:
            return 0
        memory_mb = (limits.memory_mb + _PROCESS_MB) * limits.n_processes + limits.tmp_mb + _ZYGOTE_MB
        with contextlib.suppress(OSError):  # the kernel refuses a bound below what is in use at the moment
            self.group.limit(memory_mb, limits.n_processes + limits.n_threads + 8)
        return self.group.oom_kills()

    def _collect(self, streams: Streams, timeout_s: float) -> dict[str, Any] | None:
        """Read the streams until the zygote says that the run is over; None if it does not."""
        deadline = time.monotonic() + timeout_s
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        for fd in streams.open:
            poller.register(fd, select.POLLIN)
        told = False
        while (left := deadline - time.monotonic()) > 0:
            for fd, _ in poller.poll(left * 1000):
                if fd == self._control.fileno():
                    message = self._control.recv(4096)
                    answer: dict[str, Any] | None = json.loads(message) if message else None
                    return answer
                streams.read(fd)
                if fd not in streams.open:
                    poller.unregister(fd)
            if streams.overflow and not told:
                told = True
                self._control.send(b'{"stop": "output_limit"}')
        return None

    def close(self) -> None:
        """End the zygote, and with it whatever it runs."""
        self._control.close()
        self._kill()
        os.close(self._log)
        if self.group is not None:
            self.group.close()

    def _kill(self) -> None:
        if self._handle is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            os.close(self._handle)
            self._handle = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)  # bubblewrap leaves by itself once its child is gone
        self._process.kill()
        self._process.wait()


def _pidfd(pid: int | None) -> int | None:
    """A handle on a process that cannot come to mean another one; None if it is gone already."""
    try:
        return os.pidfd_open(pid) if pid else None
    except ProcessLookupError:
        return None
