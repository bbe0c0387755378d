"""The bundled experiment: seven arms, four scenarios, one `results.json`.

Order: measure gold by running the programs in the sandbox (nothing starts without it: a made-up gold would be
a made-up experiment); compute the cells, each in a worker process; put them together. Cells are independent
and each is stored when it is done, so an interrupted demo goes on where it stopped.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy

import trueup
from trueup.experiments.arms import ARMS, ArmName
from trueup.experiments.runs import Plan, run_cell
from trueup.experiments.scenarios import SCENARIOS, Scenario, ScenarioName, make_scenario
from trueup.experiments.store import CellStore, fingerprint, source_digest, write_json
from trueup.experiments.workers import run_jobs
from trueup.tasks.catalogue import UNIT_TESTS, PassRates, Program, load_programs
from trueup.tasks.judges import hackable_mean, monotone_mean

__all__ = ["CELLS", "Cell", "assemble", "run_demo"]

RESULTS_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Cell:
    """One arm in one scenario."""

    scenario: ScenarioName
    arm: ArmName


# The contextual cells take longest and start first, so that the last worker is not left alone with one.
CELLS: tuple[Cell, ...] = tuple(Cell(scenario, arm) for scenario in reversed(SCENARIOS) for arm in ARMS)


def run_demo(
    plan: Plan,
    out_dir: Path,
    rates: PassRates,
    *,
    n_workers: int = 1,
    fresh: bool = False,
    on_cell: Callable[[Cell, bool], None] | None = None,
) -> dict[str, Any]:
    """Compute whatever cells `out_dir` does not hold yet, write `out_dir/results.json`, and return its content.

    `on_cell(cell, was_there)` is called after each cell. An interrupt leaves the finished cells and no half file.
    """
    programs = load_programs()
    key = fingerprint(
        {
            "plan": asdict(plan),
            "schema": RESULTS_SCHEMA,
            "versions": _versions(),
            "pass_rates": list(rates.pass_rate),
            "source": source_digest(),
        }
    )
    store = CellStore(out_dir / "cells", key)
    done: dict[Cell, dict[str, Any]] = {}
    for cell in CELLS:
        held = None if fresh else store.load(cell.scenario, cell.arm)
        if held is not None:
            done[cell] = held
            if on_cell is not None:
                on_cell(cell, True)
    missing = [cell for cell in CELLS if cell not in done]
    jobs = [(cell, plan, rates.pass_rate) for cell in missing]
    for cell, result in run_jobs(_run_job, jobs, n_workers):
        store.save(result)
        done[cell] = result
        if on_cell is not None:
            on_cell(cell, False)
    results = assemble(done, plan, rates, programs)
    write_json(out_dir / "results.json", results)
    return results


def _run_job(job: tuple[Cell, Plan, tuple[float, ...]]) -> tuple[Cell, dict[str, Any]]:
    cell, plan, pass_rates = job
    return cell, run_cell(_scenario(cell.scenario, pass_rates), cell.arm, plan)


@cache
def _scenario(name: ScenarioName, pass_rates: tuple[float, ...]) -> Scenario:
    return make_scenario(name, load_programs(), np.array(pass_rates))


def assemble(
    cells: dict[Cell, dict[str, Any]], plan: Plan, rates: PassRates, programs: Sequence[Program]
) -> dict[str, Any]:
    """results.json from all cells: what needs more than one cell is computed here."""
    scenarios: dict[str, dict[str, Any]] = {}
    learning_rates: dict[str, dict[str, Any]] = {}
    calibration: dict[str, Any] = {}
    for name in SCENARIOS:
        reference = cells[Cell(name, "gold")]["summary"]["final_gold_reward"]["mean"]
        scenarios[name], learning_rates[name] = {}, {}
        for arm in ARMS:
            cell = cells[Cell(name, arm)]
            summary = dict(cell["summary"])
            summary["steps_to_90"] = _first_step_at(summary["curve"]["gold_mean"], 0.9 * reference)
            summary["sandbox_seconds"] = (
                summary["gold_queries"] * rates.seconds_per_run
                if name in ("monotone", "hackable")
                else None  # these completions are entries of a table: nothing runs
            )
            scenarios[name][arm] = summary
            learning_rates[name][arm] = cell["learning_rates"]
            if cell["calibration"] is not None:
                calibration[name] = cell["calibration"]
    return {
        "schema": RESULTS_SCHEMA,
        "scenarios": scenarios,
        "calibration": calibration,
        "learning_rates": learning_rates,
        "sandbox": _sandbox_section(rates, programs),
        "config": asdict(plan),
        "versions": _versions(),
    }


def _sandbox_section(rates: PassRates, programs: Sequence[Program]) -> dict[str, Any]:
    gold = np.array(rates.pass_rate)
    trusting = monotone_mean(gold)
    hurried = hackable_mean([program.source for program in programs])
    return {
        "backend": rates.backend,
        "n_programs": len(programs),
        "n_unit_tests": len(UNIT_TESTS),
        "n_runs": rates.n_runs,
        "seconds_total": rates.seconds_total,
        "seconds_per_run": rates.seconds_per_run,
        "programs": [
            {
                "name": program.name,
                "pass_rate": float(gold[k]),
                "hacker": program.is_hacker,
                "monotone": float(trusting[k]),
                "hackable": float(hurried[k]),
            }
            for k, program in enumerate(programs)
        ],
    }


def _first_step_at(curve: Sequence[float], level: float) -> int | None:
    """First step at which the curve has reached the level; None if it never does."""
    return next((step for step, value in enumerate(curve) if value >= level), None)


def _versions() -> dict[str, str]:
    return {
        "trueup": trueup.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }
