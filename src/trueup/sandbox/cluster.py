"""Runs on a Ray cluster: one detached actor per node owns its slots. The only module that imports Ray.

Jobs travel in batches, because a message per program would cost more than the program. A batch counts when
its answer has come back whole; when its actor or node dies, all of its jobs go out again to another. So every
job is answered exactly once, and a death is neither a score nor a loss. As with HTTP workers, only source,
inputs and limits travel, and the judge stays with the caller.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from trueup.errors import MissingExtraError
from trueup.sandbox.pool import Ran
from trueup.sandbox.wire import Job, job_from_json, job_to_json, run_from_json, run_to_json

try:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as error:  # pragma: no cover - the extra is installed where this is tested
    raise MissingExtraError("The sandbox on Ray", "ray", error.name or "ray") from error

__all__ = ["RayPool"]

_NAMESPACE = "trueup"
_LINGER_S = 0.01  # how long an unfilled batch waits for more jobs
_OVERLAP = 2  # batches at a time on one actor, so that one's tail does not leave slots idle
_MAX_TRIES = 10


class _Node:
    """Runs on a cluster node; owns one local sandbox."""

    def __init__(self, slots: int, backend: str, packages: tuple[str, ...]) -> None:
        from trueup.sandbox.sandbox import Sandbox

        self._sandbox = Sandbox(slots=slots, backend=backend, packages=packages)
        self._sandbox.start()
        self._threads = ThreadPoolExecutor(slots)

    def run_batch(self, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Raw outcomes of jobs, in order."""
        return list(self._threads.map(self._run, jobs))

    def _run(self, body: dict[str, Any]) -> dict[str, Any]:
        ran = self._sandbox.execute(job_from_json(body))
        run = None if ran.run is None else run_to_json(ran.run)
        return {"run": run, "suspect": ran.suspect, "unavailable": ran.unavailable}


@dataclass
class _Pending:
    body: dict[str, Any]
    answer: Future[Ran] = field(default_factory=Future)
    tries: int = 0


@dataclass
class _Handle:
    node: str
    actor: Any
    in_flight: int = 0


class RayPool:
    """Executes jobs on every node of the cluster that `ray.init` finds.

    `slots` programs at a time per node; `batch` jobs at most per message. Actors are detached: they outlive
    this process, and the next pool with the same slots finds them again (`stop_actors` ends them).
    """

    def __init__(
        self, slots: int, backend: str = "auto", packages: tuple[str, ...] = (), *, batch: int = 100
    ) -> None:
        if not ray.is_initialized():
            ray.init(address="auto", namespace=_NAMESPACE, log_to_driver=False)
        self._config = (slots, backend, packages)
        self._batch = batch
        self._waiting: queue.SimpleQueue[_Pending | None] = queue.SimpleQueue()
        self._handles: dict[str, _Handle] = {}
        self._lock = threading.Lock()
        self._in_flight = 0
        self._closed = False
        self._senders = ThreadPoolExecutor(32, thread_name_prefix="trueup-ray")
        self._dispatcher = threading.Thread(target=self._dispatch, name="trueup-ray-dispatch", daemon=True)
        self._dispatcher.start()

    @property
    def in_flight(self) -> int:
        """Jobs that have been given to this pool and not been answered."""
        with self._lock:
            return self._in_flight

    def execute(self, job: Job) -> Ran:
        """Run a job somewhere on the cluster; blocks until it is answered."""
        pending = _Pending(job_to_json(job))
        with self._lock:
            self._in_flight += 1
        try:
            self._waiting.put(pending)
            return pending.answer.result()
        finally:
            with self._lock:
                self._in_flight -= 1

    def _dispatch(self) -> None:
        """Gather waiting jobs into batches and give each to the least loaded actor."""
        while (first := self._waiting.get()) is not None:
            batch = [first]
            deadline = time.monotonic() + _LINGER_S
            while len(batch) < self._batch:
                try:
                    more = self._waiting.get(timeout=max(0.0, deadline - time.monotonic()))
                except queue.Empty:
                    break
                if more is None:
                    self._fail(batch, "the pool was closed")
                    return
                batch.append(more)
            handle = self._choose()
            if handle is None:
                self._again(batch, "no node of the cluster can take a sandbox")
            else:
                self._senders.submit(self._send, handle, batch)

    def _choose(self) -> _Handle | None:
        """The actor with the fewest batches, once one has fewer than it may overlap."""
        for _ in range(1200):
            self._refresh()
            with self._lock:
                able = [h for h in self._handles.values() if h.in_flight < _OVERLAP]
                if able:
                    handle = min(able, key=lambda h: h.in_flight)
                    handle.in_flight += 1
                    return handle
                if not self._handles or self._closed:
                    break
            time.sleep(0.05)
        return None

    def _refresh(self) -> None:
        """An actor for every live node, none for dead ones."""
        list_nodes: Callable[[], list[dict[str, Any]]] = ray.nodes
        alive = {node["NodeID"] for node in list_nodes() if node["Alive"]}
        with self._lock:
            for node in set(self._handles) - alive:
                del self._handles[node]
            missing = alive - set(self._handles)
        for node in missing:
            slots, backend, packages = self._config
            name = f"sandbox-{node}-{slots}-{backend}-{'-'.join(packages)}"
            with contextlib.suppress(ray.exceptions.RayError, ValueError):
                actor = (
                    ray.remote(_Node)
                    .options(
                        name=name,
                        namespace=_NAMESPACE,
                        lifetime="detached",
                        get_if_exists=True,
                        num_cpus=0,
                        max_concurrency=_OVERLAP,
                        scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
                    )
                    .remote(slots, backend, packages)
                )
                with self._lock:
                    self._handles[node] = _Handle(node, actor)

    def _send(self, handle: _Handle, batch: list[_Pending]) -> None:
        try:
            answers = ray.get(handle.actor.run_batch.remote([pending.body for pending in batch]))
        except ray.exceptions.RayError as error:
            with self._lock:  # that actor is not to be asked again; the next refresh makes another
                if self._handles.get(handle.node) is handle:
                    del self._handles[handle.node]
            with contextlib.suppress(ray.exceptions.RayError, ValueError):
                ray.kill(handle.actor)
            self._again(batch, f"{type(error).__name__}")
            return
        with self._lock:
            handle.in_flight -= 1
        for pending, answer in zip(batch, answers, strict=True):
            if answer["unavailable"]:
                self._again([pending], answer["unavailable"])
                continue
            run = None if answer["run"] is None else run_from_json(answer["run"])
            pending.answer.set_result(Ran(run, answer["suspect"]))

    def _again(self, batch: list[_Pending], why: str) -> None:
        """Back into the queue; after enough tries a job is unavailable, which is never a score."""
        for pending in batch:
            pending.tries += 1
            if pending.tries >= _MAX_TRIES or self._closed:
                self._fail([pending], f"no node could run it in {pending.tries} tries; the last: {why}")
            else:
                self._waiting.put(pending)

    def _fail(self, batch: list[_Pending], why: str) -> None:
        for pending in batch:
            if not pending.answer.done():
                pending.answer.set_result(Ran(None, unavailable=why))

    def stop_actors(self) -> None:
        """End the detached actors that this pool knows."""
        with self._lock:
            handles, self._handles = list(self._handles.values()), {}
        for handle in handles:
            with contextlib.suppress(ray.exceptions.RayError, ValueError):
                ray.kill(handle.actor)

    def close(self) -> None:
        """Stop giving out jobs; the actors stay for the next pool."""
        self._closed = True
        self._waiting.put(None)
        self._dispatcher.join()
        self._senders.shutdown(wait=False, cancel_futures=True)
