"""An OpenAI-compatible chat endpoint over a `LocalChat`, for tests and small runs.

What it cannot do (streams, tools, several answers, enforced schemas) is refused with HTTP 400 in the protocol's own
form of an error, never silently ignored: a judge that asked for a schema would otherwise take free text for a checked
one.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from trueup.errors import MissingExtraError

try:
    import fastapi
    import uvicorn
    from fastapi.exceptions import RequestValidationError
except ImportError as error:
    raise MissingExtraError("The chat endpoint", "serve", error.name or "fastapi") from None

if TYPE_CHECKING:
    from trueup.scorers.local_chat import LocalChat

__all__ = ["chat_app", "serve_chat"]


class _Message(BaseModel):
    role: str
    content: str


class _Request(BaseModel):
    model: str
    messages: list[_Message] = Field(min_length=1)
    max_tokens: int = Field(default=256, ge=1)
    temperature: float = Field(default=1.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=0, le=20)
    stop: str | list[str] | None = None
    seed: int | None = None
    n: int = 1
    stream: bool = False
    tools: list[Any] | None = None
    response_format: dict[str, Any] | None = None


def chat_app(model: LocalChat, name: str) -> Any:
    """The FastAPI application; `name` is what requests have to call the model."""
    app = fastapi.FastAPI(title="trueup serve proxy")

    def refused(status: int, message: str, code: str) -> Any:
        kind = "invalid_request_error"
        body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
        return fastapi.responses.JSONResponse(body, status_code=status)

    @app.exception_handler(RequestValidationError)
    async def unreadable(_: Any, error: RequestValidationError) -> Any:
        return refused(400, str(error.errors()[0]["msg"]), "invalid_request")

    @app.get("/health")
    def health() -> dict[str, str]:
        return {"status": "ok", "model": name}

    @app.get("/v1/models")
    def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": name, "object": "model", "owned_by": "local"}]}

    @app.post("/v1/chat/completions")
    def complete(request: _Request) -> Any:  # a plain function: FastAPI runs it in a thread
        if request.model != name:
            return refused(
                404, f"The model {request.model!r} is not served here; {name!r} is.", "model_not_found"
            )
        cannot = _cannot(request)
        if cannot is not None:
            return refused(400, f"{cannot} is not supported by trueup serve proxy.", "unsupported")
        from trueup.scorers.local_chat import PromptTooLong

        stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
        try:
            reply = model.answer(
                [message.model_dump() for message in request.messages],
                max_tokens=request.max_tokens,
                temperature=request.temperature,
                top_p=request.top_p,
                top_logprobs=request.top_logprobs if request.logprobs else 0,
                stop=stop,
                seed=request.seed,
            )
        except PromptTooLong as error:
            return refused(400, str(error), "context_length_exceeded")
        choice: dict[str, Any] = {
            "index": 0,
            "message": {"role": "assistant", "content": reply.text},
            "finish_reason": reply.finish_reason,
            "logprobs": None,
        }
        if request.logprobs:
            content = [
                {
                    "token": t.token,
                    "logprob": t.logprob,
                    "top_logprobs": [{"token": token, "logprob": value} for token, value in t.top],
                }
                for t in reply.tokens
            ]
            choice["logprobs"] = {"content": content}
        n_prompt, n_answer = reply.n_prompt_tokens, len(reply.tokens)
        return {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": name,
            "choices": [choice],
            "usage": {
                "prompt_tokens": n_prompt,
                "completion_tokens": n_answer,
                "total_tokens": n_prompt + n_answer,
            },
        }

    return app


def _cannot(request: _Request) -> str | None:
    """What of a request this server cannot do, None if it can all of it."""
    if request.stream:
        return "stream"
    if request.n != 1:
        return "n > 1"
    if request.tools:
        return "tools"
    if request.response_format is not None and request.response_format.get("type") != "text":
        return "response_format"
    return None


def serve_chat(app: Any, socket: Any) -> None:
    """Serve on a bound socket until interrupted."""
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[socket])
