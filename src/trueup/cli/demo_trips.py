"""`trueup demo trips`: hard constraints under six rewards, as a table and a plot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from trueup.cli.tables import progress_bar, wide_console
from trueup.errors import MissingExtraError
from trueup.experiments.trips_demo import ARMS, TripsSettings, run_trips_demo

__all__ = ["trips"]


@click.command("trips")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("runs/trips"),
              show_default=True, help="Folder for results.json and trips.svg.")  # fmt: skip
@click.option("--seeds", default=TripsSettings.n_seeds, show_default=True, type=click.IntRange(1))
@click.option("--steps", default=TripsSettings.n_steps, show_default=True, type=click.IntRange(1))
@click.option("--json", "as_json", is_flag=True, help="Print results.json alone on standard output.")
def trips(out: Path, seeds: int, steps: int, as_json: bool) -> None:
    """Train a planning policy under six rewards and see which constraints survive.

    The judge's score has a known exploit. A weighted sum lets it pay for broken constraints; the gate does not,
    but still follows it among feasible plans; gold on a tenth of the rollouts, or a refreshed reward model,
    closes that as well. A few minutes on one core.
    """
    settings = TripsSettings(n_seeds=seeds, n_steps=steps)
    with progress_bar() as progress:
        bar = progress.add_task("training", total=seeds * len(ARMS))
        results = run_trips_demo(settings, lambda n: progress.advance(bar, n))
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    try:
        _plot(results, out / "trips.svg")
    except MissingExtraError as error:
        click.echo(f"trueup: no plot: {error}", err=True)
    if as_json:
        click.echo(json.dumps(results))
    else:
        _print(results, out)


def _print(results: dict[str, Any], out: Path) -> None:
    console = wide_console()
    table = Table(
        "reward", "feasible", "gold value", "judge", "exploit", "gold runs", box=None, pad_edge=False
    )
    for arm, row in results["arms"].items():
        cells = [f"{row['final'][k]['mean']:.3f} ± {row['final'][k]['se']:.3f}" for k in
                 ("feasible", "value", "judge", "stops")]  # fmt: skip
        table.add_row(arm, *cells, f"{row['gold_queries']:.0f}")
    console.print(table)
    rm = results["reward_model"]
    if rm["refreshes"]:
        console.print(
            f"\nreward model, held-out AUROC within a task: {rm['auroc_within_before']:.3f} before, "
            f"{rm['auroc_within_after']:.3f} after; exploits beaten: {rm['exploits_beaten_before']:.2f} before, "
            f"{rm['exploits_beaten_after']:.2f} after ({rm['exploits_found']:.0f} found)"
        )
    console.print(
        f"\nlast tenth of training, mean ± standard error over seeds; written to {out}/results.json"
    )


def _plot(results: dict[str, Any], path: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("The plot", "report", "matplotlib") from None
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    colours = ("#6b7280", "#c2410c", "#2563eb", "#15803d", "#a16207", "#7c3aed")
    titles = {
        "feasible": "share of feasible plans",
        "value": "gold value (infeasible = 0)",
        "stops": "exploit",
    }
    for axes, (name, title) in zip(figure.subplots(1, 3), titles.items(), strict=True):
        for (arm, row), colour in zip(results["arms"].items(), colours, strict=True):
            mean, se = row["curves"][name]["mean"], row["curves"][name]["se"]
            x = range(1, len(mean) + 1)
            axes.plot(x, mean, color=colour, label=arm.replace("_", " "))
            low, high = ([m + k * s for m, s in zip(mean, se, strict=True)] for k in (-1, 1))
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set(title=title, xlabel="training step", ylim=(0, 1.02))
    figure.axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(path)
