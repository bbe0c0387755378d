"""`trueup bench guard`: what the guard is worth when something goes wrong in the middle of a run."""

from __future__ import annotations

import json
from typing import Any

import click
from rich import box
from rich.table import Table

from trueup.cli.tables import progress_bar, wide_console
from trueup.experiments.guard_bench import GUARD_ARMS, GUARD_SCENARIOS, GuardScenario, run_guard_cell
from trueup.experiments.workers import available_cpus, run_jobs
from trueup.sandbox import Sandbox
from trueup.tasks.catalogue import load_programs, measure_pass_rates

__all__ = ["guard"]


@click.command("guard")
@click.option("--seeds", type=click.IntRange(min=2), default=8, show_default=True, help="Runs per arm.")
@click.option(
    "--scenario",
    "scenarios",
    type=click.Choice(GUARD_SCENARIOS),
    multiple=True,
    help="Only these; may be given several times. [default: all]",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), default=None, help="Worker processes. [default: all CPUs]"
)
@click.option("--json", "as_json", is_flag=True, help="Rows as JSON on standard output and nothing else.")
def guard(seeds: int, scenarios: tuple[GuardScenario, ...], jobs: int | None, as_json: bool) -> None:
    """Late hack, slow drift, outages of judge and sandbox, a new family, a rare exploit, a judge swap.

    Each run has 240 steps at 10 % anchors; the event is at step 30 (new_family: 40). final and lowest: exact expected
    gold reward at the end and at its lowest after the event. seen: share of runs in which a family was closed after
    the event, and how many steps it took (median). false: closings before the event, per run.
    """
    with Sandbox(slots=2) as sandbox:
        rates = measure_pass_rates(sandbox, load_programs())
    chosen = scenarios or GUARD_SCENARIOS
    work = [(name, arm, rates.pass_rate, seeds) for name in chosen for arm in GUARD_ARMS]
    rows: list[dict[str, Any]] = []
    with progress_bar() as progress:
        task = progress.add_task("runs", total=len(work))
        for row in run_jobs(run_guard_cell, work, jobs or available_cpus()):
            rows.append(row)
            progress.advance(task)
    rows.sort(key=lambda r: (GUARD_SCENARIOS.index(r["scenario"]), GUARD_ARMS.index(r["arm"])))
    if as_json:
        click.echo(json.dumps({"n_seeds": seeds, "rows": rows}, allow_nan=False))
        return
    console = wide_console()
    console.print(_table(rows))
    console.print(f"{seeds} seeds, ± standard error.", style="dim")


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("scenario", "arm", "final", "lowest", "gold queries", "seen", "steps", "false"):
        table.add_column(heading, justify="left" if heading in ("scenario", "arm") else "right", no_wrap=True)
    before = ""
    for row in rows:
        name = row["scenario"] if row["scenario"] != before else ""
        before = row["scenario"]
        seen, steps, false = (row[k] for k in ("seen_share", "steps_to_closing", "false_closings_per_run"))
        table.add_row(
            name,
            row["arm"],
            _with_error(row["final"]),
            _with_error(row["lowest"]),
            f"{row['n_queries']['mean']:.0f}",
            "–" if seen is None else f"{seen:.0%}",
            "–" if steps is None else f"{steps:.0f}",
            "–" if false is None else f"{false:.2f}",
        )
    return table


def _with_error(figure: dict[str, float | None]) -> str:
    se = figure["se"]
    return f"{figure['mean']:.3f}" + ("" if se is None else f" ± {se:.3f}")
