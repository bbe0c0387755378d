"""A SIGKILL at any moment loses at most the step in flight and corrupts nothing."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.runlog.records import make_record
from trueup.runlog import LOG_NAME, RunLog, RunReader

WRITER = Path(__file__).with_name("writer_process.py")


def _write_until_killed(folder, steps, after_s):
    """Kill the writer `after_s` after it said `steps` steps; the last step it said it had committed."""
    process = subprocess.Popen([sys.executable, str(WRITER), str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    heard = [process.stdout.readline() for _ in range(steps)]
    time.sleep(after_s)
    process.send_signal(signal.SIGKILL)
    said = ("".join(heard) + process.stdout.read()).split("\n")[:-1]  # a line cut by the kill has no newline
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL
    return int(said[-1]) if said else None


def _kill_many_times(folder, kills, seed):
    rng = random.Random(seed)
    known = -1
    for _ in range(kills):
        said = _write_until_killed(folder, rng.randrange(4), rng.uniform(0.0, 0.01))
        with sqlite3.connect(folder / LOG_NAME) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        db.close()
        with RunReader(folder) as reader:
            steps = [row["step"] for row in reader.steps()]
            assert steps == list(range(len(steps)))  # no gap, no step twice
            assert len(steps) - 1 >= max(known, -1 if said is None else said)  # what was committed is there
            assert len(steps) - 1 <= max(known, -1 if said is None else said) + 1  # and at most one unsaid
            known = len(steps) - 1
    _every_step_is_whole(folder)
    return known


def _every_step_is_whole(folder):
    with RunReader(folder) as reader:
        pairs = {}
        for row in reader.pairs():
            pairs[row[0]] = pairs.get(row[0], 0) + 1
        for row in reader.steps():
            record = make_record(row["step"], n_groups=40, group_size=8)
            assert pairs[row["step"]] == int(record.anchored.sum())
            assert row["n_pairs"] == int((~np.isnan(record.proxy) & ~np.isnan(record.gold)).sum())


def test_a_killed_writer_loses_at_most_the_step_in_flight(tmp_path):
    assert _kill_many_times(tmp_path, 6, seed=0) > 3


@pytest.mark.slow
def test_two_hundred_killed_writers_lose_at_most_the_step_in_flight(tmp_path):
    assert _kill_many_times(tmp_path, 200, seed=1) > 200


def test_an_exception_within_a_step_leaves_no_trace_of_it(tmp_path):
    with RunLog(tmp_path) as log:
        log.append(make_record(0))
        broken = make_record(1, families=("code", "new"))
        with pytest.raises(IndexError, match="out of bounds"):
            log.append(
                type(broken)(**{f: getattr(broken, f) for f in broken.__slots__} | {"reward": np.zeros(3)})
            )
        log.append(make_record(1, families=("code", "new")))
    with RunReader(tmp_path) as reader:
        assert [row["step"] for row in reader.steps()] == [0, 1]
        assert reader.families() == ["code", "plans", "new"]
        assert reader.family_totals()[0]["n_rollouts"] == 24


def test_a_reader_sees_whole_steps_while_a_transaction_is_open_and_does_not_block_it(tmp_path):
    with RunLog(tmp_path) as log, RunReader(tmp_path) as reader:
        log.append(make_record(0))
        assert len(reader.steps()) == 1
        log._db.execute("BEGIN IMMEDIATE")
        log._append_step(make_record(1))
        assert len(reader.steps()) == 1
        slow = reader.pairs()
        next(slow)  # a reader in the middle of a long query
        log._db.execute("ROLLBACK")
        log.append(make_record(1))
        assert sum(1 for _ in slow) > 0
        assert len(reader.steps()) == 2
