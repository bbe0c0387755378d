"""The fork server: one job at a time, each in a child that is the first process of its own namespace.

The zygote holds no secret, cannot be dumped, and is outside every candidate's process namespace. It measures
and ends the child: CPU time by the child's own clock, wall time as the backstop. Time that the child spent
ready to run but without a processor does not count, so that a loaded machine fails nobody.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from . import clock, isolate, main

_TICK_S = 0.05


def serve(control_fd: int, walls: dict[str, Any]) -> None:
    """Answer jobs until the host closes the socket."""
    control = socket.socket(fileno=control_fd)
    home = isolate.own_pid_namespace() if walls["private"] else -1
    isolate.set_dumpable(False)
    control.send(b"{}")
    while _answer_one(control, home, walls):
        pass


def _answer_one(control: socket.socket, home: int, walls: dict[str, Any]) -> bool:
    """One job; False when the host is gone.

    A function of its own, because the child inherits this frame and a candidate can walk up to it: nothing of an
    earlier run may be left in its variables, neither to be read nor to make two runs of one program differ.
    """
    message, fds, _, _ = socket.recv_fds(control, 4096, 8)
    if not message:
        return False
    request = json.loads(message)
    if "stop" in request:  # meant for a run that has ended meanwhile
        return True
    started = time.monotonic()
    if walls["private"]:
        isolate.next_child_in_new_pid_namespace()
    pid = os.fork()
    if pid == 0:
        _child(fds, walls)
    if walls["private"]:
        isolate.back_to_pid_namespace(home)
    for fd in fds:
        os.close(fd)
    # in a namespace of our own, every process but this one belongs to the run
    count = _tree_cpu_s if walls["private"] and request["many"] else clock.cpu_used_s
    answer = _supervise(control, pid, request["cpu_s"], request["wall_s"], started, count)
    if answer is None:
        return False
    control.send(json.dumps(answer).encode())
    return True


def _child(fds: list[int], walls: dict[str, Any]) -> None:
    """All that the new process does; never returns. `fds`: job, stdin, stdout, stderr, records, side."""
    code = 120
    try:
        job = main.load_job(fds[0])
        side = fds[5:6]
        ruleset = walls.get("ruleset")
        keep = [*fds[1:5], *side] + ([ruleset] if ruleset is not None else [])
        main.arrange_descriptors(keep)
        if ruleset is not None:
            walls = walls | {"ruleset": len(keep) - 1}
        if walls["private"]:
            isolate.new_mount_namespace()
        send_tmp = main._sender(4) if side else None
        code = main.enclose_and_run(job, walls, send_tmp and (lambda: send_tmp(4)))
    except isolate.IsolationError as error:
        os.write(2, f"isolation: {error}\n".encode())
    except BaseException as error:
        with contextlib.suppress(BaseException):
            os.write(2, f"worker: {error!r}\n".encode())
        code = 1
    finally:
        os._exit(code)


def _supervise(
    control: socket.socket,
    pid: int,
    cpu_s: float,
    wall_s: float,
    started: float,
    count: Callable[[int], float | None],
) -> dict[str, Any] | None:
    """Wait for the child, within its limits; None when the host is gone. `count` gives its CPU seconds so far."""
    stopped = None
    handle = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    poller.register(control, select.POLLIN)
    try:
        while True:
            used, wall = count(pid) or 0.0, time.monotonic() - started
            stopped = clock.why_stop(pid, cpu_s, wall_s, used, wall)
            if stopped:
                break
            left = min(max(cpu_s - used, 0.002), max(wall_s - wall, 0.002), _TICK_S)
            ready = {fd for fd, _ in poller.poll(left * 1000)}
            if handle in ready:
                break
            if control.fileno() in ready:
                message = control.recv(4096)
                if not message:
                    os.kill(pid, signal.SIGKILL)
                    return None
                stopped = json.loads(message).get("stop")
                break
    finally:
        os.close(handle)
    if stopped:
        os.kill(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    spent = usage.ru_utime + usage.ru_stime > cpu_s  # the kernel's own limit may have been quicker than we
    if not stopped and (code == -signal.SIGXCPU or (code == -signal.SIGKILL and spent)):
        stopped = "cpu_limit"
    return {
        "exit": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "stopped": stopped,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "wall_s": time.monotonic() - started,
    }


def _tree_cpu_s(pid: int) -> float | None:
    """CPU seconds of all living processes of a run together; of the first alone where there is no /proc."""
    try:
        others = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - not loaded inside
    except OSError:
        return clock.cpu_used_s(pid)
    return sum(clock.cpu_used_s(other) or 0.0 for other in others if other != os.getpid())
