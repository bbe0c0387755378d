"""What a process has used, and what it has waited for, by its process id. Both ends of the wall use it."""

from __future__ import annotations

import time

MAX_STRETCH = 10.0  # a run that waits for a processor may take this many times its wall limit


def cpu_used_s(pid: int) -> float | None:
    """CPU seconds that process `pid` has used, all its threads together; None if it is gone."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # clock_getcpuclockid(3)
    except OSError:
        return None


def why_stop(pid: int | None, cpu_s: float, wall_s: float, cpu: float, wall: float) -> str | None:
    """Why a run that has used `cpu` and `wall` seconds must end now, or None.

    Time that it spent ready to run but without a processor does not count, so that a loaded machine fails
    nobody; up to `MAX_STRETCH` times the limit.
    """
    if cpu > cpu_s:
        return "cpu_limit"
    if wall <= wall_s:
        return None
    waited = _waited_s(pid) if pid else 0.0
    return "timeout" if wall - waited > wall_s or wall > MAX_STRETCH * wall_s else None


def _waited_s(pid: int) -> float:
    """Seconds that `pid` has been ready to run without a processor; 0 where the kernel does not say."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:  # noqa: PTH123 - pathlib is not loaded inside
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
