"""Cells of one run → results.json: per arm the held-out pass rate with its error, executions, seconds, guard events.

Pass rates of arms are compared on the same held-out tasks with the same sampling seeds. With several seeds the
standard error is that of the mean over seeds; with one it is that over held-out tasks, and `se_over` says which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trueup.experiments.strings.meter import COMPONENTS

__all__ = ["arm_result", "break_even_seconds", "summarise"]

Cell = Mapping[str, Any]


def _by_task(cells: Sequence[Cell], place: int) -> np.ndarray:
    """(seeds, tasks) pass rates at one place of the curve."""
    rows = [[np.nan if v is None else v for v in cell["curve"][place]["pass_by_task"]] for cell in cells]
    return np.array(rows, dtype=np.float64)


def _mean_and_error(rates_ST: np.ndarray) -> dict[str, Any]:
    """Mean, standard error and what it is over, of (seeds, tasks) rates."""
    n_seeds = rates_ST.shape[0]
    over = np.nanmean(rates_ST, axis=1) if n_seeds > 1 else rates_ST[0][np.isfinite(rates_ST[0])]
    error = float(over.std(ddof=1) / np.sqrt(over.size)) if over.size > 1 else None
    return {"mean": float(np.nanmean(rates_ST)), "se": error, "se_over": "seeds" if n_seeds > 1 else "tasks"}


def arm_result(cells: Sequence[Cell], families: Sequence[str]) -> dict[str, Any]:
    """One arm over its seeds. families: of the held-out tasks, in their order."""
    final = _by_task(cells, -1)
    names = np.array(families)
    n = len(cells)
    steps = [point["step"] for point in cells[0]["curve"]]
    return {
        "seeds": n,
        "heldout_pass_rate": _mean_and_error(final),
        "heldout_pass_rate_by_family": {
            str(f): _mean_and_error(final[:, names == f]) for f in dict.fromkeys(families)
        },
        "start_pass_rate": float(np.nanmean(_by_task(cells, 0))),
        "gold_executions": float(np.mean([cell["gold_executions"] for cell in cells])),
        "rollouts": float(np.mean([cell["rollouts"] for cell in cells])),
        "seconds": {name: float(np.mean([cell["seconds"][name] for cell in cells])) for name in COMPONENTS},
        "seconds_per_run": float(np.mean([cell["seconds"]["step"] for cell in cells])),
        "guard_events": [{"seed": cell["seed"], **event} for cell in cells for event in cell["guard_events"]],
        "curve": [
            {
                "step": step,
                "pass_rate": _mean_and_error(_by_task(cells, i)),
                "gold_executions": float(np.mean([cell["curve"][i]["gold_executions"] for cell in cells])),
                "seconds": float(np.mean([cell["curve"][i]["seconds"] for cell in cells])),
            }
            for i, step in enumerate(steps)
        ],
    }


def break_even_seconds(arm: Mapping[str, Any], gold: Mapping[str, Any], slots: int) -> float | None:
    """Seconds per gold execution from which on `arm` takes less wall time than `gold` for the same steps.

    Both runs are taken as measured without their sandbox, plus executions · seconds / slots. 0 where the arm is
    the quicker one anyhow, None where it executes no less.
    """
    saved = gold["gold_executions"] - arm["gold_executions"]
    if saved <= 0:
        return None
    extra = _without_sandbox(arm) - _without_sandbox(gold)
    return max(0.0, float(extra * slots / saved))


def _without_sandbox(result: Mapping[str, Any]) -> float:
    return float(sum(v for name, v in result["seconds"].items() if name != "sandbox"))


def summarise(
    cells: Sequence[Cell], families: Sequence[str], slots: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(arms, hackable): results by arm for the honest and the hackable world model, in the order of the cells."""
    found: dict[str, dict[str, Any]] = {"honest": {}, "hackable": {}}
    for world, arms in found.items():
        for arm in dict.fromkeys(cell["arm"] for cell in cells if cell["world"] == world):
            mine = [cell for cell in cells if (cell["world"], cell["arm"]) == (world, arm)]
            arms[arm] = arm_result(mine, families)
    gold = found["honest"].get("gold")
    for arms in found.values():
        for arm, result in arms.items():
            even = None if gold is None or arm == "gold" else break_even_seconds(result, gold, slots)
            result["pays_from_gold_seconds"] = even
    return found["honest"], found["hackable"]
