"""The system-call filter, assembled here in pure Python: an allow-list per kind of run.

A network namespace does not cover AF_VSOCK or AF_NETLINK, io_uring makes sockets without `socket`, and the
kernel's rarely used calls are where its bugs are. So a run may make the calls that the interpreter makes for
ordinary programs, and every other call fails with EPERM. `clone3` fails with ENOSYS, because its flags lie
in memory that a filter cannot read, and the C library then falls back to `clone`. A call of another
architecture (`int 0x80`, x32) kills the process: its numbers mean something else.

Classic BPF compares 32 bits at a time; the words of a call's 64-bit arguments are little-endian on both
machines here. `ioctl` and `fcntl` commands are compared on the low word, as the kernel itself reads them: a
filter that compared 64 bits could be passed by setting a high bit that the kernel then ignores.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from trueup.errors import SandboxUnavailable
from trueup.sandbox.syscalls import TABLES

__all__ = ["build_filter", "machine"]

_LOAD, _JEQ, _JGE, _JSET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NR_AT, _ARCH_AT = 0, 4
KILL, ALLOW, ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
EPERM, ENOSYS = 1, 38
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000

_CLONE_THREAD = 0x00010000
_CLONE_NAMESPACES = 0x7E020000


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_ALWAYS = _names(
    """
read write readv writev pread64 pwrite64 preadv pwritev lseek close close_range dup dup2 dup3 pipe pipe2
open openat creat access faccessat faccessat2 stat lstat fstat newfstatat statx statfs fstatfs readlink
readlinkat getcwd chdir fchdir getdents getdents64 mkdir mkdirat rmdir unlink unlinkat rename renameat
renameat2 link linkat symlink symlinkat truncate ftruncate fallocate fsync fdatasync fadvise64 flock umask
sendfile copy_file_range mmap mprotect munmap mremap madvise brk mincore msync membarrier
rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack pause alarm
getitimer setitimer nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time times
futex set_robust_list get_robust_list set_tid_address rseq restart_syscall sched_yield sched_getaffinity
sched_getparam sched_getscheduler sched_get_priority_max sched_get_priority_min getcpu
getpid gettid getppid getpgrp getpgid getsid getuid geteuid getgid getegid getresuid getresgid getgroups
getrlimit getrusage sysinfo uname getrandom arch_prctl exit exit_group wait4 waitid
poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd2
sendto recvfrom sendmsg recvmsg shutdown getsockname getpeername
"""
)
"""Calls allowed whatever their arguments: no effect beyond the process, its files and its own namespace."""

_OWN_NAMESPACE = _names("kill tkill tgkill chmod fchmod fchmodat fchmodat2 utime utimes utimensat futimesat")
"""Allowed too where the run has a process namespace and a file system of its own; Landlock covers neither
signals (before its version 6) nor modes and times of files that the run cannot open."""

_PROCESSES = _names("fork vfork execve execveat setpgid setsid")

_IOCTLS = (
    0x5401,
    0x5413,
    0x541B,
    0x5421,
    0x5450,
    0x5451,
)  # TCGETS TIOCGWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX
_PRCTLS = (3, 15, 16, 0x53564D41)  # GET_DUMPABLE SET_NAME GET_NAME SET_VMA
_FCNTLS_DENIED = (8, 10, 15, 1026)  # SETOWN SETSIG SETOWN_EX (signals for others), NOTIFY
_AF_UNIX = 1
_STREAMS = (
    1,
    0x801,
    0x80001,
    0x80801,
)  # SOCK_STREAM, also NONBLOCK and CLOEXEC: a stream cannot be readdressed


def machine() -> str:
    """This machine's name in the tables. Raises `SandboxUnavailable` where there is no table for it."""
    name = platform.machine().lower()
    name = {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)
    if name not in TABLES or struct.calcsize("P") != 8:
        raise SandboxUnavailable(
            f"The system-call filter must know this machine's call numbers, got {platform.machine()!r}. "
            "A guess would allow the wrong calls, so nothing is run. Use x86-64 or aarch64."
        )
    return name


