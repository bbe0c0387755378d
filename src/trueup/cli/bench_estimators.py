"""`trueup bench estimators`: which estimator wins where, as a sweep that anyone can repeat."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

import click
from rich import box
from rich.table import Table

from trueup.cli.tables import progress_bar, wide_console
from trueup.experiments.estimator_sweep import (
    SWEEP_ARMS,
    SweepPoint,
    default_points,
    full_points,
    run_point,
)
from trueup.experiments.workers import available_cpus, run_jobs

__all__ = ["estimators"]


@click.command("estimators")
@click.option(
    "--seeds", type=click.IntRange(min=2), default=32, show_default=True, help="Runs per arm and point."
)
@click.option("--steps", type=click.IntRange(min=1), default=60, show_default=True, help="Training steps.")
@click.option("--full", is_flag=True, help="Every combination of the values, and not one factor at a time.")
@click.option(
    "--jobs", type=click.IntRange(min=1), default=None, help="Worker processes. [default: all CPUs]"
)
@click.option("--json", "as_json", is_flag=True, help="Rows as JSON on standard output and nothing else.")
def estimators(seeds: int, steps: int, full: bool, jobs: int | None, as_json: bool) -> None:
    """Which estimator wins where: rank correlation, anchor fraction, noise, number of groups.

    Trains a softmax policy over 20 completions with every arm at every point and prints the exact expected gold
    reward after training, with standard errors over seeds. Learning rates are chosen per arm and point on seeds
    of their own. --json adds each arm's squared gradient error relative to gold on the budget.
    """
    points = full_points() if full else default_points()
    work = functools.partial(run_point, n_seeds=seeds, n_steps=steps)
    rows: list[dict[str, Any]] = []
    with progress_bar() as progress:
        task = progress.add_task("points", total=len(points))
        for found in run_jobs(work, points, jobs or available_cpus()):
            rows += found
            progress.advance(task)
    order = {point: place for place, point in enumerate(points)}
    rows.sort(key=lambda row: (order[_point(row)], SWEEP_ARMS.index(row["arm"])))
    if as_json:
        click.echo(json.dumps({"n_seeds": seeds, "n_steps": steps, "rows": rows}, allow_nan=False))
        return
    console = wide_console()
    console.print(_table("final gold reward", rows, "final_gold_reward", 3))
    console.print(_table("squared error of the gradient, gold_budget = 1", rows, "gradient_error", 2))
    console.print(
        f"{seeds} seeds, {steps} steps, 8 rollouts per group; mean and, in brackets, standard error in units of "
        "the last digit. wmrl_cap: the published plug-in at its highest anchor weight.",
        style="dim",
    )


def _point(row: dict[str, Any]) -> SweepPoint:
    return SweepPoint(row["rank_correlation"], row["anchor_fraction"], row["noise"], row["n_groups"])


def _table(title: str, rows: Sequence[dict[str, Any]], figure: str, digits: int) -> Table:
    """One line per point, one column per arm."""
    table = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        collapse_padding=True,
        pad_edge=False,
    )
    for heading in ("rank corr.", "anchors", "noise", "groups", *SWEEP_ARMS):
        table.add_column(heading.replace("_", "\n").replace(" ", "\n"), justify="right", no_wrap=True)
    by_point: dict[SweepPoint, dict[str, str]] = {}
    for row in rows:
        by_point.setdefault(_point(row), {})[row["arm"]] = _with_error(row[figure], digits)
    for point, cells in by_point.items():
        table.add_row(
            f"{point.rank_correlation:g}",
            f"{point.anchor_fraction:.1%}",
            f"{point.noise:g}",
            str(point.n_groups),
            *(cells[arm] for arm in SWEEP_ARMS),
        )
    return table


def _with_error(figure: dict[str, float | None], digits: int) -> str:
    mean, se = figure["mean"], figure["se"]
    if mean is None:
        return "unknown"
    error = "" if se is None else f"({round(se * 10**digits)})"
    return f"{mean:.{digits}f}{error}"
