"""Descriptors between the host and a run: sealed files in, capped pipes out."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
import tempfile
from collections.abc import Sequence
from types import TracebackType

__all__ = ["Streams", "memory_file"]

_STDOUT, _STDERR, _RECORDS = range(3)
_FRAMING = 4096  # bytes of the record stream's own that do not count against the candidate


def memory_file(data: bytes, name: str = "job") -> int:
    """A descriptor of an anonymous file with `data`, at its start, sealed where the system can."""
    if hasattr(os, "memfd_create"):
        import fcntl

        fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        _write_all(fd, data)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
        _write_all(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


class Streams:
    """The descriptors of one run. `outward` go to the run; the rest is read here, up to `cap` bytes each."""

    def __init__(self, job: bytes, stdin: bytes, cap: int, side_channel: bool) -> None:
        self.cap = cap
        self.data = (bytearray(), bytearray(), bytearray())
        self.overflow = False
        self._stack = contextlib.ExitStack()
        self.job_fd = self._keep(memory_file(job))
        self.stdin_fd = self._keep(memory_file(stdin, "stdin"))
        pairs = [os.pipe(), os.pipe(), _one_way_socket()]
        self.writers = [writer for _, writer in pairs]
        self._index = {self._keep(reader): index for index, (reader, _) in enumerate(pairs)}
        for reader in self._index:
            os.set_blocking(reader, False)
        self.open = set(self._index)
        self.side: socket.socket | None = None
        self.side_fd = -1
        if side_channel:
            self.side, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._stack.callback(self.side.close)
            self.side_fd = theirs.detach()
            self.writers.append(self.side_fd)
        self._stack.callback(self.hand_over)

    def _keep(self, fd: int) -> int:
        self._stack.callback(os.close, fd)
        return fd

    def hand_over(self) -> None:
        """Close our copies of the run's ends, once it has its own: only then do streams end with it."""
        while self.writers:
            os.close(self.writers.pop())

    def __enter__(self) -> Streams:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def read(self, fd: int) -> None:
        """Take what stream `fd` has. Beyond the cap it is dropped and `overflow` set."""
        try:
            chunk = os.read(fd, 65536)
        except BlockingIOError:
            return
        if not chunk:
            self.open.discard(fd)
            return
        index = self._index[fd]
        buffer = self.data[index]
        room = self.cap + (_FRAMING if index == _RECORDS else 0) - len(buffer)
        buffer += chunk[:room]
        self.overflow = self.overflow or len(chunk) > room

    def drain(self, timeout_s: float = 1.0) -> None:
        """Read to the end after every writer has died; gives up on streams that somebody still holds."""
        poller = select.poll()
        for fd in self.open:
            poller.register(fd, select.POLLIN)
        while self.open and not self.overflow:
            events = poller.poll(timeout_s * 1000)
            if not events:
                return
            for fd, _ in events:
                self.read(fd)
                if fd not in self.open:
                    poller.unregister(fd)

    @property
    def stdout(self) -> bytes:
        return bytes(self.data[_STDOUT])

    @property
    def stderr(self) -> bytes:
        return bytes(self.data[_STDERR])

    @property
    def records(self) -> bytes:
        return bytes(self.data[_RECORDS])

    def artefacts(self, names: Sequence[str], max_bytes: int) -> dict[str, bytes]:
        """The named files of the run's /tmp, read after its end through the descriptor that it sent before
        the candidate's first instruction. Regular files only, no links, nothing above `max_bytes`."""
        if self.side is None:
            return {}
        self.side.setblocking(False)
        try:
            _, fds, _, _ = socket.recv_fds(self.side, 1, 1)
        except OSError:
            return {}
        found = {}
        for folder in fds[:1]:
            for name in names:
                content = _read_regular(folder, name, max_bytes)
                if content is not None:
                    found[name] = content
        for fd in fds:
            os.close(fd)
        return found


def _one_way_socket() -> tuple[int, int]:
    """A reader and a writer that can do nothing else.

    The record stream is a socket because a pipe can be opened again, for reading, through /proc/self/fd: a
    candidate could take its READY back and pass for a fault of the machine.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.shutdown(socket.SHUT_WR)
    theirs.shutdown(socket.SHUT_RD)
    return ours.detach(), theirs.detach()


def _read_regular(folder: int, name: str, max_bytes: int) -> bytes | None:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_size > max_bytes:
            return None
        content = b""
        while len(content) < info.st_size and (chunk := os.read(fd, info.st_size - len(content))):
            content += chunk
        return content
    except OSError:
        return None
    finally:
        os.close(fd)
