"""A small HTTP server that speaks the chat protocol on loopback, and misbehaves on demand."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

HANG_UP = object()
"""In the place of a reply: half a response, then the connection is closed."""


def chat(content: Any, *, finish: str = "stop", model: str = "tiny-1", **message: Any) -> dict[str, Any]:
    return {
        "model": model,
        "choices": [
            {"message": {"role": "assistant", "content": content} | message, "finish_reason": finish}
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20},
    }


def asked(body: dict[str, Any]) -> str:
    return body["messages"][-1]["content"]


def ticket(body: dict[str, Any]) -> str:
    return re.findall(r'which is "([0-9a-f]+)"', asked(body))[-1]


def grade(body: dict[str, Any], value: Any, **more: Any) -> dict[str, Any]:
    """A well-formed verdict on this question."""
    return chat(json.dumps({"reason": "because", "grade": value, "ticket": ticket(body)}), **more)


def digits(probabilities: dict[str, float], model: str = "tiny-1") -> dict[str, Any]:
    """A one-token reply with log-probabilities."""
    import math

    top = [{"token": t, "logprob": math.log(p)} for t, p in probabilities.items()]
    reply = chat(max(probabilities, key=probabilities.__getitem__), model=model, finish="length")
    reply["choices"][0]["logprobs"] = {"content": [top[0] | {"top_logprobs": top}]}
    return reply


class JudgeServer:
    """`async with JudgeServer(behave) as server`: behave(i, body) gives reply i: a dict, (status, text[, headers]),
    HANG_UP, or an awaitable of one of them."""

    def __init__(self, behave: Callable[[int, dict[str, Any]], Any]) -> None:
        self.behave = behave
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[str] = []
        self.most_at_once = 0
        self._now = 0

    async def __aenter__(self) -> JudgeServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(re.search(r"(?i)content-length: (\d+)", head).group(1))
                body = json.loads(await reader.readexactly(length))
                assert head.startswith("POST /v1/chat/completions "), head
                index = len(self.bodies)
                self.bodies.append(body)
                self.headers.append(head)
                self._now += 1
                self.most_at_once = max(self.most_at_once, self._now)
                try:
                    reply = self.behave(index, body)
                    if asyncio.iscoroutine(reply):
                        reply = await reply
                finally:
                    self._now -= 1
                if reply is HANG_UP:
                    writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"choices": [{')
                    await writer.drain()
                    return
                status, text, headers = (
                    (*reply, {})[:3] if isinstance(reply, tuple) else (200, json.dumps(reply), {})
                )
                more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
                payload = text.encode()
                writer.write(
                    f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{more}"
                    f"Content-Length: {len(payload)}\r\n\r\n".encode()
                    + payload
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass  # the client has gone, or the test is over
        finally:
            writer.close()
