"""`trueup bench slices`: where calibration by family and by features helps, and where it costs."""

from __future__ import annotations

import json
from typing import Any

import click
from rich import box
from rich.table import Table

from trueup.cli.tables import progress_bar, wide_console
from trueup.experiments.slices_bench import FRACTIONS, SLICE_SCENARIOS, SLICES, run_slices_cell
from trueup.experiments.workers import available_cpus, run_jobs

__all__ = ["slices"]


@click.command("slices")
@click.option("--seeds", type=click.IntRange(min=2), default=16, show_default=True, help="Runs per cell.")
@click.option(
    "--jobs", type=click.IntRange(min=1), default=None, help="Worker processes. [default: all CPUs]"
)
@click.option("--json", "as_json", is_flag=True, help="Rows as JSON on standard output and nothing else.")
def slices(seeds: int, jobs: int | None, as_json: bool) -> None:
    """No calibration, one map, a map per family, features on top: final gold reward on the contextual task.

    residual: root mean square of gold − calibrated proxy over all rollouts of the second half, which only an
    experiment that knows all gold can compute.
    """
    work = [(name, f, kind, seeds) for name in SLICE_SCENARIOS for f in FRACTIONS for kind in SLICES]
    rows: list[dict[str, Any]] = []
    with progress_bar() as progress:
        task = progress.add_task("cells", total=len(work))
        for row in run_jobs(run_slices_cell, work, jobs or available_cpus()):
            rows.append(row)
            progress.advance(task)
    rows.sort(
        key=lambda r: (
            SLICE_SCENARIOS.index(r["scenario"]),
            r["anchor_fraction"],
            SLICES.index(r["slices"]),
        )
    )
    if as_json:
        click.echo(json.dumps({"n_seeds": seeds, "rows": rows}, allow_nan=False))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("scenario", "anchors", "calibration", "final gold", "residual"):
        table.add_column(heading, justify="left" if heading in ("scenario", "calibration") else "right")
    for row in rows:
        final, residual = row["final_gold_reward"], row["residual_rms"]
        table.add_row(
            row["scenario"],
            f"{row['anchor_fraction']:.1%}",
            row["slices"],
            f"{final['mean']:.4f} ± {final['se']:.4f}",
            f"{residual['mean']:.3f} ± {residual['se']:.3f}",
        )
    console = wide_console()
    console.print(table)
    console.print(f"{seeds} seeds, 60 steps, learning rate 50, ± standard error.", style="dim")
