"""`trueup filter`: hard verdicts decide what may be trained on; the rest is capped, not judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from trueup.cli.rollouts import read_rollouts
from trueup.cli.tables import wide_console
from trueup.rewards.filter import Filtered, read_checks
from trueup.rewards.filter import filter_rollouts as run_filter
from trueup.verifiers.base import Report
from trueup.verifiers.plan import PlanVerifier

__all__ = ["filter_rollouts"]

_FILE: Any = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("filter")
@click.argument("rollouts", type=_FILE)
@click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="Kept rollouts.")
@click.option("--task", type=_FILE, help="Verify each `completion` against this task instead of `checks`.")
@click.option(
    "--exploit", "exploits", multiple=True, metavar="NAME=REGEX", help="A known exploit's signature."
)
@click.option("--max-per-exploit", default=0, show_default=True, help="Rollouts kept per signature.")
@click.option("--max-similar", default=2, show_default=True, help="Rollouts kept per cluster of near-copies.")
@click.option("--similarity", default=0.85, show_default=True, help="Jaccard similarity of word triples.")
@click.option("--json", "as_json", is_flag=True, help="Print the composition as JSON alone.")
def filter_rollouts(
    rollouts: Path,
    out: Path,
    task: Path | None,
    exploits: tuple[str, ...],
    max_per_exploit: int,
    max_similar: int,
    similarity: float,
    as_json: bool,
) -> None:
    """Keep the rollouts of ROLLOUTS (JSON lines) that are worth training on.

    Each line has a `completion` (text or a plan), `checks` as `trueup verify --json` prints them (or pass
    --task), and optionally a `family`. Order: a failed hard check drops a rollout, an unknown one as well;
    then near-copies and known exploits are capped. Lines are written as they came.
    """
    lines, rows = read_rollouts(rollouts)
    verifier = PlanVerifier.load(task) if task is not None else None
    reports = [_report(row, verifier, f"{rollouts}, line {n}") for n, row in rows]
    result = run_filter(
        reports,
        [_text(row.get("completion", "")) for _, row in rows],
        [str(row.get("family", "default")) for _, row in rows],
        exploits=dict(_named(e) for e in exploits),
        max_similar=max_similar,
        similarity=similarity,
        max_per_exploit=max_per_exploit,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(lines[i] + "\n" for i in result.kept), encoding="utf-8")
    if as_json:
        summary = {"n": len(rows), "kept": len(result.kept), "composition": result.composition()}
        click.echo(json.dumps({**summary, "exploits_kept": dict(result.signatures)}))
    else:
        _print(result)


def _report(row: dict[str, Any], verifier: PlanVerifier | None, where: str) -> Report:
    return verifier.verify(row.get("completion")) if verifier is not None else read_checks(row, where)


def _text(completion: Any) -> str:
    return completion if isinstance(completion, str) else json.dumps(completion)


def _named(text: str) -> tuple[str, str]:
    name, equals, pattern = text.partition("=")
    if not equals:
        raise click.BadParameter(f"write NAME=REGEX, got {text!r}", param_hint="--exploit")
    return name, pattern


def _print(result: Filtered) -> None:
    columns = ("kept", "infeasible", "unknown", "near_duplicate", "exploit")
    table = Table("family", *columns, box=None, pad_edge=False)
    for family, counts in result.composition().items():
        table.add_row(escape(family), *(str(counts.get(c, 0)) for c in columns))
    console = wide_console()
    console.print(table)
    console.print(f"\nkept {len(result.kept)} of {len(result.outcome)}")
