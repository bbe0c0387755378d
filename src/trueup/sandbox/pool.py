"""Slots: a fixed number of workers, lent one job at a time, replaced when they fault.

A fault is never the last word. The job is tried again, each time on a fresh worker that has first answered a
program whose answer is known. While known programs fail, the machine is at fault: it is given time to recover,
and then the job is unscored. If they succeed and the job faults every time, the job is what kills workers: it
is answered, as `suspect`, so that a candidate can neither cause "unscored" nor gain by it.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from trueup.errors import SandboxUnavailable
from trueup.sandbox.backends import Worker, canary
from trueup.sandbox.wire import Job, RawRun

__all__ = ["Pool", "Ran"]


PATIENCE_S = 20.0  # how long a machine on which known programs fail is given to recover
_CONVICTING = 3  # fresh workers that ran a known program well and then died on the job


@dataclass(frozen=True, slots=True)
class Ran:
    """A job's outcome: a run that can be judged, or `suspect`, or `unavailable` with the machine's fault."""

    run: RawRun | None
    suspect: bool = False
    unavailable: str = ""


class Pool:
    """`slots` workers made by `start`, as they are needed."""

    def __init__(self, slots: int, start: Callable[[], Worker]) -> None:
        self._start = start
        # Workers ask the kernel to die with the thread that started them, so one that stays starts them all.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="trueup-start")
        self._free: queue.LifoQueue[Worker | None] = queue.LifoQueue()
        for _ in range(slots):
            self._free.put(None)
        self._workers: set[Worker] = set()
        self._lock = threading.Lock()
        self._in_flight = 0
        self._tired = False  # known programs failed for so long that the next job is not to wait as well

    @property
    def in_flight(self) -> int:
        """Jobs that run or wait for a slot."""
        with self._lock:
            return self._in_flight

    def execute(self, job: Job) -> Ran:
        """Run a job to a judgeable outcome; waits for a free slot."""
        with self._lock:
            self._in_flight += 1
        try:
            return self._execute(job)
        finally:
            with self._lock:
                self._in_flight -= 1

    def _execute(self, job: Job) -> Ran:
        worker = self._free.get()
        deadline = time.monotonic() + (0.0 if self._tired else PATIENCE_S)
        must_prove_itself = False
        convictions, trouble = 0, ""
        try:
            while True:
                try:
                    worker = worker or self._new()
                    trouble = canary(worker) if must_prove_itself else ""
                    if not trouble:
                        run = worker.run(job)
                        if not run.fault and not _killed_from_outside(run):
                            self._tired = False
                            return Ran(run)
                        convictions += must_prove_itself
                except (SandboxUnavailable, OSError) as error:
                    trouble = str(error)
                if worker is not None:
                    self._discard(worker)
                    worker = None
                if convictions >= _CONVICTING:
                    return Ran(None, suspect=True)
                if trouble and time.monotonic() > deadline:
                    self._tired = True
                    return Ran(None, unavailable=trouble)
                if trouble:
                    time.sleep(0.1)
                must_prove_itself = True
        finally:
            self._free.put(worker)

    def _new(self) -> Worker:
        worker = self._starter.submit(self._start).result()
        with self._lock:
            self._workers.add(worker)
        return worker

    def _discard(self, worker: Worker) -> None:
        with self._lock:
            self._workers.discard(worker)
        with contextlib.suppress(OSError):
            worker.close()

    def close(self) -> None:
        """End every worker."""
        with self._lock:
            workers, self._workers = self._workers, set()
        for worker in workers:
            worker.close()
        self._starter.shutdown()


def _killed_from_outside(run: RawRun) -> bool:
    """SIGKILL that neither we nor the candidate sent: it is its namespace's first process, which the kernel
    shields from such signals of its own. Memory pressure on the machine does this."""
    return run.signal == signal.SIGKILL and run.stopped is None
