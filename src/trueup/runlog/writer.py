"""Appends one `StepRecord` at a time, each as one transaction.

Of every step the scalars and the per-family figures are kept, and of the rollouts those that were anchored:
they are the evidence, and they are few. `rollouts="all"` keeps the rest as well (proxy alone, gold NULL with
its reason), which shadow audits and the proxy's own history need.
"""

from __future__ import annotations

import json
import math
import os
import platform
import sqlite3
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConfigError, DataError, StateError
from trueup.runlog.names import weighted_mean
from trueup.runlog.schema import LOG_NAME, RUN_NAME, connect, migrate
from trueup.types import REASONS, StepRecord

__all__ = ["RunLog"]

_PAIR = """INSERT INTO pair (seq, family, group_id, rollout, proxy, proxy_reason, calibrated, gold,
           gold_reason, propensity, reward, advantage) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)"""


class RunLog:
    """The writer of one run's folder. Use it as a context manager, or call `close`.

        with RunLog(folder, config={"lr": 1e-5}, seeds={"anchors": 0}) as log:
            log.append(result.record)

    Args:
        folder: made if missing. An existing log is continued; its `run.json` is left as it is.
        config, seeds: plain data, written once to `run.json` with the versions that made the run.
        rollouts: `anchors` keeps the anchored rollouts of each step, `all` every one.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        config: Mapping[str, Any] | None = None,
        seeds: Mapping[str, int] | None = None,
        rollouts: Literal["anchors", "all"] = "anchors",
    ) -> None:
        if rollouts not in ("anchors", "all"):
            raise ConfigError(f"rollouts must be 'anchors' or 'all', got {rollouts!r}. Nothing was opened.")
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._all = rollouts == "all"
        self._connection: sqlite3.Connection | None = connect(self.folder, read_only=False)
        migrate(self._connection)
        if not (self.folder / RUN_NAME).exists():
            _write_run_file(self.folder / RUN_NAME, config or {}, seeds or {})
        self._families = {n: i for i, n in self._db.execute("SELECT id, name FROM family")}

    @property
    def _db(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StateError(
                f"The log in {self.folder} must be open, and was closed. Open it again with RunLog."
            )
        return self._connection

    @property
    def last_step(self) -> int | None:
        """The step of the newest row; None in an empty log."""
        row = self._db.execute("SELECT step FROM step ORDER BY seq DESC LIMIT 1").fetchone()
        return None if row is None else int(row[0])

    def append(
        self,
        record: StepRecord,
        *,
        texts: Mapping[int, tuple[str, str]] | None = None,
        costs: Mapping[str, float] | None = None,
    ) -> None:
        """Commit one step, whole or not at all.

        Args:
            texts: (prompt, completion) by the rollout's place in the step, for those that are kept.
            costs: what the step cost, with the unit in the name (`sandbox_s`, `scorer_s`, `gpu_s`, `tokens`).
        """
        costs = dict(costs or {})
        for name, value in costs.items():
            if not math.isfinite(value) or value < 0:
                raise DataError(
                    f"A cost must be a finite number of at least 0, got {name}={value!r}. Nothing was "
                    "written. Leave out what is not known."
                )
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            seq = self._append_step(record)
            self._append_families(seq, record)
            kept = np.arange(record.proxy.size) if self._all else np.flatnonzero(record.anchored)
            db.executemany(_PAIR, self._pair_rows(seq, record, kept))
            self._append_texts(seq, kept, texts or {})
            db.executemany("INSERT INTO cost VALUES (?,?,?)", [(seq, k, float(v)) for k, v in costs.items()])
            db.execute("COMMIT")
        except BaseException:
            db.execute("ROLLBACK")
            self._families.clear()  # ids given out within the transaction are gone with it
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the parts of one transaction --

    def _append_step(self, record: StepRecord) -> int:
        plain = {k: (float(v) if math.isfinite(v) else None) for k, v in record.metrics.items()}
        refit = None if record.refit is None else json.dumps(_without_nan(record.refit))
        paired = ~np.isnan(record.proxy) & ~np.isnan(record.gold)
        cursor = self._db.execute(
            "INSERT INTO step (step, written_at, estimator, unit, n_groups, n_rollouts, n_pairs,"
            " planned_fraction, realised_fraction, n_gold_queries, metrics, notes, refit)"
            " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                int(record.step), time.time(), record.estimator, record.unit, len(record.group_ids),
                int(record.proxy.size), int(paired.sum()), float(record.planned_fraction),
                float(record.realised_fraction), int(record.n_gold_queries), json.dumps(plain),
                json.dumps(list(record.notes)), refit,
            ),
        )  # fmt: skip
        return int(cursor.lastrowid or 0)

    def _family_ids(self, record: StepRecord) -> NDArray[np.int64]:
        for name in record.families:
            if name not in self._families:
                self._families = {n: i for i, n in self._db.execute("SELECT id, name FROM family")}
            if name not in self._families:
                cursor = self._db.execute("INSERT INTO family (name) VALUES (?)", (name,))
                self._families[name] = int(cursor.lastrowid or 0)
        return np.array([self._families[name] for name in record.families], dtype=np.int64)

    def _append_families(self, seq: int, record: StepRecord) -> None:
        ids = self._family_ids(record)
        rows, failures = [], []
        residual = record.gold - record.calibrated
        inverse = 1.0 / np.where(record.propensity > 0, record.propensity, 1.0)
        for index, family in enumerate(ids.tolist()):
            here = record.family == index
            pairs = here & ~np.isnan(record.proxy) & ~np.isnan(record.gold)
            r = residual[pairs & ~np.isnan(residual)]
            rows.append((
                seq, family, int(here.sum()), int(np.unique(record.group[here]).size), int(pairs.sum()),
                int(np.isnan(record.advantage[here]).sum()), weighted_mean(record.proxy[here]),
                weighted_mean(record.calibrated[here]),
                weighted_mean(record.gold[here], inverse[here]),
                weighted_mean(r), weighted_mean(r * r),
            ))  # fmt: skip
            for scorer, code in (("proxy", record.proxy_code), ("gold", record.gold_code)):
                counts = np.bincount(code[here].astype(np.int64), minlength=len(REASONS) + 1)
                failures += [
                    (seq, family, scorer, REASONS[c - 1], int(counts[c])) for c in np.flatnonzero(counts) if c
                ]
        marks = ",".join("?" * 11)
        self._db.executemany(f"INSERT INTO step_family VALUES ({marks})", rows)
        self._db.executemany("INSERT INTO failure VALUES (?,?,?,?,?)", failures)

    def _pair_rows(self, seq: int, record: StepRecord, kept: NDArray[np.int64]) -> Iterator[tuple[Any, ...]]:
        ids = self._family_ids(record)
        labels = [g if isinstance(g, str) else repr(g) for g in record.group_ids]
        n = kept.size
        return zip(
            [seq] * n,
            ids[record.family[kept]].tolist(),
            [labels[g] for g in record.group[kept].tolist()],
            kept.tolist(),
            record.proxy[kept].tolist(),  # sqlite3 binds NaN as NULL
            _reasons(record.proxy[kept], record.proxy_code[kept]),
            record.calibrated[kept].tolist(),
            record.gold[kept].tolist(),
            _reasons(record.gold[kept], record.gold_code[kept]),
            record.propensity[kept].tolist(),
            record.reward[kept].tolist(),
            record.advantage[kept].tolist(),
            strict=True,
        )

    def _append_texts(self, seq: int, kept: NDArray[np.int64], texts: Mapping[int, tuple[str, str]]) -> None:
        wanted = [int(i) for i in kept.tolist() if int(i) in texts]
        if wanted:
            places = dict(self._db.execute("SELECT rollout, id FROM pair WHERE seq = ?", (seq,)))
            rows = [(places[i], str(texts[i][0]), str(texts[i][1])) for i in wanted]
            self._db.executemany("INSERT INTO text VALUES (?,?,?)", rows)


_REASON_OF = (None, *REASONS)


def _reasons(value: NDArray[np.float64], code: NDArray[np.int8]) -> list[str | None]:
    """The reason of each missing score; a missing one without a code was not asked for."""
    reasons = [_REASON_OF[c] for c in code.tolist()]
    for i in np.flatnonzero(np.isnan(value)).tolist():
        reasons[i] = reasons[i] or "not_selected"
    for i in np.flatnonzero(~np.isnan(value) & (code != 0)).tolist():
        reasons[i] = None
    return reasons


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _without_nan(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(v) for v in value]
    if isinstance(value, np.ndarray):
        return _without_nan(value.tolist())
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.bool_):
        return bool(value)
    return value


def _write_run_file(path: Path, config: Mapping[str, Any], seeds: Mapping[str, int]) -> None:
    """Whole or not at all: written beside and renamed."""
    run = {
        "config": _without_nan(config),
        "seeds": dict(seeds),
        "versions": {
            "trueup": version("trueup"),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "sqlite": sqlite3.sqlite_version,
        },
        "started_at": time.time(),
        "log": LOG_NAME,
    }
    beside = path.with_suffix(f".{os.getpid()}.tmp")
    with beside.open("w", encoding="utf-8") as file:
        json.dump(run, file, indent=1, sort_keys=True, default=str)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
