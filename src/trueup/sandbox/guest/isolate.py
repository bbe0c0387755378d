"""The walls a process puts around itself before it runs a candidate: mounts, limits, identity, system calls.

Order matters. Mounts need privilege, so they come first; then resource limits; then the identity and every
capability go, for good (`no_new_privs`, empty bounding set); the system-call filter is last because the
steps before it need calls that it forbids. Each step that fails raises: no wall is ever left out silently.
"""

from __future__ import annotations

import ctypes
import os
import resource
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 4, 24, 38, 47
_PR_SET_KEEPCAPS, _PR_SET_SECCOMP, _PR_CAP_AMBIENT_CLEAR_ALL = 8, 22, 4
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_LAST_CAP = 63


class IsolationError(Exception):
    """A wall could not be built. The candidate must not be started."""


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise IsolationError(f"{what}: {os.strerror(number)}")


def mount_private(tmp_mb: int, tmp_inodes: int, uid: int, proc: bool) -> None:
    """An empty /tmp with a size and an inode cap that belongs to `uid`, and this namespace's own /proc."""
    options = f"size={tmp_mb}m,nr_inodes={tmp_inodes},mode=700,uid={uid},gid={uid}".encode()
    flags = _MS_NOSUID | _MS_NODEV
    _check(_libc.mount(b"tmpfs", b"/tmp", b"tmpfs", flags, options), "mount /tmp")
    if proc:
        _check(_libc.mount(b"proc", b"/proc", b"proc", flags | _MS_NOEXEC, None), "mount /proc")


def set_limits(limits: dict[str, Any]) -> None:
    """Hard resource limits. CPU time is a whole number of seconds above what the host enforces itself."""
    used = sum(os.times()[:2])
    cpu = int(limits["cpu_s"] + used + 1.999)
    memory = int(limits["memory_mb"]) << 20
    for name, value in (
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_AS, memory + (64 << 20)),  # what the interpreter itself maps comes on top
        (resource.RLIMIT_FSIZE, int(limits["tmp_mb"]) << 20),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_STACK, 8 << 20),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_NICE, 0),
        (resource.RLIMIT_RTPRIO, 0),
        (resource.RLIMIT_SIGPENDING, 64),
    ):
        resource.setrlimit(name, (value, value))
    if limits.get("limit_processes", True):
        n = int(limits["n_threads"]) + int(limits["n_processes"])
        resource.setrlimit(resource.RLIMIT_NPROC, (n, n))


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def drop_privileges(uid: int | None) -> None:
    """Become `uid` (None: stay), with no capability and no way to get one back. Not dumpable."""
    for cap in range(_LAST_CAP + 1):
        # EINVAL ends the list of capabilities; EPERM means we hold none to begin with
        if _libc.prctl(_PR_CAPBSET_DROP, cap, 0, 0, 0) != 0:
            break
    if uid is not None:
        if os.getgroups():
            os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = _CapHeader(0x20080522, 0)
    empty = (ctypes.c_uint32 * 6)()
    _check(_libc.capset(ctypes.byref(header), empty), "capset")
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    set_dumpable(False)


def set_dumpable(on: bool) -> None:
    """Whether others of this user may read this process's memory and descriptors."""
    _check(_libc.prctl(_PR_SET_DUMPABLE, int(on), 0, 0, 0), "dumpable")


def set_oom_score(score: int) -> None:
    """Offer this process to the kernel first when memory runs out. Best effort: /proc may be missing."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123 - pathlib is not loaded in here
            file.write(str(score))
    except OSError:
        return