@dataclass(frozen=True)
class _Program:
    """Instructions in order: (code, jump if true, jump if false, constant)."""

    code: list[tuple[int, int, int, int]]

    def load(self, offset: int) -> None:
        self.code.append((_LOAD, 0, 0, offset))

    def returns(self, value: int) -> None:
        self.code.append((_RETURN, 0, 0, value))

    def when(self, test: int, constant: int, value: int, *, negate: bool = False) -> None:
        """Return `value` if the test of the loaded word holds (or, negated, if it does not)."""
        self.code.append((test, 1, 0, constant) if negate else (test, 0, 1, constant))
        self.returns(value)


def _low(argument: int) -> int:
    """Where the low word of a call's argument lies."""
    return 16 + 8 * argument


def build_filter(name: str, *, processes: bool = False, own_namespace: bool = True) -> bytes:
    """The filter for machine `name` as bytes of `struct sock_filter`.

    `processes` lets the run fork and execute; `own_namespace` says that it cannot reach other processes or
    files of the machine anyway.
    """
    table = TABLES[name]
    out = _Program([])
    out.load(_ARCH_AT)
    out.when(_JEQ, AUDIT_ARCH[name], KILL, negate=True)
    out.load(_NR_AT)
    if name == "x86_64":
        out.when(_JGE, _X32_BIT, KILL)
    out.when(_JEQ, table["clone3"], ERRNO | ENOSYS)
    allowed = [*_ALWAYS, *(_OWN_NAMESPACE if own_namespace else ()), *(_PROCESSES if processes else ())]
    for number in sorted({table[call] for call in allowed if call in table}):
        out.when(_JEQ, number, ALLOW)
    _argument_rule(out, table["ioctl"], 1, allow=_IOCTLS)
    _argument_rule(out, table["prctl"], 0, allow=_PRCTLS)
    _argument_rule(out, table["prlimit64"], 0, allow=(0,))  # its own limits, nobody else's
    _socketpair_rule(out, table["socketpair"])
    _argument_rule(out, table["fcntl"], 1, deny=_FCNTLS_DENIED)
    _clone_rule(out, table["clone"], processes)
    out.returns(ERRNO | EPERM)
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in out.code)


def _argument_rule(
    out: _Program, number: int, argument: int, *, allow: Iterable[int] = (), deny: Iterable[int] = ()
) -> None:
    """For call `number`, decide on one argument's low word; the rest is denied, or allowed beside `deny`."""
    body = _Program([])
    body.load(_low(argument))
    for value in allow:
        body.when(_JEQ, value, ALLOW)
    for value in deny:
        body.when(_JEQ, value, ERRNO | EPERM)
    body.returns(ALLOW if deny else ERRNO | EPERM)
    _only_for(out, number, body)


def _socketpair_rule(out: _Program, number: int) -> None:
    """A connected pair of Unix streams, as event loops make; nothing that could be given another address."""
    body = _Program([])
    body.load(_low(0))
    body.when(_JEQ, _AF_UNIX, ERRNO | EPERM, negate=True)
    body.load(_low(1))
    for kind in _STREAMS:
        body.when(_JEQ, kind, ALLOW)
    body.returns(ERRNO | EPERM)
    _only_for(out, number, body)


def _clone_rule(out: _Program, number: int, processes: bool) -> None:
    """Threads always; processes if wanted; namespaces never."""
    body = _Program([])
    body.load(_low(0))
    body.when(_JSET, _CLONE_NAMESPACES, ERRNO | EPERM)
    if not processes:
        body.when(_JSET, _CLONE_THREAD, ERRNO | EPERM, negate=True)
    body.returns(ALLOW)
    _only_for(out, number, body)


def _only_for(out: _Program, number: int, body: _Program) -> None:
    out.code.append((_JEQ, 0, len(body.code), number))
    out.code.extend(body.code)
