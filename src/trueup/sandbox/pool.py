"""Slots: a fixed number of workers, lent one job at a time, replaced when they fault.

A fault is never the last word. The job is tried again, a few times, each time on a fresh worker that has
first answered a program whose answer is known. If known programs fail, the machine is at fault and the job is
unscored. If they succeed and the job faults every time, the job is what kills workers: it is answered, as
`suspect`, so that a candidate can neither cause "unscored" nor gain by it.
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


_ATTEMPTS = 5  # a machine that kills workers at random must not make a suspect of whom it hits
_CONVICTING = 2  # fresh workers that ran a known program well and then died on the job


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
        healthy, trouble = 0, ""
        try:
            for attempt in range(_ATTEMPTS):
                try:
                    worker = worker or self._new()
                    trouble = canary(worker) if attempt else ""
                    if not trouble:
                        healthy += attempt > 0
                        run = worker.run(job)
                        if not run.fault and not _killed_from_outside(run):
                            return Ran(run)
                except (SandboxUnavailable, OSError) as error:
                    trouble = str(error)
                if worker is not None:
                    self._discard(worker)
                    worker = None
                if trouble:
                    time.sleep(0.05 * attempt)
            if healthy >= _CONVICTING:
                return Ran(None, suspect=True)
            return Ran(None, unavailable=trouble or "workers died on it and on known programs alike")
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
