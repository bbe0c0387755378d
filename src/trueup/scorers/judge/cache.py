"""Verdicts that need not be asked for twice."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from typing import Any

__all__ = ["VerdictCache", "cache_key"]


def cache_key(*parts: Any) -> str:
    """A key from everything that a verdict depends on."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


class VerdictCache:
    """Scores by key, in SQLite. Only numbers are kept: what could not be scored is asked for again."""

    def __init__(self, path: str | None) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path or ":memory:", check_same_thread=False, isolation_level=None)
        if path is not None:
            self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS verdict (key TEXT PRIMARY KEY, model TEXT, value REAL NOT NULL)"
        )

    def get(self, key: str) -> float | None:
        with self._lock:
            row = self._db.execute("SELECT value FROM verdict WHERE key = ?", (key,)).fetchone()
        return None if row is None else float(row[0])

    def put(self, key: str, model: str, value: float) -> None:
        with self._lock:
            self._db.execute("INSERT OR REPLACE INTO verdict VALUES (?, ?, ?)", (key, model, value))

    def close(self) -> None:
        with self._lock:
            self._db.close()
