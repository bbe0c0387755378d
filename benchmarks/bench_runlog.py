"""One million pairs: how quickly they are appended, and how quickly a report's questions are answered.

    python -m pytest benchmarks/bench_runlog.py --benchmark-only -o addopts= -o python_files='bench_*.py'

Run as a script it prints one table: python benchmarks/bench_runlog.py [PAIRS]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from trueup.runlog import RunLog, RunReader
from trueup.types import StepRecord

PAIRS_A_STEP = 512
FAMILIES = tuple(f"family-{i}" for i in range(50))


def anchored_step(step: int, n: int = PAIRS_A_STEP, group_size: int = 8) -> StepRecord:
    """A step of which every rollout is an anchor, over 50 families."""
    rng = np.random.default_rng(step)
    gold = (rng.random(n) < 0.5).astype(float)
    proxy = np.clip(gold + rng.normal(0, 0.4, n), 0, 1)
    group = np.repeat(np.arange(n // group_size), group_size)
    none = np.zeros(n, np.int8)
    return StepRecord(
        step=step,
        estimator="corrected",
        unit="rollout",
        group_ids=tuple(range(step * n, step * n + n // group_size)),
        families=FAMILIES,
        group=group,
        family=group % len(FAMILIES),
        proxy=proxy,
        proxy_code=none,
        calibrated=0.1 + 0.8 * proxy,
        gold=gold,
        gold_code=none,
        anchored=np.ones(n, bool),
        propensity=np.ones(n),
        reward=gold,
        advantage=gold - gold.mean(),
        planned_fraction=1.0,
        realised_fraction=1.0,
        n_gold_queries=n,
        metrics={"anchor_weight": 1.0},
    )


def fill(folder: Path, n_pairs: int) -> float:
    """Append until the log has n_pairs; the seconds that the appends alone took."""
    spent = 0.0
    with RunLog(folder) as log:
        for step in range(-(-n_pairs // PAIRS_A_STEP)):
            record = anchored_step(step)
            start = time.perf_counter()
            log.append(record)
            spent += time.perf_counter() - start
    return spent


QUERIES = {
    "steps": lambda r: r.steps(),
    "steps since the last but ten": lambda r: r.steps(since=r.steps()[-1]["step"] - 10),
    "series of one family": lambda r: r.family_series("family-7"),
    "series of all families": lambda r: r.family_series(),
    "totals by family": lambda r: r.family_totals(),
    "failures": lambda r: r.failures(),
    "20 worst disagreements": lambda r: r.worst_pairs(20),
}


@pytest.fixture(scope="module")
def million(tmp_path_factory):
    folder = tmp_path_factory.mktemp("million")
    fill(folder, 1_000_000)
    return folder


def test_append(benchmark, tmp_path):
    with RunLog(tmp_path) as log:
        records = iter([anchored_step(step) for step in range(200)])
        benchmark.pedantic(lambda: log.append(next(records)), rounds=150)


@pytest.mark.parametrize("query", QUERIES)
def test_query(benchmark, million, query):
    with RunReader(million) as reader:
        benchmark.pedantic(QUERIES[query], args=(reader,), rounds=3)


def main(n_pairs: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spent = fill(folder, n_pairs)
        size = sum(p.stat().st_size for p in folder.iterdir()) / 2**20
        print(f"append: {n_pairs / spent:,.0f} pairs/s ({n_pairs:,} pairs in {spent:.1f} s, {size:.0f} MiB)")
        with RunReader(folder) as reader:
            for query, ask in QUERIES.items():
                start = time.perf_counter()
                rows = ask(reader)
                print(f"{query}: {time.perf_counter() - start:.3f} s ({len(rows)} rows)")
            start = time.perf_counter()
            n = sum(1 for _ in reader.pairs())
            print(f"every pair, read through: {time.perf_counter() - start:.2f} s ({n:,} rows)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
