"""Entry points inside the sandbox.

`start` runs one job in this very process. `serve` is the zygote: an interpreter that has already imported
what programs usually import, and forks itself for every job, each time into a process namespace and a mount
namespace of its own. A candidate is the first process of its namespace, so that its end ends all it started.

`walls` says what to build: `private` (namespaces: a mount table and /proc of its own), `setuid` (who to
become, or null), `landlock` (paths, or null), `filters` (system-call filters, by whether the run may fork),
`max_tasks` (of the user: null for no limit, 0 for those that the run's own limits grant), `preload` (packages).
"""

from __future__ import annotations

import base64
import fcntl
import gc
import importlib
import json
import os
import random
import sys
from typing import Any

from . import isolate, runner

# Loaded beforehand so that a candidate's own import of them costs nothing.
_PRELOAD = (
    "bisect", "collections", "collections.abc", "copy", "dataclasses", "datetime", "decimal", "enum",
    "fractions", "functools", "heapq", "io", "itertools", "math", "operator", "random", "re", "statistics",
    "string", "time", "traceback", "threading", "typing", "array", "queue", "hashlib", "textwrap",
    "abc", "contextlib", "cmath",
)  # fmt: skip

for _name in _PRELOAD:
    importlib.import_module(_name)


def read_all(fd: int) -> bytes:
    """Everything in a sealed memory file, from its start."""
    return os.pread(fd, os.fstat(fd).st_size, 0)


def arrange_descriptors(fds: list[int]) -> None:
    """Make `fds` 0, 1, 2, ... and close all others, whatever their numbers: a host with many open files hands
    down high ones, and the zygote's control socket may be among them."""
    spare = [fcntl.fcntl(fd, fcntl.F_DUPFD, len(fds)) for fd in fds]
    for index, fd in enumerate(spare):
        os.dup2(fd, index, inheritable=index < 3)
    isolate.close_from(len(fds))


def settle_interpreter() -> None:
    """The state in which every run starts, whatever the process did before."""
    import _sitebuiltins
    import builtins

    for name in ("quit", "exit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    random.seed(0)
    if "numpy" in sys.modules:
        importlib.import_module("numpy.random").seed(0)
    sys.setrecursionlimit(1000)


def decode_walls(text: str) -> dict[str, Any]:
    """The walls as sent by the host, with the filters as bytes."""
    walls: dict[str, Any] = json.loads(text)
    walls["filters"] = {kind: base64.b64decode(code) for kind, code in walls["filters"].items()}
    return walls


def enclose_and_run(job: dict[str, Any], walls: dict[str, Any], send_tmp: Any = None) -> int:
    """Build the walls around this process, in the only order that works, then run the candidate."""
    limits = job["limits"]
    if os.getpgrp() != os.getpid():
        os.setsid()  # kill(0) reaches the whole process group, and the zygote must not be in it
    if walls["drop"]:
        isolate.set_dumpable(True)  # or /proc/self would not be ours to write to
        isolate.set_oom_score(1000)  # before the zygote, whose score is lower
    if walls["private"]:
        isolate.mount_private(limits["tmp_mb"], limits["tmp_inodes"], walls["uid"], walls["proc"])
        if send_tmp is not None:
            send_tmp()
    isolate.set_limits(limits | {"max_tasks": walls["max_tasks"]})
    if walls["drop"]:
        isolate.drop_privileges(walls["setuid"])
    if walls["private"]:
        os.chdir("/tmp")
    if walls.get("ruleset") is not None:
        isolate.landlock_restrict(walls["ruleset"])
    if walls["filters"]:
        isolate.install_filter(walls["filters"]["many" if limits["n_processes"] > 1 else "one"])
    settle_interpreter()
    return runner.run(job)


def load_job(fd: int) -> dict[str, Any]:
    """A job from its sealed memory file."""
    job: dict[str, Any] = json.loads(read_all(fd))
    job["calls"] = [(args.encode(), kwargs.encode()) for args, kwargs in job["calls"]]
    return job


def run_once(argv: list[str]) -> int:
    """Run one job here: `argv` is the descriptors of job, records and side channel, and the walls."""
    job_fd, result_fd, side_fd = (int(part) for part in argv[:3])
    walls = decode_walls(argv[3])
    job = load_job(job_fd)
    if walls["private"]:
        isolate.protect_devices()
    send_tmp = _sender(side_fd) if job["artefacts"] else None
    arrange_descriptors([0, 1, 2, result_fd] + ([side_fd] if send_tmp else []))
    try:
        return enclose_and_run(job, walls, send_tmp and (lambda: send_tmp(4)))
    except isolate.IsolationError as error:
        os.write(2, f"isolation: {error}\n".encode())
        return 120


def _sender(_: int) -> Any:
    """Hands a descriptor of /tmp to the host, which reads artefacts through it once the run is over."""

    def send(side: int) -> None:
        import socket

        folder = os.open("/tmp", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        channel = socket.socket(fileno=side)
        socket.send_fds(channel, [b"T"], [folder])
        channel.close()
        os.close(folder)

    return send


def start() -> None:
    """Run one job and leave at once: no exit hook of the candidate may outlive its records."""
    os._exit(run_once(sys.argv[1:]))


def serve() -> None:
    """Fork for every job that comes over the control socket, until it closes."""
    from . import zygote

    walls = decode_walls(sys.argv[2])
    isolate.set_oom_score(500)
    if walls["private"]:
        isolate.protect_devices()
    for name in walls["preload"]:
        importlib.import_module(name)
    if "numpy" in walls["preload"]:
        importlib.import_module("numpy.random")  # loaded lazily otherwise, after the seed has been set
    if walls["landlock"] is not None:
        walls["ruleset"] = isolate.landlock_ruleset(**walls["landlock"])
    gc.collect()
    gc.freeze()
    zygote.serve(int(sys.argv[1]), walls)
    os._exit(0)
