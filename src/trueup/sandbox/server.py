"""A stateless worker over HTTP: programs in, raw outputs out. The only module that imports FastAPI.

The judge stays with the caller, so a broken or curious worker learns no expected value and can hand out no
verdict. A worker with no free place answers 429 and the caller waits: overload never becomes a score.

    POST /run      {"id": ..., "job": ...}  →  {"run": ..., "suspect": ..., "unavailable": ...}
    GET  /health   which backend, how many slots, how many jobs in flight
    GET  /metrics  Prometheus

A job's id makes asking again safe: while it runs, a second request joins it, and afterwards it gets the
remembered answer.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections import OrderedDict
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from trueup.errors import ConfigError, MissingExtraError
from trueup.sandbox.pool import Ran
from trueup.sandbox.sandbox import Sandbox
from trueup.sandbox.wire import Job, job_from_json, run_to_json

try:
    import uvicorn
    from fastapi import FastAPI, HTTPException, Request, Response
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
except ImportError as error:  # pragma: no cover - the extra is installed where this is tested
    raise MissingExtraError("A sandbox worker", "serve", error.name or "fastapi") from error

__all__ = ["create_app", "serve"]

_REMEMBERED = 256  # finished jobs whose answers are kept for whoever asks again
_MAX_BODY = 64 << 20  # bytes of a request


class _Metrics:
    """Counters of one worker."""

    def __init__(self, worker: _Worker) -> None:
        self.registry = CollectorRegistry()
        kind: dict[str, Any] = {"registry": self.registry}
        self.jobs = Counter("trueup_sandbox_jobs_total", "Jobs finished, by outcome", ["outcome"], **kind)
        self.refused = Counter("trueup_sandbox_refused_total", "Requests answered 429", **kind)
        self.joined = Counter("trueup_sandbox_joined_total", "Requests answered from a known job", **kind)
        self.cpu = Counter("trueup_sandbox_cpu_seconds_total", "CPU seconds of candidates", **kind)
        self.wall = Histogram("trueup_sandbox_run_seconds", "Wall seconds of a run", **kind)
        in_flight = Gauge("trueup_sandbox_in_flight", "Jobs accepted and not finished", **kind)
        in_flight.set_function(lambda: worker.in_flight)

    def count(self, ran: Ran) -> None:
        if ran.run is None:
            self.jobs.labels("unavailable" if ran.unavailable else "suspect").inc()
            return
        self.jobs.labels(ran.run.ended or "ended").inc()
        self.cpu.inc(max(ran.run.cpu_s, 0.0))
        self.wall.observe(max(ran.run.wall_s, 0.0))


class _Worker:
    """Jobs by id, and how many may wait."""

    def __init__(self, sandbox: Sandbox, queue: int) -> None:
        self.sandbox = sandbox
        self.places = sandbox.slots + queue
        self.in_flight = 0
        self.metrics = _Metrics(self)
        self._threads = ThreadPoolExecutor(sandbox.slots, thread_name_prefix="trueup-serve")
        self._jobs: OrderedDict[str, asyncio.Task[dict[str, Any]]] = OrderedDict()

    async def answer(self, name: str, job: Job) -> dict[str, Any]:
        task = self._jobs.get(name)
        if task is not None:
            self.metrics.joined.inc()
        else:
            if self.in_flight >= self.places:
                self.metrics.refused.inc()
                raise HTTPException(429, "all places are taken", headers={"Retry-After": "0.2"})
            self.in_flight += 1
            task = asyncio.create_task(self._run(name, job))
            self._jobs[name] = task
            self._forget()
        return await asyncio.shield(task)  # a caller that leaves must not take the others' answer with it

    async def _run(self, name: str, job: Job) -> dict[str, Any]:
        try:
            loop = asyncio.get_running_loop()
            ran = await loop.run_in_executor(self._threads, self.sandbox.execute, job)
        finally:
            self.in_flight -= 1
        self.metrics.count(ran)
        if ran.unavailable:
            self._jobs.pop(name, None)  # whoever asks again deserves another try
        return {
            "run": None if ran.run is None else run_to_json(ran.run),
            "suspect": ran.suspect,
            "unavailable": ran.unavailable,
        }

    def _forget(self) -> None:
        for name in list(self._jobs)[: max(0, len(self._jobs) - _REMEMBERED)]:
            if self._jobs[name].done():
                del self._jobs[name]

    def close(self) -> None:
        self._threads.shutdown()
        self.sandbox.close()


def create_app(sandbox: Sandbox, token: str | None = None, queue: int | None = None) -> FastAPI:
    """The worker as an ASGI application. `queue` jobs may wait beside those that run (default 4 per slot);
    with `token` every request but /health needs `Authorization: Bearer <token>`."""
    worker = _Worker(sandbox, 4 * sandbox.slots if queue is None else queue)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        sandbox.start()
        yield
        worker.close()

    app = FastAPI(title="trueup sandbox worker", lifespan=lifespan, docs_url=None, redoc_url=None)

    def admit(request: Request) -> None:
        if token is None:
            return
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise HTTPException(401, "a bearer token is required")

    async def run(request: Request) -> dict[str, Any]:
        admit(request)
        body = await _read(request)
        try:
            name, job = str(body["id"]), job_from_json(body["job"])
        except (ConfigError, KeyError, TypeError) as error:
            raise HTTPException(422, str(error)) from None
        try:
            return await worker.answer(name, job)
        except ConfigError as error:
            raise HTTPException(422, str(error)) from None

    async def health() -> dict[str, Any]:
        return {
            "ok": True,
            "backend": sandbox.backend,
            "slots": sandbox.slots,
            "in_flight": worker.in_flight,
            "places": worker.places,
        }

    async def metrics(request: Request) -> Response:
        admit(request)
        return Response(generate_latest(worker.metrics.registry), media_type="text/plain; version=0.0.4")

    app.add_api_route("/run", run, methods=["POST"])
    app.add_api_route("/health", health, methods=["GET"])
    app.add_api_route("/metrics", metrics, methods=["GET"])
    return app


async def _read(request: Request) -> dict[str, Any]:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > _MAX_BODY:
            raise HTTPException(413, f"a request may have {_MAX_BODY} bytes")
    try:
        body = json.loads(data)
    except ValueError:
        raise HTTPException(422, "the body must be JSON") from None
    if not isinstance(body, dict):
        raise HTTPException(422, "the body must be a JSON object")
    return body


def serve(sandbox: Sandbox, host: str, port: int, token: str | None, queue: int | None = None) -> None:
    """Serve until interrupted. Without a token only on a loopback address (`ConfigError`)."""
    if token is None and host not in ("127.0.0.1", "::1", "localhost"):
        raise ConfigError(
            f"A worker must have a token unless it listens on a loopback address, got {host!r} without one. "
            "Anybody who reaches it could run programs on it. Set TRUEUP_TOKEN, or listen on 127.0.0.1."
        )
    uvicorn.run(create_app(sandbox, token, queue), host=host, port=port, log_level="warning")
