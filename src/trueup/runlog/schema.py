"""The file format: SQLite in WAL mode, one transaction a step, a version with migrations.

Why SQLite and not segments of Parquet: a step is one transaction, so a kill loses at most the step in flight;
readers see the last committed step and never block the writer; a dashboard asks for one family's series
without reading the rest. `synchronous=NORMAL` survives a killed process; a power cut may lose the last steps
but does not corrupt the file (https://www.sqlite.org/wal.html).

Append-only: no row is ever changed or deleted. A run that resumes from a checkpoint writes its steps again;
the view `live` then holds, of every step, the row that no later row has gone back behind.

Unscored is NULL with a reason, enforced by a CHECK: neither NaN nor 0 can stand for it.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from trueup.errors import DataError

__all__ = ["LOG_NAME", "RUN_NAME", "SCHEMA_VERSION", "connect", "is_run_folder", "migrate"]

LOG_NAME = "log.sqlite"
RUN_NAME = "run.json"

_V1 = """
CREATE TABLE family (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE step (
  seq INTEGER PRIMARY KEY,            -- order of writing
  step INTEGER NOT NULL,
  written_at REAL NOT NULL,           -- seconds since 1970, UTC
  estimator TEXT NOT NULL, unit TEXT NOT NULL,
  n_groups INTEGER NOT NULL, n_rollouts INTEGER NOT NULL, n_pairs INTEGER NOT NULL,
  planned_fraction REAL, realised_fraction REAL, n_gold_queries INTEGER NOT NULL,
  metrics TEXT NOT NULL, notes TEXT NOT NULL, refit TEXT
);
CREATE INDEX step_by_step ON step (step);
CREATE TABLE step_family (
  seq INTEGER NOT NULL REFERENCES step (seq), family INTEGER NOT NULL REFERENCES family (id),
  n_rollouts INTEGER NOT NULL, n_groups INTEGER NOT NULL, n_pairs INTEGER NOT NULL,
  n_unscored INTEGER NOT NULL,
  proxy_mean REAL, calibrated_mean REAL, gold_mean REAL,   -- gold weighted by 1/propensity
  residual_mean REAL, residual_square_mean REAL,           -- gold minus calibrated, over the anchors
  PRIMARY KEY (seq, family)
) WITHOUT ROWID;
CREATE TABLE failure (
  seq INTEGER NOT NULL REFERENCES step (seq), family INTEGER NOT NULL REFERENCES family (id),
  scorer TEXT NOT NULL CHECK (scorer IN ('proxy', 'gold')), reason TEXT NOT NULL, n INTEGER NOT NULL,
  PRIMARY KEY (seq, family, scorer, reason)
) WITHOUT ROWID;
CREATE TABLE pair (
  id INTEGER PRIMARY KEY,
  seq INTEGER NOT NULL REFERENCES step (seq), family INTEGER NOT NULL REFERENCES family (id),
  group_id TEXT NOT NULL, rollout INTEGER NOT NULL,        -- rollout: place within the step
  proxy REAL, proxy_reason TEXT, calibrated REAL, gold REAL, gold_reason TEXT,
  propensity REAL, reward REAL, advantage REAL,
  CHECK ((proxy IS NULL) = (proxy_reason IS NOT NULL)),
  CHECK ((gold IS NULL) = (gold_reason IS NOT NULL))
);
CREATE INDEX pair_by_step ON pair (seq);
CREATE VIEW live AS SELECT * FROM (
  SELECT *, MIN(step) OVER (ORDER BY seq DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS later
  FROM step) WHERE later IS NULL OR later > step;
"""

_V2 = """
CREATE TABLE text (pair INTEGER PRIMARY KEY REFERENCES pair (id), prompt TEXT, completion TEXT);
CREATE TABLE cost (
  seq INTEGER NOT NULL REFERENCES step (seq), name TEXT NOT NULL, value REAL NOT NULL,  -- unit in the name
  PRIMARY KEY (seq, name)
) WITHOUT ROWID;
CREATE INDEX pair_by_disagreement ON pair (abs(gold - calibrated))
  WHERE gold IS NOT NULL AND calibrated IS NOT NULL;
"""

MIGRATIONS: tuple[str, ...] = (_V1, _V2)
"""Script n leads from version n to n + 1. Never edit one that has been released; add another."""

SCHEMA_VERSION = len(MIGRATIONS)


def is_run_folder(path: Path) -> bool:
    return path.is_dir() and (path / LOG_NAME).is_file()


def connect(folder: Path, *, read_only: bool) -> sqlite3.Connection:
    """Open the folder's log. A reader neither creates nor migrates; it waits for no writer."""
    path = folder / LOG_NAME
    if read_only and not path.is_file():
        raise DataError(
            f"{folder} must be a run folder with a {LOG_NAME}, found none. There is nothing to read. "
            "Give the folder that RunLog was opened with."
        )
    uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=10.0)
    try:
        if not read_only:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA cache_size=-65536")
        version = _version(connection)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise DataError(
            f"{path} must be a run log, and could not be read as one ({error}). Nothing was changed. "
            "Restore the file, or start a run in another folder."
        ) from error
    if version > SCHEMA_VERSION:
        connection.close()
        raise DataError(
            f"{path} must have a schema version of at most {SCHEMA_VERSION}, got {version}. "
            "A newer trueup wrote it, and older code could misread it. Upgrade trueup."
        )
    return connection


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, to: int = SCHEMA_VERSION) -> int:
    """Bring the file to version `to`, one transaction a version; returns the version it had before."""
    before = _version(connection)
    for version in range(before, to):
        connection.execute("BEGIN IMMEDIATE")
        try:
            if _version(connection) == version:  # another writer may have been faster
                for statement in MIGRATIONS[version].split(";\n"):
                    if statement.strip():
                        connection.execute(statement)
                connection.execute(f"PRAGMA user_version={version + 1}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
    return before
