"""`trueup fidelity`: how far a log's proxy agrees with its gold, case by case."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich import box
from rich.table import Table

from trueup.cli.tables import wide_console

__all__ = ["fidelity"]


@click.command()
@click.argument("log", type=click.Path(path_type=Path))
@click.option(
    "--gold-range",
    type=(float, float),
    default=(0.0, 1.0),
    show_default=True,
    help="Least and greatest score, of proxy and gold alike.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON alone on standard output.")
def fidelity(log: Path, gold_range: tuple[float, float], as_json: bool) -> None:
    """Compare proxy and gold on the logged cases of LOG.

    LOG is a run folder, or a JSONL, CSV or Parquet file with the columns group, family, proxy and gold. Printed, over
    all cases and by family: who passes, fails or is unscored according to each of the two; the mean absolute and the
    calibration error; AUROC for "passes in full"; and Kendall's τ within groups, which is what a group-centred update
    sees. Unscored cases are counted by reason and enter no mean.

    A run folder holds the cases that were anchored. Where anchors were chosen actively they are the doubtful ones,
    so the figures are those of the anchors and not of all rollouts.
    """
    low, high = gold_range
    if not low < high:
        raise click.BadParameter(
            f"the lower number must come first, got {low} {high}", param_hint="--gold-range"
        )
    report = measure(log, gold_range)
    if as_json:
        click.echo(json.dumps(report, allow_nan=False, indent=1))
        return
    console = wide_console()
    console.print(_agreement(report))
    console.print(_confusion(report["all"]["confusion"]))
    for reason, count in report["proxy_unscored_reasons"].items():
        console.print(f"proxy unscored, {reason}: {count}")


def measure(log: Path, limits: tuple[float, float]) -> dict[str, Any]:
    """The report as plain data."""
    from trueup.monitor import load_table
    from trueup.stats.fidelity import measure_fidelity

    table = load_table(log)

    def of(rows: np.ndarray) -> dict[str, Any]:
        part = table.take(rows)
        return measure_fidelity(part.proxy, part.gold, part.unit.tolist(), limits).to_json()

    everything = np.ones(table.n_rows, np.bool_)
    return {
        "all": of(everything),
        "by_family": {name: of(table.family == i) for i, name in enumerate(table.families)},
        "proxy_unscored_reasons": _reasons(log),
        "notes": list(table.notes),
    }


def _reasons(log: Path) -> dict[str, int]:
    """Why the proxy gave no score, as far as the log says so."""
    from trueup.runlog import RunReader, is_run_folder

    counts: Counter[str] = Counter()
    if is_run_folder(log):
        with RunReader(log) as reader:
            for row in reader.failures():
                if row["scorer"] == "proxy":
                    counts[row["reason"]] += row["n"]
    elif log.suffix.lower() in (".jsonl", ".ndjson"):
        with log.open(encoding="utf-8", errors="replace") as file:
            rows = (json.loads(line) for line in file if line.strip())
            counts.update(str(row["proxy_reason"]) for row in rows if row.get("proxy_reason"))
    return dict(counts.most_common())


def _agreement(report: dict[str, Any]) -> Table:
    table = Table(title="agreement of proxy with gold", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("family")
    for heading in ("cases", "both", "proxy", "gold", "MAE", "ECE", "AUROC", "τ in groups"):
        table.add_column(heading, justify="right")
    for name, row in {**report["by_family"], "all": report["all"]}.items():
        names = ("mean_proxy", "mean_gold", "mae", "ece", "auroc", "tau_within_group")
        figures = ("–" if row[key] is None else f"{row[key]:.3f}" for key in names)
        table.add_row(name, str(row["n_cases"]), str(row["n_both"]), *figures)
    return table


def _confusion(confusion: dict[str, dict[str, int]]) -> Table:
    table = Table(title="proxy says (rows), gold says", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("")
    for name in confusion:
        table.add_column(name, justify="right")
    for name, row in confusion.items():
        table.add_row(name, *map(str, row.values()))
    return table
