"""Independent jobs on all CPUs, and an interrupt that ends at once."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from trueup.errors import InfrastructureError

__all__ = ["available_cpus", "run_jobs"]

Job = TypeVar("Job")
Result = TypeVar("Result")


def run_jobs(function: Callable[[Job], Result], jobs: Sequence[Job], n_workers: int) -> Iterator[Result]:
    """Results in the order in which they are done. `function` must be importable; one worker means this process.

    Whoever stops iterating, by an interrupt or an error, ends the workers with what they were doing.

    Raises:
        InfrastructureError: a worker died.
    """
    if n_workers <= 1 or len(jobs) <= 1:
        yield from map(function, jobs)
        return
    # Spawned and not forked: a progress bar runs a thread, and a forked child could inherit its lock.
    context = multiprocessing.get_context("spawn")
    earlier = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(min(n_workers, len(jobs)), context, _ignore_interrupts)
    finished = False
    try:
        with _one_thread_each():
            pending = [pool.submit(function, job) for job in jobs]
        for future in as_completed(pending):
            yield future.result()
        finished = True
    except BrokenProcessPool:
        raise InfrastructureError(
            "A worker process died, perhaps for want of memory. What was finished is kept. "
            "Call the command again, with fewer --jobs if it happens again."
        ) from None
    finally:
        if not finished:
            for worker in set(multiprocessing.active_children()) - earlier:
                worker.terminate()
        pool.shutdown(wait=finished, cancel_futures=True)


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """Workers started within find linear algebra set to one thread: there is a worker per CPU already, and
    threads that wait for each other by spinning would take turns at blocking it."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    added = [name for name in names if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides


def available_cpus() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
