"""The walls a process puts around itself before it runs a candidate: mounts, limits, identity, system calls.

Order matters. Mounts need privilege, so they come first; then resource limits; then the identity and every
capability go, for good (`no_new_privs`, empty bounding set); the system-call filter is last because the
steps before it need calls that it forbids. Each step that fails raises: no wall is ever left out silently.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
import sys
from collections.abc import Sequence
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 4, 24, 38, 47
_PR_SET_KEEPCAPS, _PR_SET_SECCOMP, _PR_CAP_AMBIENT_CLEAR_ALL = 8, 22, 4
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT, _MS_BIND = 1, 2, 4, 8, 32, 4096
_LAST_CAP = 63
_CLONE_NEWNS, _CLONE_NEWPID = 0x00020000, 0x20000000
# one number on every machine
_CLOSE_RANGE, _LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 436, 444, 445, 446


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


def protect_devices() -> None:
    """Make the bound device nodes read-only: they can still be written to, but not have their modes changed,
    which the same user outside would otherwise be allowed to do to the machine's own /dev/null."""
    for name in ("null", "zero", "full", "random", "urandom"):
        flags = _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NOEXEC
        _check(_libc.mount(None, f"/dev/{name}".encode(), None, flags, None), f"protect /dev/{name}")


def set_limits(limits: dict[str, Any]) -> None:
    """Hard resource limits. CPU time is a whole number of seconds above what the host enforces itself."""
    used = sum(os.times()[:2])
    cpu = int(limits["cpu_s"] + used + 1.999)
    memory = int(limits["memory_mb"]) << 20
    for name, value in (
        ("CPU", cpu),
        ("AS", memory + (64 << 20)),  # what the interpreter itself maps comes on top
        ("FSIZE", int(limits["tmp_mb"]) << 20),
        ("NOFILE", 64),
        ("CORE", 0),
        ("STACK", 8 << 20),
        ("MEMLOCK", 0),
        ("MSGQUEUE", 0),
        ("NICE", 0),
        ("RTPRIO", 0),
        ("SIGPENDING", 64),
    ):
        if sys.platform == "linux" or name in (
            "CPU",
            "FSIZE",
            "NOFILE",
            "CORE",
        ):  # else only `unsafe` comes here
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    n = limits["max_tasks"]
    if n is not None:
        n = n or int(limits["n_threads"]) + int(limits["n_processes"]) + 2  # the zygote may count as well
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


def close_from(first: int) -> None:
    """Close every descriptor from `first` on."""
    if sys.platform == "linux" and _libc.syscall(_CLOSE_RANGE, first, 0xFFFFFFFF, 0) == 0:
        return
    os.closerange(first, max(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))  # before Linux 5.9


def set_oom_score(score: int) -> None:
    """Offer this process to the kernel first when memory runs out. Best effort: /proc may be missing."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123 - pathlib is not loaded in here
            file.write(str(score))
    except OSError:
        return


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def install_filter(code: bytes) -> None:
    """Let only the system calls that the filter allows through, from now on and in every child."""
    program = _Program(len(code) // 8, code)
    _check(_libc.prctl(_PR_SET_SECCOMP, 2, ctypes.byref(program), 0, 0), "seccomp")


def new_mount_namespace() -> None:
    """A copy of this mount table whose changes stay here."""
    _check(_libc.unshare(_CLONE_NEWNS), "mount namespace")


def next_child_in_new_pid_namespace() -> None:
    """The next fork starts a process namespace, as its first process."""
    _check(_libc.unshare(_CLONE_NEWPID), "process namespace")


def own_pid_namespace() -> int:
    """A descriptor of this process's own process namespace, to come back to after a fork."""
    try:
        return os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return os.pidfd_open(os.getpid())


def back_to_pid_namespace(fd: int) -> None:
    """Children start in the namespace behind `fd` again; without this a second new one cannot be made."""
    _check(_libc.setns(fd, _CLONE_NEWPID), "return to the process namespace")


def landlock_version() -> int:
    """The kernel's Landlock version, 0 where there is none."""
    return max(0, int(_libc.syscall(_LANDLOCK_CREATE, None, 0, 1)))


def landlock_ruleset(readable: Sequence[str], devices: Sequence[str]) -> int:
    """A ruleset that allows reading below `readable`, reading and writing `devices`, and no other file."""
    version = landlock_version()
    n_rights = 13 + (version >= 2) + (version >= 3) + (version >= 5)
    handled = (1 << n_rights) - 1
    attributes = struct.pack("=Q", handled)
    if version >= 4:
        attributes += struct.pack("=Q", 3)  # no TCP bind, no TCP connect
    if version >= 6:
        attributes += struct.pack("=Q", 3)  # no abstract Unix sockets, no signals to others
    ruleset = int(_libc.syscall(_LANDLOCK_CREATE, attributes, len(attributes), 0))
    if ruleset < 0:
        raise IsolationError(f"landlock: {os.strerror(ctypes.get_errno())}")
    execute, write, read, list_directory = 1, 2, 4, 8
    for paths, rights in ((readable, execute | read), (devices, read | write)):
        for path in paths:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            more = list_directory if os.path.isdir(path) else 0  # noqa: PTH112 - pathlib is not loaded in here
            rule = struct.pack("=Qi", rights | more, fd)
            _check(int(_libc.syscall(_LANDLOCK_ADD, ruleset, 1, rule, 0)), f"landlock rule for {path}")
            os.close(fd)
    return ruleset


def landlock_restrict(ruleset: int) -> None:
    """Hold this process, and all it starts, to the ruleset. Needs `no_new_privs`."""
    _check(int(_libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0)), "landlock")
    os.close(ruleset)
