"""The whole experiment: prepare once, train every cell, write results.json and the plots.

The order is by seed, then by world model and arm, so an interrupted run holds complete comparisons first. Finished
cells are kept under the fingerprint of what determines them; a rerun of the same settings takes them from there, and
a run whose seeds were raised adds only the new ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trueup import __version__
from trueup.errors import MissingExtraError
from trueup.experiments.store import CellStore, fingerprint, write_json
from trueup.experiments.strings.config import ArmName, StringsConfig
from trueup.experiments.strings.prepare import Prepared, Stage, default_cache, prepare
from trueup.experiments.strings.summary import summarise
from trueup.experiments.strings.training import train_cell
from trueup.experiments.strings.verdicts import Verdicts
from trueup.sandbox import Sandbox

__all__ = ["cells_of", "run_strings"]

_NOT_OF_A_CELL = {"seeds", "arms", "hackable_arms"}


def cells_of(config: StringsConfig) -> list[tuple[int, str, ArmName]]:
    """(seed, world, arm) of every cell, in the order in which they are run."""
    worlds = (("honest", config.arms), ("hackable", config.hackable_arms))
    return [(seed, world, arm) for seed in range(config.seeds) for world, arms in worlds for arm in arms]


def run_strings(
    config: StringsConfig,
    out: Path,
    *,
    cache: Path | None = None,
    stage: Stage | None = None,
    on_cell: Callable[[int, int, str], None] | None = None,
) -> dict[str, Any]:
    """Run or go on with the experiment in `out`; returns what results.json holds.

    Args:
        cache: where the prepared files are kept; default `default_cache()`.
        stage: told of every stage of the preparation. on_cell: told (cells done, of how many, what comes next).
    """
    out.mkdir(parents=True, exist_ok=True)
    with Sandbox(slots=config.sandbox_slots) as sandbox:
        prepared = prepare(config, sandbox, cache or default_cache(), stage)
        write_json(out / "world_model.json", prepared.report)
        cells = _train(config, prepared, out, sandbox, on_cell)
    families = [task.family for task in prepared.sets.held_out]
    arms, hackable = summarise(cells, families, config.sandbox_slots)
    results = {
        "experiment": "strings",
        "version": __version__,
        "config": config.model_dump(mode="json"),
        "world_model": prepared.report,
        "arms": arms,
        "hackable": hackable,
        "backend": sandbox.backend,
    }
    write_json(out / "results.json", results)
    return results


def _train(
    config: StringsConfig,
    prepared: Prepared,
    out: Path,
    sandbox: Sandbox,
    on_cell: Callable[[int, int, str], None] | None,
) -> list[dict[str, Any]]:
    verdicts = Verdicts(out / f"verdicts-{prepared.fingerprint}.jsonl")
    todo = cells_of(config)
    name = fingerprint(config.model_dump(mode="json", exclude=_NOT_OF_A_CELL) | {"of": prepared.fingerprint})
    store = CellStore(out / "cells", name)
    cells = []
    for done, (seed, world, arm) in enumerate(todo):
        scenario = f"{world}.{seed}"
        if on_cell is not None:
            on_cell(done, len(todo), f"{world}, {arm}, seed {seed}")
        cell = store.load(scenario, arm)
        if cell is None:
            folder = out / "runs" / name / f"{scenario}.{arm}"
            cell = train_cell(prepared, config, world, arm, seed, folder, sandbox, verdicts)
            store.save(cell | {"scenario": scenario})
            for checkpoint in folder.glob("checkpoint-*"):
                shutil.rmtree(checkpoint)
        cells.append(cell)
    if on_cell is not None:
        on_cell(len(todo), len(todo), "done")
    return cells


def write_plots(results: dict[str, Any], out: Path) -> list[Path]:
    """The plots of results.json; an empty list where matplotlib is not installed."""
    try:
        from trueup.experiments.strings.plots import draw
    except MissingExtraError:
        return []
    return draw(results, out)
