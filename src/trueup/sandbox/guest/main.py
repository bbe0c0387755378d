"""Entry point inside the sandbox: read a job, build the walls, run the candidate."""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
from typing import Any

from . import isolate, runner

# Loaded beforehand so that a candidate's own import of them costs nothing.
_PRELOAD = (
    "bisect",
    "collections",
    "copy",
    "dataclasses",
    "datetime",
    "decimal",
    "fractions",
    "functools",
    "heapq",
    "itertools",
    "math",
    "operator",
    "random",
    "re",
    "statistics",
    "string",
    "typing",
    "traceback",
    "threading",
)

for _name in _PRELOAD:
    importlib.import_module(_name)


def read_all(fd: int) -> bytes:
    """Everything in a sealed memory file, from its start."""
    size = os.fstat(fd).st_size
    return os.pread(fd, size, 0)


def arrange_descriptors(result_fd: int) -> None:
    """Leave exactly 0, 1, 2 and 3 (the record stream)."""
    if result_fd != runner.RESULT_FD:
        os.dup2(result_fd, runner.RESULT_FD, inheritable=False)
    os.closerange(runner.RESULT_FD + 1, 256)


def settle_interpreter() -> None:
    """The state in which every run starts, whatever the process did before."""
    import _sitebuiltins
    import builtins

    for name in ("quit", "exit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    random.seed(0)
    sys.path[:] = [p for p in sys.path if p not in ("/guest", "")]
    sys.setrecursionlimit(1000)


def main(argv: list[str]) -> int:
    """One-shot: `argv` is the job's descriptor, the record descriptor and the walls to build, as JSON."""
    job_fd, result_fd = int(argv[0]), int(argv[1])
    walls: dict[str, Any] = json.loads(argv[2])
    job = json.loads(read_all(job_fd))
    arrange_descriptors(result_fd)
    job["calls"] = [(args.encode(), kwargs.encode()) for args, kwargs in job["calls"]]
    isolate.set_oom_score(1000)
    limits = job["limits"]
    if walls["mounts"]:
        isolate.mount_private(limits["tmp_mb"], limits["tmp_inodes"], walls["uid"], walls["proc"])
    isolate.set_limits(limits | {"limit_processes": walls["limit_processes"]})
    if walls["drop"]:
        isolate.drop_privileges(walls["setuid"])
    if walls["mounts"]:
        os.chdir("/tmp")
    settle_interpreter()
    return runner.run(job)


def start() -> None:
    """Run `main` and leave at once: no exit hook of the candidate may outlive its records."""
    try:
        code = main(sys.argv[1:])
    except isolate.IsolationError as error:
        os.write(2, f"isolation: {error}\n".encode())
        code = 120
    os._exit(code)
