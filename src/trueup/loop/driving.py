"""Run a step's coroutine to its end for a caller that has no event loop.

Sync scorers that wait for each other need no loop: the coroutine never really waits and is driven in place, in the
caller's thread. Otherwise it runs on one loop in a background thread, shared by the process and kept for its
lifetime, because clients of async scorers (HTTP pools) stay bound to the loop they were first used on.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["drive_in_place", "drive_on_loop"]

T = TypeVar("T")


def drive_in_place(coroutine: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine that never waits for anything outside itself."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    coroutine.close()
    raise AssertionError("a step without async scorers waited for something")


class _Background:
    """An event loop in a daemon thread of this process (a forked child starts its own)."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._serve, name="trueup-scorers", daemon=True)
        self.thread.start()
        atexit.register(self.close)

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def close(self) -> None:
        if self.pid == os.getpid() and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(timeout=1.0)
            if not self.thread.is_alive():
                self.loop.close()


_lock = threading.Lock()
_background: _Background | None = None


def drive_on_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run on the background loop and wait; an interrupt of the waiting thread cancels the coroutine."""
    global _background
    with _lock:
        if _background is None or _background.pid != os.getpid():
            _background = _Background()
        loop = _background.loop
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
