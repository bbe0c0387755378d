"""`trueup demo strings` and `trueup run`: a language model trained on anchored rewards."""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.progress import Progress
from rich.table import Table

from trueup.cli.tables import progress_bar, wide_console
from trueup.experiments.strings.config import (
    Evaluation,
    Rl,
    StringsConfig,
    Tasks,
    WarmStart,
    World,
    load_config,
)

__all__ = ["run", "strings", "strings_table"]

_out = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("runs/strings"),
    show_default=True,
    help="Folder for results.json, the curves, the run logs and the checkpoints.",
)
_delay = click.option(
    "--gold-delay-ms",
    type=click.FloatRange(min=0),
    default=None,
    help="Wait in every gold execution of training, to stand for costlier tests. [default: 0]",
)
_cache = click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Where warm start and world models are kept. [default: ~/.cache/trueup/strings]",
)
_json = click.option(
    "--json", "as_json", is_flag=True, help="Print results.json to standard output and nothing else."
)

_QUICK = {
    "seeds": 1,
    "tasks": Tasks(train=48, validation=8, held_out=12, held_out_families=4, depths=(1, 2)),
    "warm_start": WarmStart(examples=3_000, steps=120),
    "world": World(rollouts_per_task=4, epochs=3),
    "rl": Rl(steps=6, groups_per_step=4, group_size=4, checkpoint_every=3),
    "evaluation": Evaluation(every=3, samples=2),
}


@click.command()
@_out
@click.option("--quick", is_flag=True, help="Every part at a size that proves it works and nothing else.")
@click.option("--seeds", type=click.IntRange(min=1), default=None, help="Runs per arm. [default: 3]")
@_delay
@_cache
@_json
def strings(
    out: Path, quick: bool, seeds: int | None, gold_delay_ms: float | None, cache: Path | None, as_json: bool
) -> None:
    """Train a language model that writes programs, with seven ways of using a little gold.

    Everything is made on the spot: the tasks, a policy of about a million parameters, a world model that predicts
    outcomes, and a hackable one that believes a comment. Gold runs the programs in the sandbox. Needs the extra
    `train`, and an hour or more of CPU; --quick takes minutes. Interrupted, it goes on where it stopped.
    """
    changes: dict[str, Any] = dict(_QUICK) if quick else {}
    _run(StringsConfig(**(changes | _changes(seeds, gold_delay_ms))), out, cache, as_json)


@click.command()
@click.argument("config", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_out
@click.option("--seeds", type=click.IntRange(min=1), default=None, help="Instead of the configuration's.")
@_delay
@_cache
@_json
def run(
    config: Path,
    out: Path,
    seeds: int | None,
    gold_delay_ms: float | None,
    cache: Path | None,
    as_json: bool,
) -> None:
    """Run the experiment that CONFIG describes, or go on with it after an interrupt.

    CONFIG is a YAML file such as configs/strings.yaml; docs/strings.md lists the settings.
    """
    _run(load_config(config, **_changes(seeds, gold_delay_ms)), out, cache, as_json)


def _changes(seeds: int | None, gold_delay_ms: float | None) -> dict[str, Any]:
    given = {"seeds": seeds, "gold_delay_ms": gold_delay_ms}
    return {name: value for name, value in given.items() if value is not None}


def _run(config: StringsConfig, out: Path, cache: Path | None, as_json: bool) -> None:
    # Before torch is imported. Spinning threads make small models many times slower on a busy machine.
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_NUM_THREADS", str(config.threads))
    # What transformers says to TRL about its settings is no business of who runs this.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\.")
    from trueup.experiments.strings.run import run_strings, write_plots

    with progress_bar() as progress:
        results = run_strings(config, out, cache=cache, **_reporters(progress))
        plots = write_plots(results, out)
    if as_json:
        click.echo(json.dumps(results, allow_nan=False))
        return
    console = wide_console()
    for key, title in (("arms", "honest world model"), ("hackable", "hackable world model")):
        if results[key]:
            console.print(strings_table(results[key], title))
    console.print(_footnotes(results), style="dim")
    for path in (out / "results.json", *plots):
        console.print(str(path), soft_wrap=True)


def _reporters(progress: Progress) -> dict[str, Any]:
    bars: dict[str, Any] = {}

    def stage(what: str, done: int, total: int) -> None:
        if what not in bars:
            bars[what] = progress.add_task(what, total=total)
        progress.update(bars[what], completed=done, total=total)

    def on_cell(done: int, total: int, what: str) -> None:
        if "cells" not in bars:
            bars["cells"] = progress.add_task("training", total=total)
        progress.update(bars["cells"], completed=done, description=what)

    return {"stage": stage, "on_cell": on_cell}


def strings_table(arms: dict[str, Any], title: str) -> Table:
    """Arms of one world model."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("arm", no_wrap=True)
    for heading in ("held-out", "gold", "gen. s", "proxy s", "run s", "update s"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("trueup", "pays from", "guard"):
        table.add_column(heading, justify="right", no_wrap=True)
    for arm, row in arms.items():
        rate, s = row["heldout_pass_rate"], row["seconds"]
        error = "" if rate["se"] is None else f" ± {rate['se']:.3f}"
        even = row["pays_from_gold_seconds"]
        table.add_row(
            arm,
            f"{rate['mean']:.3f}{error}",
            f"{row['gold_executions']:.0f}",
            *(f"{s[name]:.1f}" for name in ("generate", "proxy", "sandbox", "update")),
            f"{s['trueup'] / max(sum(s.values()), 1e-9):.1%}",
            "" if even is None else f"{1000 * even:.0f} ms",
            str(len(row["guard_events"])),
        )
    return table


def _footnotes(results: dict[str, Any]) -> str:
    config, world = results["config"], results["world_model"]
    honest = world["honest"]["all"]
    rows = {**results["arms"], **results["hackable"]}
    start = ", ".join(dict.fromkeys(f"{row['start_pass_rate']:.3f}" for row in rows.values()))
    over = next(iter(rows.values()))["heldout_pass_rate"]["se_over"]
    return (
        f"Held-out: share of sampled programs that pass in full, {start} before RL. Gold: executions of training.\n"
        f"{config['seeds']} seed(s), {config['rl']['steps']} steps of {config['rl']['groups_per_step']} × "
        f"{config['rl']['group_size']} programs, {config['rl']['anchor_fraction']:.0%} anchors. ± standard error "
        f"over {over}. Seconds are sums over a run on this machine.\n"
        f"World model before RL: AUROC {_figure(honest['auroc'])}, ECE {_figure(honest['ece'])}, τ within groups "
        f"{_figure(honest['tau_within_group'])}, from {world['executions']} executed rollouts that are not in "
        "the table. Pays from: cost of one gold execution above which the arm's wall time is below that of gold."
    )


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
