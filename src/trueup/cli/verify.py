"""`trueup verify`: one plan against one task, as a table or as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from trueup.cli.tables import wide_console
from trueup.errors import DataError
from trueup.rewards import gate
from trueup.types import Score
from trueup.verifiers.base import Report
from trueup.verifiers.plan import PlanVerifier

__all__ = ["verify"]

_COLOUR = {"pass": "green", "fail": "red", "unknown": "yellow", "error": "magenta", "not_applicable": "dim"}


@click.command()
@click.argument("task", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("plan", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON alone on standard output.")
@click.option(
    "--validate", is_flag=True, help="First let the task prove itself on its own gold and bad plans."
)
@click.option(
    "--group-size", default=8, show_default=True, help="Rollouts per prompt, for the partial credit."
)
@click.pass_context
def verify(
    ctx: click.Context, task: Path, plan: Path, as_json: bool, validate: bool, group_size: int
) -> None:
    """Judge PLAN (JSON, or text with one fenced JSON block) against TASK (JSON or YAML).

    Every constraint answers pass, fail, not_applicable, unknown or error, with its margin and the offending
    items. The reward is what verifiers alone would pay: 1 for a feasible plan, partial credit for an
    infeasible one, none when a hard check could not tell.

    Exit codes: 0 feasible, 1 infeasible, 3 unknown or error, 2 bad input. A plan that cannot be parsed is
    the policy's answer and therefore infeasible; a task that cannot be parsed is bad input.
    """
    verifier = PlanVerifier.load(task)
    if validate:
        verifier.require_valid()
    try:
        answer = plan.read_bytes()
    except OSError as error:
        raise DataError(f"{plan} must be readable, got {error}. Nothing was judged.") from None
    report = verifier.verify(_as_text(answer))
    reward = gate(report, group_size=group_size)
    if as_json:
        checks = report.to_json()
        click.echo(
            json.dumps({"feasible": checks["feasible"], "reward": reward.value, "checks": checks["checks"]})
        )
    else:
        _print(report, reward)
    ctx.exit({True: 0, False: 1, None: 3}[report.feasible])


def _as_text(answer: bytes) -> str | bytes:
    """Text where it is text, so that a fenced block is found; the verifier judges anything else as it is."""
    try:
        return answer.decode("utf-8")
    except UnicodeDecodeError:
        return answer


def _print(report: Report, reward: Score) -> None:
    table = Table("check", "verdict", "margin", "witness", box=None, pad_edge=False)
    for r in report.results:
        margin = "" if r.margin is None else f"{r.margin:+g} {r.unit}"
        style = _COLOUR[str(r.verdict)]
        # The witness quotes the plan, and a plan may contain what rich would read as markup.
        note = escape(", ".join(r.witness[:4]) or r.detail)
        table.add_row(r.name + ("" if r.hard else " (soft)"), f"[{style}]{r.verdict}[/]", margin, note)
    console = wide_console()
    console.print(table)
    word = {True: "feasible", False: "infeasible", None: "cannot be told"}[report.feasible]
    value = "none" if reward.value is None else f"{reward.value:.4f}"
    console.print(f"\n{word}; reward {value}")
