"""`trueup gate`: may the candidate replace the baseline?"""

from __future__ import annotations

import json
from pathlib import Path

import click

from trueup.cli.rollouts import read_rollouts
from trueup.errors import DataError

__all__ = ["gate_command"]


@click.command("gate")
@click.option("--baseline", type=click.Path(path_type=Path), required=True, help="Log of the present policy.")
@click.option("--candidate", type=click.Path(path_type=Path), required=True, help="Log of the new one.")
@click.option(
    "--compare",
    type=click.Choice(("gold", "feasible")),
    default="gold",
    show_default=True,
    help="Mean gold, or the share of rollouts that obey every hard constraint.",
)
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
    compare: str,
    margin: float,
    alpha: float,
    gold_range: tuple[float, float],
    seed: int,
    as_json: bool,
) -> int:
    """Non-inferiority on held-out gold, by a sequential test: for CI.

    Both logs (JSONL, CSV, Parquet or run folder) need the columns group and gold; groups with the same name are
    compared with each other. Run it as often as groups come in: looking early costs nothing. With --compare feasible
    the logs are rollouts as `trueup filter` reads them (JSON lines with `checks`), each with a `group`; rollouts
    with an unknown verdict are left out.

    \b
    Exit codes: 0 passed (not worse by the margin), 1 failed (worse by the margin),
                3 cannot tell yet, 2 wrong input.
    """
    from trueup.monitor import gate

    read = _feasible if compare == "feasible" else _gold
    low, high = (0.0, 1.0) if compare == "feasible" else gold_range
    result = gate(read(baseline), read(candidate), margin=margin, alpha=alpha, low=low, high=high, seed=seed)
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


def _gold(path: Path) -> dict[str, float]:
    from trueup.monitor import load_table
    from trueup.monitor.gate import group_means

    return group_means(load_table(path, needed=("group", "gold")), str(path))


def _feasible(path: Path) -> dict[str, float]:
    from trueup.rewards.filter import feasible_by_group, read_checks

    _, rows = read_rollouts(path)
    for number, row in rows:
        if "group" not in row:
            raise DataError(
                f"{path}, line {number} must name its `group`, got none. Policies are compared group by group. "
                "Give each rollout the name of its prompt."
            )
    reports = [read_checks(row, f"{path}, line {number}") for number, row in rows]
    n_unknown = sum(report.feasible is None for report in reports)
    if n_unknown:
        click.echo(
            f"{path}: {n_unknown} of {len(rows)} rollouts have an unknown verdict and were left out", err=True
        )
    shares = feasible_by_group(reports, [str(row["group"]) for _, row in rows])
    if not shares:
        raise DataError(
            f"{path} must have a rollout whose hard checks are decided, got none. Nothing can be compared. "
            "Verify the rollouts first."
        )
    return shares
