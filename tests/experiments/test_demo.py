"""The demo's files are whole or absent, and what is finished is not computed twice."""

from __future__ import annotations

import json
import multiprocessing
import os
import time

import pytest

from trueup.errors import InfrastructureError
from trueup.experiments import store
from trueup.experiments.arms import ARMS
from trueup.experiments.demo import CELLS, run_demo
from trueup.experiments.runs import Plan
from trueup.experiments.scenarios import SCENARIOS
from trueup.experiments.store import CellStore, fingerprint, write_json
from trueup.experiments.workers import run_jobs
from trueup.tasks.catalogue import HACKERS

TINY = Plan(n_seeds=2, n_tuning_seeds=1, n_steps=2)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, rates):  # type: ignore[no-untyped-def]
    folder = tmp_path_factory.mktemp("demo")
    return folder, run_demo(TINY, folder, rates)


def test_results_hold_every_scenario_and_arm_with_what_a_report_needs(finished) -> None:  # type: ignore[no-untyped-def]
    folder, results = finished
    assert json.loads((folder / "results.json").read_text()) == results
    assert tuple(results["scenarios"]) == SCENARIOS
    for name in SCENARIOS:
        assert tuple(results["scenarios"][name]) == ARMS
        for arm, row in results["scenarios"][name].items():
            assert set(row["final_gold_reward"]) == {"mean", "se"}
            assert row["learning_rate"] == float(
                max(results["learning_rates"][name][arm].items(), key=lambda item: item[1])[0]
            )
            assert len(row["curve"]["gold_se"]) == TINY.n_steps + 1
        assert set(results["calibration"][name]) >= {
            "bins",
            "proxy_mean",
            "calibrated_mean",
            "gold_mean",
            "n",
        }
    assert results["config"]["n_seeds"] == 2
    assert set(results["versions"]) >= {"trueup", "python", "numpy", "scipy"}


def test_sandbox_seconds_are_queries_times_measured_seconds_and_unknown_where_nothing_runs(
    finished, rates
) -> None:  # type: ignore[no-untyped-def]
    _, results = finished
    row = results["scenarios"]["hackable"]["gold"]
    assert row["gold_queries"] == TINY.n_steps * 80
    assert row["sandbox_seconds"] == pytest.approx(row["gold_queries"] * rates.seconds_per_run)
    assert results["scenarios"]["hackable"]["proxy"]["sandbox_seconds"] == 0.0
    assert results["scenarios"]["contextual_exploit"]["gold"]["sandbox_seconds"] is None


def test_the_programs_are_listed_with_measured_rates_and_both_opinions(finished, rates) -> None:  # type: ignore[no-untyped-def]
    section = finished[1]["sandbox"]
    assert [p["pass_rate"] for p in section["programs"]] == list(rates.pass_rate)
    assert {p["name"] for p in section["programs"] if p["hacker"]} == HACKERS
    assert section["n_runs"] == 40
    assert section["seconds_total"] > 0


def test_steps_to_90_is_the_first_step_at_90_percent_of_all_gold_or_null(finished) -> None:  # type: ignore[no-untyped-def]
    scenario = finished[1]["scenarios"]["monotone"]
    level = 0.9 * scenario["gold"]["final_gold_reward"]["mean"]
    for row in scenario.values():
        reached = [k for k, value in enumerate(row["curve"]["gold_mean"]) if value >= level]
        assert row["steps_to_90"] == (reached[0] if reached else None)


def test_an_interrupted_demo_leaves_whole_files_and_goes_on_where_it_stopped(
    tmp_path, rates, finished
) -> None:  # type: ignore[no-untyped-def]
    seen = []

    def interrupt(cell, was_there):  # type: ignore[no-untyped-def]
        seen.append((cell, was_there))
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_demo(TINY, tmp_path, rates, on_cell=interrupt)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cells"]
    left = sorted(path.name for path in (tmp_path / "cells").iterdir())
    assert left == sorted(f"{cell.scenario}.{cell.arm}.json" for cell, _ in seen)
    for name in left:
        json.loads((tmp_path / "cells" / name).read_text())

    resumed = []
    results = run_demo(TINY, tmp_path, rates, on_cell=lambda cell, there: resumed.append((cell, there)))
    assert {cell for cell, there in resumed if there} == {cell for cell, _ in seen}
    assert len(resumed) == len(CELLS)
    assert results["scenarios"] == finished[1]["scenarios"]


def test_other_settings_and_fresh_are_computed_again(finished, rates) -> None:  # type: ignore[no-untyped-def]
    folder, _ = finished
    store = CellStore(folder / "cells", "of another experiment")
    assert store.load("hackable", "gold") is None
    there = []
    run_demo(TINY, folder, rates, fresh=True, on_cell=lambda _, was_there: there.append(was_there))
    assert there == [False] * len(CELLS)
    there.clear()
    run_demo(TINY, folder, rates, on_cell=lambda _, was_there: there.append(was_there))
    assert there == [True] * len(CELLS)


def test_a_damaged_cell_counts_as_missing(tmp_path) -> None:  # type: ignore[no-untyped-def]
    store = CellStore(tmp_path, "f")
    store.save({"scenario": "hackable", "arm": "gold", "value": 1})
    assert store.load("hackable", "gold") == {"scenario": "hackable", "arm": "gold", "value": 1}
    path = tmp_path / "hackable.gold.json"
    path.write_text(path.read_text()[:20])
    assert store.load("hackable", "gold") is None


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "results.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["results.json"]


def test_the_fingerprint_moves_with_anything_that_moves_a_result() -> None:
    base = {"plan": {"n_steps": 60}, "pass_rates": [0.0, 1.0]}
    assert fingerprint(base) == fingerprint(dict(reversed(base.items())))
    assert fingerprint(base) != fingerprint({**base, "plan": {"n_steps": 61}})
    assert fingerprint(base) != fingerprint({**base, "pass_rates": [0.0, 0.95]})


def test_two_workers_give_what_one_gives() -> None:
    assert sorted(run_jobs(abs, [-3, 1, -2], 2)) == sorted(run_jobs(abs, [-3, 1, -2], 1)) == [1, 2, 3]


def _die(job: int) -> int:
    os._exit(job)


def _slow(job: int) -> int:
    time.sleep(0 if job == 0 else 60)
    return os.getpid()


def test_a_worker_that_dies_is_an_error_and_not_a_wait_without_end() -> None:
    with pytest.raises(InfrastructureError, match="worker process died"):
        list(run_jobs(_die, [1, 2], 2))


def test_whoever_stops_listening_ends_the_workers() -> None:
    results = run_jobs(_slow, [0, 1, 2], 2)
    next(results)
    results.close()
    for child in multiprocessing.active_children():
        child.join(10)  # terminated, so long before its sleep is over
    assert not multiprocessing.active_children()


def test_a_changed_source_file_is_another_experiment(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "estimator.py").write_text("x = 1")
    monkeypatch.setattr(store.trueup, "__file__", str(tmp_path / "__init__.py"))
    first = store.source_digest()
    assert store.source_digest() == first
    (tmp_path / "estimator.py").write_text("x = 2")
    assert store.source_digest() != first
