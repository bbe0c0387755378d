"""Slots: a fixed number of workers, lent one job at a time, replaced when they fault.

A fault is never the last word. The job is tried once more on a fresh worker that has first answered a
program whose answer is known. If that known program fails, the machine is at fault and the job is unscored.
If it succeeds and the job faults again, the job is what kills workers: it is answered, as `suspect`, so that
a candidate can neither cause "unscored" nor gain by it.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass

from trueup.errors import SandboxUnavailable
from trueup.sandbox.backends import Worker, canary
from trueup.sandbox.wire import Job, RawRun

__all__ = ["Pool", "Ran"]


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
        self._free: queue.LifoQueue[Worker | None] = queue.LifoQueue()
        for _ in range(slots):
            self._free.put(None)
        self._workers: set[Worker] = set()
        self._lock = threading.Lock()
        self._closed = False

    def execute(self, job: Job) -> Ran:
        """Run a job to a judgeable outcome; waits for a free slot."""
        worker = self._free.get()
        try:
            for attempt in range(2):
                if worker is None:
                    worker = self._new()
                    trouble = canary(worker) if attempt else ""
                    if trouble:
                        return Ran(None, unavailable=trouble)
                run = worker.run(job)
                if not run.fault and not _killed_from_outside(run):
                    return Ran(run)
                self._discard(worker)
                worker = None
            return Ran(None, suspect=True)
        except (SandboxUnavailable, OSError) as error:
            if worker is not None:
                self._discard(worker)
                worker = None
            return Ran(None, unavailable=str(error))
        finally:
            self._free.put(worker)

    def _new(self) -> Worker:
        worker = self._start()
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


def _killed_from_outside(run: RawRun) -> bool:
    """SIGKILL that neither we nor the candidate sent: it is its namespace's first process, which the kernel
    shields from such signals of its own. Memory pressure on the machine does this."""
    return run.signal == signal.SIGKILL and run.stopped is None
