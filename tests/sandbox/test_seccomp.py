"""The system-call filter, by an interpreter of classic BPF, so that both machines are tested on either."""

import re
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.errors import SandboxUnavailable
from trueup.sandbox import seccomp
from trueup.sandbox.seccomp import ALLOW, AUDIT_ARCH, ENOSYS, EPERM, ERRNO, KILL, build_filter
from trueup.sandbox.syscalls import TABLES

MACHINES = sorted(TABLES)
DENIED = ERRNO | EPERM


def verdict(code: bytes, arch: int, number: int, arguments: tuple[int, ...] = ()) -> int:
    """Run the filter as the kernel would: linux/filter.h, the four operations that it uses."""
    padded = (*arguments, *[0] * (6 - len(arguments)))
    data = struct.pack("<IIQ6Q", number, arch, 0, *(a & (2**64 - 1) for a in padded))
    accumulator, at = 0, 0
    while True:
        op, jt, jf, k = struct.unpack_from("<HBBI", code, 8 * at)
        at += 1
        if op == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, k)
        elif op == 0x06:
            return k
        else:
            hit = {0x15: accumulator == k, 0x35: accumulator >= k, 0x45: bool(accumulator & k)}[op]
            at += jt if hit else jf


@pytest.fixture(params=MACHINES)
def machine(request):
    return request.param


def ask(machine: str, call: str, *arguments: int, **options: bool) -> int:
    number = TABLES[machine][call]
    return verdict(build_filter(machine, **options), AUDIT_ARCH[machine], number, arguments)


def test_calls_of_ordinary_programs_are_allowed(machine):
    for call in ("read", "write", "openat", "mmap", "futex", "exit_group", "clock_nanosleep", "getrandom"):
        assert ask(machine, call) == ALLOW


@pytest.mark.parametrize(
    "call",
    [
        "socket",
        "connect",
        "bind",
        "accept",
        "listen",
        "ptrace",
        "mount",
        "umount2",
        "unshare",
        "setns",
        "bpf",
        "io_uring_setup",
        "io_uring_enter",
        "keyctl",
        "add_key",
        "perf_event_open",
        "process_vm_readv",
        "process_vm_writev",
        "userfaultfd",
        "memfd_create",
        "mknodat",
        "chroot",
        "pivot_root",
        "setuid",
        "setresuid",
        "setgroups",
        "kcmp",
        "pidfd_open",
        "pidfd_getfd",
        "open_by_handle_at",
        "shmget",
        "msgget",
        "semget",
        "init_module",
        "kexec_load",
        "reboot",
        "swapon",
        "sethostname",
        "setrlimit",
        "capset",
        "personality",
        "seccomp",
        "mq_open",
        "timer_create",
        "sched_setaffinity",
        "setpriority",
        "fchownat",
        "vmsplice",
        "execve",
        "execveat",
    ],
)
def test_calls_that_could_reach_out_are_denied(machine, call):
    assert ask(machine, call) == DENIED


def test_calls_of_another_architecture_kill(machine):
    code = build_filter(machine)
    for arch in (0x40000003, 0x40000028, 0, 0xC000003F):
        assert verdict(code, arch, 1) == KILL


def test_x32_numbers_kill():
    for number in (0x40000000, 0x40000027, 0xFFFFFFFF):
        assert verdict(build_filter("x86_64"), AUDIT_ARCH["x86_64"], number) == KILL


def test_clone3_says_that_it_does_not_exist(machine):
    assert ask(machine, "clone3") == ERRNO | ENOSYS
    assert ask(machine, "clone3", processes=True) == ERRNO | ENOSYS


def test_threads_are_allowed_processes_only_if_granted_and_namespaces_never(machine):
    thread, fork = 0x3D0F00, 17
    assert ask(machine, "clone", thread) == ALLOW
    assert ask(machine, "clone", fork) == DENIED
    assert ask(machine, "clone", fork, processes=True) == ALLOW
    for namespace in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert ask(machine, "clone", thread | namespace) == DENIED
        assert ask(machine, "clone", fork | namespace, processes=True) == DENIED


@given(high=st.integers(0, 2**32 - 1), command=st.sampled_from([0x5401, 0x5412, 0x541B, 0x5413, 0x5423]))
def test_ioctl_is_compared_as_the_kernel_reads_it_on_the_low_word(high, command):
    allowed = command in (0x5401, 0x541B, 0x5413)
    for name in MACHINES:
        assert ask(name, "ioctl", 0, (high << 32) | command) == (ALLOW if allowed else DENIED)


def test_only_a_pair_of_unix_streams_can_be_made(machine):
    assert ask(machine, "socketpair", 1, 0x80001) == ALLOW
    assert ask(machine, "socketpair", 1, 2) == DENIED  # datagrams can be sent to any address
    assert ask(machine, "socketpair", 16, 1) == DENIED
    assert ask(machine, "fcntl", 1, 8) == DENIED  # F_SETOWN: signals to whom one likes
    assert ask(machine, "prlimit64", 1, 0) == DENIED  # somebody else's limits
    assert ask(machine, "prlimit64", 0, 0) == ALLOW


def test_signals_and_modes_are_denied_where_the_run_has_no_namespace_of_its_own(machine):
    for call in ("kill", "tgkill", "fchmod", "fchmodat", "utimensat"):
        assert ask(machine, call) == ALLOW
        assert ask(machine, call, own_namespace=False) == DENIED


@given(number=st.integers(0, 2**32 - 1))
def test_every_number_gets_a_verdict_and_unknown_ones_are_never_allowed(number):
    for name in MACHINES:
        result = verdict(build_filter(name), AUDIT_ARCH[name], number)
        assert result in (ALLOW, DENIED, KILL, ERRNO | ENOSYS)
        if number not in TABLES[name].values():
            assert result != ALLOW


def test_a_machine_without_a_table_is_refused(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(SandboxUnavailable, match="riscv64"):
        seccomp.machine()


def _numbers_in_headers(source: str) -> dict[str, int]:
    """What the C preprocessor makes of the kernel's header."""
    done = subprocess.run(
        ["cc", "-E", "-dM", "-x", "c", "-"], input=source, capture_output=True, text=True, check=True
    )
    raw = dict(re.findall(r"#define (__NR3?2?64?_?\w+|__NR_\w+) (\S+)$", done.stdout, re.MULTILINE))
    found = {}
    for name, value in raw.items():
        while value in raw:
            value = raw[value]
        if name.startswith("__NR_") and value.isdigit():
            found[name.removeprefix("__NR_")] = int(value)
    return found


HEADERS = {
    "x86_64": ("asm/unistd_64.h", "#include <asm/unistd_64.h>\n"),
    "aarch64": (
        "asm-generic/unistd.h",
        "#define __BITS_PER_LONG 64\n#define __ARCH_WANT_RENAMEAT\n#define __ARCH_WANT_NEW_STAT\n"
        "#define __ARCH_WANT_SET_GET_RLIMIT\n#define __ARCH_WANT_SYS_CLONE3\n"
        "#include <asm-generic/unistd.h>\n",
    ),
}


def test_the_tables_agree_with_the_kernels_headers(machine):
    header, source = HEADERS[machine]
    if not any(Path("/usr/include").glob(f"**/{header}")):
        pytest.skip("the kernel's headers are not installed")
    try:
        numbers = _numbers_in_headers(source)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no C preprocessor for these headers here")
    compared = {call: number for call, number in TABLES[machine].items() if call in numbers}
    assert len(compared) > 100
    assert compared == {call: numbers[call] for call in compared}
