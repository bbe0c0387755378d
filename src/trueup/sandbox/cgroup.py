"""A control group per slot where this process may make one: a second bound on memory and tasks, on all together.

Resource limits bound each process; a group bounds the slot, shared memory and page cache included. It is an
extra: where no group can be made (an ordinary user without delegation), the limits per process times the
number of processes, and the size of /tmp, bound the slot.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from pathlib import Path

__all__ = ["SlotGroup", "make_group"]

_ROOT = Path("/sys/fs/cgroup")
_NUMBER = itertools.count()


class SlotGroup:
    """The directories of one group: one under version 2, one per controller under version 1."""

    def __init__(self, memory: Path, tasks: Path) -> None:
        self._memory, self._tasks = memory, tasks
        self._is_v2 = memory == tasks
        self._limits = (0, 0)

    def limit(self, memory_mb: int, n_tasks: int) -> None:
        """Bound the slot. Raises OSError where the kernel refuses."""
        if self._limits == (memory_mb, n_tasks):
            return
        name = "memory.max" if self._is_v2 else "memory.limit_in_bytes"
        (self._memory / name).write_text(str(memory_mb << 20))
        (self._tasks / "pids.max").write_text(str(n_tasks))
        self._limits = (memory_mb, n_tasks)

    def add(self, pid: int) -> None:
        """Put a process, and all that it starts from now on, into the group."""
        for folder in {self._memory, self._tasks}:
            (folder / "cgroup.procs").write_text(str(pid))

    def oom_kills(self) -> int:
        """How often the kernel has killed for memory in this group."""
        name = "memory.events" if self._is_v2 else "memory.oom_control"
        with contextlib.suppress(OSError, ValueError):
            for line in (self._memory / name).read_text().splitlines():
                key, _, count = line.partition(" ")
                if key == "oom_kill":
                    return int(count)
        return 0

    def close(self) -> None:
        """Remove the group once its processes are gone."""
        for folder in {self._memory, self._tasks}:
            for _ in range(50):
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.02)


def make_group() -> SlotGroup | None:
    """A new, empty group, or None where this process may not make one that bounds memory and tasks."""
    name = f"trueup-{os.getpid()}-{next(_NUMBER)}"
    if (_ROOT / "cgroup.controllers").exists():
        for parent in _v2_parents():
            group = _made(parent / name, parent / name)
            if group is not None:
                return group
        return None
    places = _own_paths()
    if "memory" not in places or "pids" not in places:
        return None
    return _made(places["memory"] / name, places["pids"] / name)


def _made(memory: Path, tasks: Path) -> SlotGroup | None:
    for parent in {memory.parent, tasks.parent}:
        _sweep(parent)
    group = SlotGroup(memory, tasks)
    try:
        for folder in dict.fromkeys((memory, tasks)):
            folder.mkdir()
        group.limit(1024, 64)
    except OSError:
        group.close()
        return None
    return group


def _sweep(parent: Path) -> None:
    """Remove empty groups of hosts that were killed before they could."""
    for folder in parent.glob("trueup-*-*"):
        owner = folder.name.split("-")[1]
        if not Path("/proc", owner).exists():
            with contextlib.suppress(OSError):
                folder.rmdir()


def _v2_parents() -> list[Path]:
    """Groups that hand memory and tasks down to their children, nearest first. Ours cannot: it has processes."""
    own = _own_paths().get("", _ROOT)
    found = []
    for parent in (own, *own.parents):
        if not parent.is_relative_to(_ROOT):
            break
        with contextlib.suppress(OSError):
            handed_down = (parent / "cgroup.subtree_control").read_text().split()
            if {"memory", "pids"} <= set(handed_down):
                found.append(parent)
    return found


def _own_paths() -> dict[str, Path]:
    """This process's group per controller (version 2: under the empty name)."""
    paths = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            for controller in controllers.split(","):
                root = _ROOT / controller if controller else _ROOT
                inside = root / path.lstrip("/")
                paths[controller] = inside if inside.is_dir() else root
    return paths
