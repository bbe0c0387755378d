"""The judge's process: started once per slot, asked over pipes, killed when it takes too long.

A judge that dies is not the candidate's answer: the same bytes go to a fresh one. If judges that were up keep
dying or hanging on them, the bytes are to blame, and the run is answered as `suspect`. If no judge comes up at
all, the machine is to blame, and the run is unscored.
"""

from __future__ import annotations

import contextlib
import json
import queue
import resource
import select
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

from trueup.errors import ConfigError, InfrastructureError
from trueup.sandbox.guest import codec
from trueup.sandbox.guest.clock import cpu_used_s

__all__ = ["JudgePool", "SuspectError"]

_CPU_S = 5.0  # for one verdict; an honest one takes a millisecond
_WALL_S = 60.0
PATIENCE_S = 60.0  # how long judges that die before they are up are started again
_CONVICTING = 3  # judges that were up and died or hung on the same bytes
_HELLO = b"up"
_MEMORY = 4 << 30
_BOOT = str(Path(__file__).with_name("judge_boot.py"))


class SuspectError(Exception):
    """Judging these bytes kills or hangs one fresh judge after the other, or breaks it."""


class _JudgeDiedError(Exception):
    """The judge died or was killed; `at_work` says whether it had been up and was judging."""

    def __init__(self, at_work: bool) -> None:
        super().__init__()
        self.at_work = at_work


class _Judge:
    def __init__(self) -> None:
        path = json.dumps([p for p in sys.path if isinstance(p, str)])
        self.process = subprocess.Popen(
            [sys.executable, _BOOT, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

        self._up = False

    def ask(self, request: bytes) -> Any:
        """The answer to a request. Raises `_JudgeDiedError` when the judge dies or has to be killed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if not self._up:
            came_up = bool(select.select([self.process.stdout], [], [], _WALL_S)[0])
            if not came_up or _receive(self.process.stdout) != _HELLO:
                raise _JudgeDiedError(at_work=False)
            self._up = True
        try:
            _send(self.process.stdin, request)
        except OSError:
            raise _JudgeDiedError(at_work=False) from None
        started, cpu_before = time.monotonic(), cpu_used_s(self.process.pid) or 0.0
        while not select.select([self.process.stdout], [], [], 0.2)[0]:
            used = (cpu_used_s(self.process.pid) or 0.0) - cpu_before
            if used > _CPU_S or time.monotonic() - started > _WALL_S:
                raise _JudgeDiedError(at_work=True)
        answer = _receive(self.process.stdout)
        if answer is None:
            raise _JudgeDiedError(at_work=True)
        return codec.loads(answer)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()


class JudgePool:
    """As many judges as there are callers at a time, up to `size`, started when first needed."""

    def __init__(self, size: int) -> None:
        self._free: queue.LifoQueue[_Judge | None] = queue.LifoQueue()
        for _ in range(size):
            self._free.put(None)
        self._all: set[_Judge] = set()
        self._lock = threading.Lock()

    def ask(self, kind: str, **request: Any) -> Any:
        """The answer of the judge for `kind` (see `judge.JUDGES`).

        Raises `ConfigError` for expected values that are not plain data or a check that cannot be used,
        `SuspectError` when judge after judge dies on it.
        """
        try:
            data = codec.dumps({"kind": kind, **request})
        except codec.NotPlainError as error:
            raise ConfigError(
                f"Expected values and checks must be plain data, got {error.what}. Nothing was judged. "
                "Use None, bool, int, float, complex, str, bytes, list, tuple, dict and set."
            ) from None
        judge = self._free.get()
        died_at_work = 0
        deadline = time.monotonic() + PATIENCE_S
        try:
            while True:
                judge = judge or self._new()
                try:
                    status, answer = judge.ask(data)
                    break
                except _JudgeDiedError as death:
                    self._discard(judge)
                    judge = None
                    died_at_work += death.at_work
                if died_at_work >= _CONVICTING:
                    raise SuspectError
                if time.monotonic() > deadline:
                    raise InfrastructureError("No judge stayed up. Nothing was judged. See its error output.")
        finally:
            self._free.put(judge)
        if status == "config":
            raise ConfigError(answer)
        if status == "broken":  # by these bytes, every time: not the machine's fault
            raise SuspectError(answer)
        return answer

    def pids(self) -> list[int]:
        """Process ids of the judges that are up."""
        with self._lock:
            return [judge.process.pid for judge in self._all]

    def _new(self) -> _Judge:
        judge = _Judge()
        with self._lock:
            self._all.add(judge)
        return judge

    def _discard(self, judge: _Judge) -> None:
        with self._lock:
            self._all.discard(judge)
        judge.close()

    def close(self) -> None:
        """End every judge."""
        with self._lock:
            judges, self._all = self._all, set()
        for judge in judges:
            judge.close()


def _send(stream: BinaryIO | Any, body: bytes) -> None:
    stream.write(struct.pack(">I", len(body)) + body)
    stream.flush()


def _receive(stream: BinaryIO | Any) -> bytes | None:
    head = stream.read(4)
    if len(head) < 4:
        return None
    (size,) = struct.unpack(">I", head)
    body: bytes = stream.read(size)
    return body if len(body) == size else None


def serve_verdicts() -> None:
    """The judge's own main loop: one request at a time from standard input, until it closes."""
    from trueup.sandbox.judge import JUDGES

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # a check may print; only answers belong on the pipe
    _send(sink, _HELLO)
    while (data := _receive(source)) is not None:
        request = codec.loads(data)
        try:
            answer = ["ok", JUDGES[request["kind"]](request)]
        except ConfigError as error:
            answer = ["config", str(error)]
        except Exception as error:
            answer = ["broken", f"{type(error).__name__}: {error}"[:500]]
        _send(sink, codec.dumps(answer))
