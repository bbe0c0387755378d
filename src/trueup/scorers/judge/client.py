"""One verdict over HTTP, however the server behaves.

    bounded concurrency → request (twice, if the first is slow and hedging is on) → again after a random wait, while the
    deadline allows → the server's JSON, or an InfrastructureError that says what happened

Waits are random over the whole interval, so that many callers that were refused together do not come back together
(exponential backoff with full jitter). A server's Retry-After is honoured. Nothing here knows what a verdict is.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Mapping
from typing import Any

from trueup.errors import ConfigError, InfrastructureError, MissingExtraError
from trueup.scorers.judge.config import JudgeConfig
from trueup.scorers.judge.usage import JudgeUsage

try:
    import httpx
except ImportError as error:
    raise MissingExtraError("The LLM judge", "judge", error.name or "httpx") from None

__all__ = ["ChatClient", "SchemaRefused"]

_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_LONGEST_WAIT_S = 30.0


class SchemaRefused(Exception):
    """The server answered 400 to a request with a response format; it may do without."""


class ChatClient:
    """An OpenAI-compatible `/chat/completions`. Bound to the event loop of its first request."""

    def __init__(self, config: JudgeConfig, usage: JudgeUsage) -> None:
        self._config = config
        self._usage = usage
        self._http: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slots = asyncio.Semaphore(config.max_concurrent)
        self._ever_answered = False
        self._random = random.Random()  # waits only; no score depends on it

    async def ask(self, body: Mapping[str, Any]) -> Any:
        """The reply to one request body, as parsed JSON.

        Raises:
            InfrastructureError: no reply within deadline and retries.
            SchemaRefused: HTTP 400 to a body with a response_format.
            ConfigError: the server refuses the key, the model or the path, and has never accepted a request; or this is
            another event loop than before.
        """
        here = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = here
        elif self._loop is not here:
            raise ConfigError(
                "A judge must stay on one event loop, got another one. Its open connections belong to the first. "
                "Make a judge for each loop, or use AnchoredReward.step, which always runs on the same."
            )
        async with self._slots:
            try:
                async with asyncio.timeout(self._config.deadline_s):
                    return await self._with_retries(body)
            except TimeoutError:
                raise InfrastructureError(
                    f"no verdict within {self._config.deadline_s:g} s", "timeout_infrastructure"
                ) from None

    async def _with_retries(self, body: Mapping[str, Any]) -> Any:
        for attempt in range(self._config.max_retries + 1):
            if attempt:
                self._usage.n_retries += 1
            wait_s = self._random.uniform(0, min(self._config.backoff_s * 2**attempt, _LONGEST_WAIT_S))
            try:
                response = await self._hedged(body)
            except httpx.TimeoutException as error:
                problem = InfrastructureError(f"{type(error).__name__}: {error}", "timeout_infrastructure")
            except httpx.HTTPError as error:
                problem = InfrastructureError(f"{type(error).__name__}: {error}")
            else:
                if response.status_code not in _AGAIN:
                    return self._read(response, body)
                problem = InfrastructureError(f"HTTP {response.status_code}: {response.text[:200]}")
                wait_s = max(wait_s, _retry_after_s(response))
            if attempt < self._config.max_retries:
                await asyncio.sleep(wait_s)
        raise problem

    async def _hedged(self, body: Mapping[str, Any]) -> httpx.Response:
        """One request, or the first good answer of two."""
        first = asyncio.ensure_future(self._send(body))
        running = {first}
        try:
            if self._config.hedge_after_s is not None:
                await asyncio.wait(running, timeout=self._config.hedge_after_s)
                if not first.done():
                    self._usage.n_hedges += 1
                    running.add(asyncio.ensure_future(self._send(body)))
            while True:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                good = [t for t in done if t.exception() is None and t.result().status_code not in _AGAIN]
                if good:
                    return good[0].result()
                if not running:
                    return done.pop().result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _send(self, body: Mapping[str, Any]) -> httpx.Response:
        self._usage.n_requests += 1
        return await self._client().post("chat/completions", json=body)

    def _read(self, response: httpx.Response, body: Mapping[str, Any]) -> Any:
        status = response.status_code
        if status == 200:
            try:
                reply = response.json()
            except ValueError:
                raise InfrastructureError(
                    f"the server's reply is not JSON: {response.text[:200]!r}", "unparsable_verdict"
                ) from None
            self._ever_answered = True
            self._usage.charge(reply, self._config.usd_per_million_tokens)
            return reply
        if status == 400 and "response_format" in body:
            raise SchemaRefused(response.text[:200])
        if status in (401, 403, 404) and not self._ever_answered:
            raise ConfigError(
                f"The judge's server must accept model {self._config.model!r} at {self._config.base_url}, got HTTP "
                f"{status}: {response.text[:200]}. Nothing can be judged. Correct base_url, model, or the key in the "
                f"environment variable {self._config.api_key_env or '(api_key_env is not set)'}."
            )
        raise InfrastructureError(f"HTTP {status}: {response.text[:200]}")

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            config = self._config
            headers = {}
            if config.api_key_env is not None:
                key = os.environ.get(config.api_key_env)
                if not key:
                    raise ConfigError(
                        f"The environment variable {config.api_key_env} must hold the judge's key, got none. The "
                        "server would refuse every request. Export it."
                    )
                headers["Authorization"] = f"Bearer {key}"
            limits = httpx.Limits(max_connections=2 * config.max_concurrent)
            base = config.base_url.rstrip("/") + "/"
            self._http = httpx.AsyncClient(
                base_url=base, headers=headers, timeout=config.request_timeout_s, limits=limits
            )
        return self._http

    async def aclose(self) -> None:
        """Close the connections, on the loop that they belong to."""
        http, self._http = self._http, None
        if http is None:
            return
        if self._loop is None or self._loop is asyncio.get_running_loop():
            await http.aclose()
        elif not self._loop.is_closed():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(http.aclose(), self._loop))


def _retry_after_s(response: httpx.Response) -> float:
    try:
        return min(max(float(response.headers.get("Retry-After", 0)), 0.0), _LONGEST_WAIT_S)
    except ValueError:  # a date; the random wait does
        return 0.0
