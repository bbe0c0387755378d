"""`trueup gate`: may the candidate replace the baseline?"""

from __future__ import annotations

import json
from pathlib import Path

import click

__all__ = ["gate_command"]


@click.command("gate")
@click.option("--baseline", type=click.Path(path_type=Path), required=True, help="Log of the present policy.")
@click.option("--candidate", type=click.Path(path_type=Path), required=True, help="Log of the new one.")
@click.option("--margin", default=0.02, show_default=True, help="How much worse it may be, in gold's unit.")
@click.option(
    "--alpha", default=0.05, show_default=True, help="Chance of a wrong pass, and of a wrong refusal."
)
@click.option(
    "--gold-range",
    type=(float, float),
    default=(0.0, 1.0),
    show_default=True,
    help="Least and greatest gold.",
)
@click.option("--seed", default=0, show_default=True, help="Of the order in which groups are compared.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON alone on standard output.")
def gate_command(
    baseline: Path,
    candidate: Path,
    margin: float,
    alpha: float,
    gold_range: tuple[float, float],
    seed: int,
    as_json: bool,
) -> int:
    """Non-inferiority on held-out gold, by a sequential test: for CI.

    Both logs (JSONL, CSV, Parquet or run folder) need the columns group and gold; groups with the same name are
    compared with each other. Run it as often as groups come in: looking early costs nothing.

    \b
    Exit codes: 0 passed (not worse by the margin), 1 failed (worse by the margin),
                3 cannot tell yet, 2 wrong input.
    """
    from trueup.monitor import gate, load_table
    from trueup.monitor.gate import group_means

    golds = [
        group_means(load_table(path, needed=("group", "gold")), str(path)) for path in (baseline, candidate)
    ]
    low, high = gold_range
    result = gate(*golds, margin=margin, alpha=alpha, low=low, high=high, seed=seed)
    if as_json:
        click.echo(json.dumps(result.to_json(), allow_nan=False, indent=1))
    else:
        how = "the same groups in both" if result.paired else "different groups: unpaired"
        words = {"passed": "passed", "failed": "failed", "undecided": "cannot tell yet"}
        click.echo(
            f"{words[result.verdict]}: candidate − baseline {result.difference:+.4f}, "
            f"{1 - alpha:.0%} interval [{result.interval[0]:+.4f}, {result.interval[1]:+.4f}], margin {margin:g}"
        )
        decided = "" if result.decided_after is None else f", decided after {result.decided_after}"
        click.echo(f"{result.n_groups} groups ({how}){decided}")
    return result.exit_code
