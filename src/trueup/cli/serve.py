"""`trueup serve`: this machine's sandbox for others."""

from __future__ import annotations

import click

__all__ = ["serve"]


@click.group()
def serve() -> None:
    """Offer this machine's services to other machines."""


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
