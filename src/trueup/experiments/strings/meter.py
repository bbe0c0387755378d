"""Where a step's seconds go. Scoring by proxy and sandbox may overlap, so their union is what scoring took."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["COMPONENTS", "Meter", "covered"]

COMPONENTS = ("generate", "proxy", "sandbox", "update", "trueup")

Interval = tuple[float, float]


def covered(intervals: list[Interval]) -> float:
    """Length of the union of intervals."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


class Meter:
    """Intervals of one step by name; scorers may report from worker threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._intervals: dict[str, list[Interval]] = {}
        self._started = time.perf_counter()

    def start(self) -> None:
        with self._lock:
            self._intervals = {}
            self._started = time.perf_counter()

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        before = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                self._intervals.setdefault(name, []).append((before, time.perf_counter()))

    def stop(self) -> dict[str, float]:
        """Seconds of the step since `start`: the components, and `step` for all of it.

        `trueup` is the time in the reward call during which neither scorer worked; `update` is the step without
        generation and rewards.
        """
        whole = time.perf_counter() - self._started
        with self._lock:
            found = dict(self._intervals)
        seconds = {name: covered(found.get(name, [])) for name in ("generate", "proxy", "sandbox")}
        reward = covered(found.get("reward", []))
        scoring = covered(found.get("proxy", []) + found.get("sandbox", []))
        seconds["trueup"] = max(0.0, reward - scoring)
        seconds["update"] = max(0.0, whole - seconds["generate"] - reward)
        return seconds | {"step": whole}
