"""Grades by what they are a function of: source, task, limits, image. For policies that repeat themselves."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections import OrderedDict
from dataclasses import asdict, replace
from typing import Any

from trueup.sandbox.base import Grade, Limits
from trueup.sandbox.guest import codec

__all__ = ["VerdictCache"]

_TIMED = ("timeout", "cpu_limit", "call_timeout")  # may come out otherwise on a quieter machine


class VerdictCache:
    """The last `size` grades; 0 remembers nothing. Unscored, suspect and timed-out grades are never kept."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.hits = 0
        self._grades: OrderedDict[str, Grade] = OrderedDict()
        self._lock = threading.Lock()

    def key(self, image: str, limits: Limits, task: list[Any]) -> str:
        """Hash of all that a grade depends on, exact types included; empty when nothing is remembered."""
        if not self.size:
            return ""
        body = codec.dumps([image, sys.version, asdict(limits), task])
        return hashlib.sha256(body).hexdigest()

    def get(self, key: str) -> Grade | None:
        """The grade for a key, marked `cached`, or None."""
        with self._lock:
            grade = self._grades.get(key)
            if grade is None:
                return None
            self._grades.move_to_end(key)
            self.hits += 1
        return replace(grade, cached=True)

    def put(self, key: str, grade: Grade) -> None:
        """Remember a grade, unless it could come out otherwise next time."""
        if not key or not grade.score.is_scored or grade.suspect:
            return
        if any(call.reason in _TIMED for call in grade.calls):
            return
        with self._lock:
            self._grades[key] = grade
            while len(self._grades) > self.size:
                self._grades.popitem(last=False)
