"""Reads a run's folder, while it is being written or afterwards. Never blocks the writer, never writes.

Queries over steps and families come from per-step figures, so they stay quick at a million pairs; only
`pairs` reads every pair. All of them see one step whole or not at all.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from trueup.errors import DataError
from trueup.runlog.schema import RUN_NAME, SCHEMA_VERSION, connect, migrate

__all__ = ["PAIR_COLUMNS", "RunReader"]

PAIR_COLUMNS = (
    "step", "family", "group", "rollout", "proxy", "proxy_reason", "calibrated", "gold", "gold_reason",
    "propensity", "reward", "advantage",
)  # fmt: skip

_PAIRS = """SELECT live.step, family.name, pair.group_id, pair.rollout, pair.proxy, pair.proxy_reason,
            pair.calibrated, pair.gold, pair.gold_reason, pair.propensity, pair.reward, pair.advantage
            FROM live JOIN pair USING (seq) JOIN family ON family.id = pair.family"""


class RunReader:
    """One run's folder, read only.

    A log of an older schema version is read through a migrated copy in memory; the file stays as it is.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._db = connect(self.folder, read_only=True)
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if version < SCHEMA_VERSION:
            if version == 0:
                self._db.close()
                raise DataError(
                    f"{self.folder} must hold a run log, and its file is empty. Nothing has been written "
                    "yet. Try again after the first step."
                )
            copy = sqlite3.connect(":memory:", isolation_level=None)
            with closing(self._db) as source:
                source.backup(copy)
            migrate(copy)
            self._db = copy

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> RunReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self) -> dict[str, Any]:
        """`run.json`: config, seeds, versions; empty if it was not written."""
        path = self.folder / RUN_NAME
        loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return loaded

    def families(self) -> list[str]:
        return [name for (name,) in self._db.execute("SELECT name FROM family ORDER BY id")]

    def steps(self, since: int | None = None) -> list[dict[str, Any]]:
        """One row a step, in order, with `metrics`, `notes` and `refit` as plain data."""
        where = "" if since is None else "WHERE step > ?"
        rows = self._rows(f"SELECT * FROM live {where} ORDER BY step", () if since is None else (since,))
        for row in rows:
            row.pop("later")
            for name in ("metrics", "notes", "refit"):
                row[name] = None if row[name] is None else json.loads(row[name])
        return rows

    def family_series(self, family: str | None = None) -> list[dict[str, Any]]:
        """One row per step and family: counts, means, residual moments. Ordered by step."""
        where = "" if family is None else "WHERE family.name = ?"
        return self._rows(
            "SELECT live.step, family.name AS family, f.n_rollouts, f.n_groups, f.n_pairs, f.n_unscored,"
            " f.proxy_mean, f.calibrated_mean, f.gold_mean, f.residual_mean, f.residual_square_mean"
            f" FROM live JOIN step_family f USING (seq) JOIN family ON family.id = f.family {where}"
            " ORDER BY live.step, family.id",
            () if family is None else (family,),
        )

    def family_totals(self) -> list[dict[str, Any]]:
        """One row a family: counts, and when it last had an anchor."""
        return self._rows(
            "SELECT family.name AS family, SUM(f.n_rollouts) AS n_rollouts, SUM(f.n_groups) AS n_groups,"
            " SUM(f.n_pairs) AS n_pairs, SUM(f.n_unscored) AS n_unscored,"
            " MAX(CASE WHEN f.n_pairs > 0 THEN live.step END) AS newest_anchor_step"
            " FROM live JOIN step_family f USING (seq) JOIN family ON family.id = f.family"
            " GROUP BY family.id ORDER BY family.id"
        )

    def failures(self) -> list[dict[str, Any]]:
        """How often each scorer gave no score, by family and reason."""
        return self._rows(
            "SELECT family.name AS family, scorer, reason, SUM(n) AS n FROM live JOIN failure USING (seq)"
            " JOIN family ON family.id = failure.family GROUP BY family.id, scorer, reason ORDER BY n DESC"
        )

    def costs(self) -> dict[str, float]:
        """Sums over the run by name; empty when none were given. Steps that were run twice cost twice."""
        return {
            name: float(v) for name, v in self._db.execute("SELECT name, SUM(value) FROM cost GROUP BY name")
        }

    def worst_pairs(self, n: int = 20) -> list[dict[str, Any]]:
        """The n pairs with the largest |gold − calibrated|, with their texts where kept."""
        return self._rows(
            "SELECT step.step, family.name AS family, w.group_id AS 'group', w.rollout, w.proxy,"
            " w.calibrated, w.gold, text.prompt, text.completion"
            " FROM (SELECT * FROM pair WHERE gold IS NOT NULL AND"
            " calibrated IS NOT NULL AND seq IN (SELECT seq FROM live)"
            " ORDER BY abs(gold - calibrated) DESC LIMIT ?) w"
            " JOIN step USING (seq) JOIN family ON family.id = w.family LEFT JOIN text ON text.pair = w.id"
            " ORDER BY abs(w.gold - w.calibrated) DESC",
            (n,),
        )

    def pairs(self) -> Iterator[tuple[Any, ...]]:
        """Every kept rollout, as tuples in the order of `PAIR_COLUMNS`, by step and place in the step."""
        yield from self._db.execute(f"{_PAIRS} ORDER BY live.seq, pair.id")

    def _rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
        cursor = self._db.execute(sql, values)
        names = [c[0] for c in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]
