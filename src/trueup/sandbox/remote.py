"""Runs on other machines: a pool of HTTP workers behind the interface of the local one.

Only source, inputs and limits travel; what comes back is judged here. A busy worker (429) means waiting, a
broken one means another worker, and a slow one is hedged: the same job, under the same id, is also given to a
second worker, and the first answer counts. None of that can become a score; only when every worker has failed
for long enough is the job unscored.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trueup.errors import ConfigError, MissingExtraError, SandboxUnavailable
from trueup.sandbox.guest.clock import MAX_STRETCH
from trueup.sandbox.pool import Ran
from trueup.sandbox.wire import Job, job_to_json, run_from_json

if TYPE_CHECKING:
    import httpx

__all__ = ["RemotePool"]

_BACK_OFF_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # how long a worker rests after its n-th failure in a row
_START_S = 60.0  # on top of the longest possible run, for a job's place in a worker's queue


@dataclass
class _Worker:
    url: str
    in_flight: int = 0
    failures: int = 0
    rests_until: float = 0.0


class _BusyError(Exception):
    pass


class _BrokenError(Exception):
    pass


class RemotePool:
    """Executes jobs on the workers at `urls`, least loaded first.

    `hedge_s` is after how many seconds without an answer a job is given to a second worker too (None: its
    wall limit plus two seconds); `patience_s` is how long to go on trying before a job counts as unavailable.
    """

    def __init__(
        self,
        urls: Sequence[str],
        token: str | None = None,
        *,
        hedge_s: float | None = None,
        patience_s: float = 300.0,
    ) -> None:
        try:
            import httpx as http
        except ImportError:
            raise MissingExtraError("Remote sandbox workers", "serve", "httpx") from None
        if not urls or isinstance(urls, str):
            raise ConfigError(
                f"workers must be a list of at least one address, got {urls!r}. Nothing could be run. "
                "Give for example ['http://10.0.0.5:8765']."
            )
        self._errors: tuple[type[Exception], ...] = (
            http.HTTPError,
            http.InvalidURL,
            KeyError,
            TypeError,
            ValueError,
        )
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        limits = http.Limits(max_connections=None, max_keepalive_connections=64)
        self._http: httpx.Client = http.Client(headers=headers, limits=limits, trust_env=False)
        self._workers = [_Worker(url.rstrip("/")) for url in urls]
        self._hedge_s = hedge_s
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(64, thread_name_prefix="trueup-remote")

    @property
    def in_flight(self) -> int:
        """Requests that have been sent and not answered, over all workers."""
        with self._lock:
            return sum(worker.in_flight for worker in self._workers)

    def health(self) -> list[dict[str, Any]]:
        """What every worker says of itself; raises `SandboxUnavailable` when none answers."""
        found = []
        why = ""
        for worker in self._workers:
            try:
                reply = self._http.get(f"{worker.url}/health", timeout=5.0)
                found.append({"url": worker.url, **reply.raise_for_status().json()})
            except self._errors as error:
                why = f"{worker.url}: {error}"
        if not found:
            raise SandboxUnavailable(f"No remote worker answers. {why}. Start one: trueup serve sandbox.")
        return found

    def execute(self, job: Job) -> Ran:
        """Run a job to a judgeable outcome on whichever worker can."""
        body = {"id": uuid.uuid4().hex, "job": job_to_json(job)}
        deadline = time.monotonic() + self._patience_s
        last, attempt = "no worker was free", 0
        while time.monotonic() < deadline:
            worker = self._take(set())
            if worker is None:
                time.sleep(0.05)
                continue
            try:
                ran = self._hedged(worker, body, job)
            except _BusyError as error:
                attempt += 1
                last = str(error)
                time.sleep(min(0.05 * 1.5 ** min(attempt, 10), 2.0) * random.uniform(0.5, 1.5))
            except _BrokenError as error:
                last = str(error)
            else:
                if not ran.unavailable:
                    return ran
                last = ran.unavailable
                time.sleep(0.2)
        return Ran(
            None, unavailable=f"no worker could run it for {self._patience_s:g} s; the last said: {last}"
        )

    def _take(self, but: set[str]) -> _Worker | None:
        """The least loaded worker that is not resting, counted as in flight; None if there is none."""
        now = time.monotonic()
        with self._lock:
            able = [w for w in self._workers if w.rests_until <= now and w.url not in but]
            if not able:
                return None
            least = min(w.in_flight for w in able)
            worker = random.choice([w for w in able if w.in_flight == least])
            worker.in_flight += 1
            return worker

    def _hedged(self, worker: _Worker, body: dict[str, Any], job: Job) -> Ran:
        hedge_s = self._hedge_s if self._hedge_s is not None else job.limits.wall_s + 2.0
        timeout_s = MAX_STRETCH * job.limits.wall_s + _START_S
        pending: set[Future[Ran]] = {self._threads.submit(self._post, worker, body, timeout_s)}
        done, pending = wait(pending, timeout=hedge_s)
        if not done:
            second = self._take({worker.url})
            if second is not None:
                pending.add(self._threads.submit(self._post, second, body, timeout_s))
        error: Exception | None = None
        while done or pending:
            for future in done:
                try:
                    return future.result()
                except (_BusyError, _BrokenError) as failure:
                    error = failure
            done, pending = wait(pending, return_when=FIRST_COMPLETED) if pending else (set(), set())
        assert error is not None
        raise error

    def _post(self, worker: _Worker, body: dict[str, Any], timeout_s: float) -> Ran:
        """One request. Raises `_BusyError` (wait) or `_BrokenError` (that worker rests)."""
        try:
            reply = self._http.post(f"{worker.url}/run", json=body, timeout=timeout_s)
            if reply.status_code == 429:
                raise _BusyError(f"{worker.url} is busy")
            if reply.status_code in (401, 422):
                raise ConfigError(
                    f"Worker {worker.url} must accept the job, got {reply.status_code} {reply.text[:300]}. "
                    "It would refuse it every time. Check the token, and that both sides have one version."
                )
            answer = reply.raise_for_status().json()
            run = None if answer["run"] is None else run_from_json(answer["run"])
            ran = Ran(run, bool(answer["suspect"]), str(answer["unavailable"]))
        except ConfigError:
            raise
        except self._errors as error:
            with self._lock:
                rest = _BACK_OFF_S[min(worker.failures, len(_BACK_OFF_S) - 1)]
                worker.failures += 1
                worker.rests_until = time.monotonic() + rest
            raise _BrokenError(f"{worker.url}: {type(error).__name__}: {error}") from None
        finally:
            with self._lock:
                worker.in_flight -= 1
        with self._lock:
            worker.failures = 0
        return ran

    def close(self) -> None:
        """Let go of the connections; requests that were hedged away may still be running."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._http.close()
