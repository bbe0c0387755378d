"""`trueup serve`: this machine's services for others."""

from __future__ import annotations

import click

__all__ = ["serve"]


@click.group()
def serve() -> None:
    """Offer this machine's services to other machines."""


@serve.command()
@click.option(
    "--model", "path", required=True, help="Folder of a causal model of transformers, or a .gguf file."
)
@click.option("--name", default=None, help="What requests call the model [default: the folder's name].")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 picks a free one."
)
@click.option("--device", default="cpu", show_default=True, help="As torch names it: cpu, cuda, cuda:1.")
def proxy(path: str, name: str | None, host: str, port: int, device: str) -> None:
    """Answer the OpenAI chat API with a local model, for tests and small runs.

    POST /v1/chat/completions (with logprobs), GET /v1/models, GET /health. One request is answered at a time and
    there is no authentication, so it listens on this machine alone unless told otherwise. A large model belongs
    behind vLLM or llama.cpp; the judge speaks to either.

    \b
    trueup serve proxy --model ./my-model --port 8000
    LLMJudge(base_url="http://127.0.0.1:8000/v1", model="my-model", rubric=..., read="logprobs")
    """
    import socket
    from pathlib import Path

    from trueup.scorers.chat_server import chat_app, serve_chat
    from trueup.scorers.local_chat import LocalChat

    served = name or Path(path).resolve().name.removesuffix(".gguf")
    app = chat_app(LocalChat(path, device), served)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except OSError as error:
            raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror}") from None
        click.echo(f"serving {served} at http://{host}:{listening.getsockname()[1]}/v1")
        serve_chat(app, listening)


@serve.command()
@click.option("--slots", type=click.IntRange(min=1), default=2, show_default=True, help="Programs at a time.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True)
@click.option(
    "--queue", type=click.IntRange(min=0), default=None, help="Jobs that may wait (default 4 a slot)."
)
@click.option("--backend", default="auto", show_default=True, help="auto, zygote, bwrap or landlock.")
@click.option("--package", "packages", multiple=True, help="A package that programs may import (repeatable).")
@click.option("--token", envvar="TRUEUP_TOKEN", default=None, help="Bearer token; better by TRUEUP_TOKEN.")
def sandbox(
    slots: int,
    host: str,
    port: int,
    queue: int | None,
    backend: str,
    packages: tuple[str, ...],
    token: str | None,
) -> None:
    """Run programs for other machines: POST /run, GET /health, GET /metrics.

    A worker sees programs and inputs, never an expected value: the caller judges. Without a token it listens
    on loopback addresses only. Use it from Python with Sandbox(workers=["http://HOST:PORT"], token=...).
    """
    from trueup.sandbox import Sandbox
    from trueup.sandbox.server import serve as serve_forever

    box = Sandbox(slots=slots, backend=backend, packages=packages)
    box.start()
    click.echo(f"sandbox worker on http://{host}:{port}: {box.backend}, {slots} slots", err=True)
    serve_forever(box, host, port, token, queue)
