"""`trueup demo`: the experiment of the README, from running the programs to a report that opens offline."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.progress import Progress
from rich.table import Table

from trueup.cli.lazy import Commands, LazyGroup
from trueup.cli.tables import progress_bar, wide_console
from trueup.errors import MissingExtraError
from trueup.experiments.arms import ARMS
from trueup.experiments.demo import CELLS, Cell, run_demo
from trueup.experiments.runs import Plan
from trueup.experiments.scenarios import SCENARIOS
from trueup.experiments.workers import available_cpus
from trueup.report import write_report
from trueup.sandbox import Sandbox
from trueup.tasks.catalogue import PassRates, load_programs, measure_pass_rates

__all__ = ["demo", "results_table"]

_MORE: Commands = {
    "strings": (
        "trueup.cli.demo_strings",
        "strings",
        "a language model that writes programs, trained by TRL on anchored rewards",
    ),
    "trips": (
        "trueup.cli.demo_trips",
        "trips",
        "travel plans under hard constraints, rewards composed four ways",
    ),
}

_QUICK = Plan(n_seeds=6, n_tuning_seeds=3)


@click.group(cls=LazyGroup, table=_MORE, invoke_without_command=True)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("runs/demo"),
    show_default=True,
    help="Folder for results.json, report.html, the figures and the finished cells.",
)
@click.option(
    "--seeds", type=click.IntRange(min=1), default=None, help="Runs per arm and scenario. [default: 32]"
)
@click.option("--steps", type=click.IntRange(min=1), default=None, help="Training steps. [default: 60]")
@click.option(
    "--anchor-fraction",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.1,
    show_default=True,
    help="Share of rollouts that gold scores, on average.",
)
@click.option(
    "--schedule",
    type=click.Choice(["constant", "front_loaded"]),
    default="constant",
    show_default=True,
    help="front_loaded: the first step at 100 %, then fewer, with the same total.",
)
@click.option(
    "--quick", is_flag=True, help="6 seeds, and learning rates from 3: rougher figures, four times faster."
)
@click.option(
    "--jobs", type=click.IntRange(min=1), default=None, help="Worker processes. [default: all CPUs]"
)
@click.option("--fresh", is_flag=True, help="Compute everything again, also what the folder already holds.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print results.json to standard output and nothing else."
)
@click.pass_context
def demo(
    context: click.Context,
    out: Path,
    seeds: int | None,
    steps: int | None,
    anchor_fraction: float,
    schedule: str,
    quick: bool,
    jobs: int | None,
    fresh: bool,
    as_json: bool,
) -> None:
    """Train on twenty real programs and on a contextual task, with seven ways of using a little gold.

    Runs the programs in the sandbox, trains every arm in four scenarios with paired seeds, prints a table and
    writes results.json, report.html and the figures to --out. Interrupted, it goes on where it stopped when it
    is called again with the same settings.

    Scenarios: `monotone` (a noisy judge in the right order) and `hackable` (a judge that reads promises) on the
    programs; `contextual_benign` and `contextual_exploit` on 64 prompts of four families.

    The commands below are further demos, each with options of its own.
    """
    if context.invoked_subcommand is not None:
        return
    plan = _QUICK if quick else Plan()
    changes: dict[str, Any] = {"anchor_fraction": anchor_fraction, "schedule": schedule}
    if seeds is not None:
        changes |= {"n_seeds": seeds, "n_tuning_seeds": min(seeds, plan.n_tuning_seeds)}
    if steps is not None:
        changes["n_steps"] = steps
    plan = dataclasses.replace(plan, **changes)
    _prepare(out)
    results, report, n_kept = _run(plan, out, jobs or available_cpus(), fresh)
    if as_json:
        click.echo(json.dumps(results, allow_nan=False))
        return
    console = wide_console()
    for name in SCENARIOS:
        console.print(results_table(results, name))
    console.print(_footnotes(results), style="dim")
    if n_kept:
        console.print(
            f"{n_kept} of {len(CELLS)} cells are from an earlier call with the same settings and the same source; "
            "--fresh computes them again.",
            style="dim",
        )
    console.print(f"results: {out / 'results.json'}", soft_wrap=True)
    console.print(f"report:  {report}", soft_wrap=True)


def _prepare(out: Path) -> None:
    """Make the folder before anything is computed that could then not be written."""
    reason = ""
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not os.access(out, os.W_OK | os.X_OK):
            reason = "permission denied"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise click.ClickException(
            f"--out must be a folder that can be written to, got {out} ({reason}). "
            "The results would have no place. Name another folder."
        )


def _run(plan: Plan, out: Path, n_workers: int, fresh: bool) -> tuple[dict[str, Any], str, int]:
    with progress_bar() as progress:
        rates = _measure(progress)
        task = progress.add_task("training", total=len(CELLS))
        n_kept = 0

        def on_cell(cell: Cell, was_there: bool) -> None:
            nonlocal n_kept
            n_kept += was_there
            progress.update(task, advance=1, description=f"{cell.scenario}, {cell.arm}")

        results = run_demo(plan, out, rates, n_workers=n_workers, fresh=fresh, on_cell=on_cell)
        progress.update(task, description="report")
        try:
            report = str(write_report(results, out))
        except MissingExtraError as error:
            report = f"not written. {error}"
    return results, report, n_kept


def _measure(progress: Progress) -> PassRates:
    task = progress.add_task("running the programs in the sandbox", total=None)
    with Sandbox(slots=2) as sandbox:
        rates = measure_pass_rates(
            sandbox,
            load_programs(),
            lambda done, total: progress.update(task, completed=done, total=total),
        )
    progress.remove_task(task)
    return rates


def results_table(results: dict[str, Any], scenario: str) -> Table:
    """One scenario as a table; errors are standard errors over seeds."""
    table = Table(title=scenario, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("arm")
    for heading in (
        "final gold reward",
        "gold queries",
        "steps to 90 %",
        "auc",
        "sandbox s",
        "learning rate",
    ):
        table.add_column(heading, justify="right")
    for arm in ARMS:
        row = results["scenarios"][scenario][arm]
        final = row["final_gold_reward"]
        error = "" if final["se"] is None else f" ± {final['se']:.4f}"
        table.add_row(
            arm,
            f"{final['mean']:.4f}{error}",
            f"{row['gold_queries']:.0f}",
            "never" if row["steps_to_90"] is None else str(row["steps_to_90"]),
            f"{row['auc']:.3f}",
            "" if row["sandbox_seconds"] is None else f"{row['sandbox_seconds']:.1f}",
            f"{row['learning_rate']:g}",
        )
    return table


def _footnotes(results: dict[str, Any]) -> str:
    config, sandbox = results["config"], results["sandbox"]
    return (
        f"{config['n_seeds']} seeds, {config['n_steps']} steps, {config['anchor_fraction']:.1%} anchors "
        f"({config['schedule']}). Final gold reward: exact expectation under the final policy, ± standard error.\n"
        "Steps to 90 %: of the final value of `gold`. Sandbox s: gold queries times "
        f"{1000 * sandbox['seconds_per_run']:.1f} ms, measured over {sandbox['n_runs']} runs "
        f"({sandbox['backend']}); verdicts are remembered, so the demo itself ran each program only for that."
    )
