"""`trueup audit`: what a log of scored rollouts says about its proxy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from trueup.monitor import Audit, FamilyAudit

__all__ = ["audit_command"]


@click.command("audit")
@click.argument("log", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON alone on standard output.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for audit.json and reliability plots.")
@click.option(
    "--alpha", default=0.01, show_default=True, help="Chance of any false alarm of one kind in this log."
)
@click.option("--confidence", default=0.95, show_default=True, help="Of intervals and upper bounds.")
@click.option("--horizon", type=int, help="Groups a family over which alpha holds; default: those logged.")
@click.option(
    "--exploit-limit", type=float, help="Largest accepted share of groups whose favourite is gold's worst."
)
@click.option(
    "--cost-ratio",
    default=0.05,
    show_default=True,
    help="Cost of a rollout with proxy over that of its gold.",
)
@click.option("--seed", default=0, show_default=True, help="Of the bootstrap and of thinning.")
def audit_command(
    log: Path,
    as_json: bool,
    out: Path | None,
    alpha: float,
    confidence: float,
    horizon: int | None,
    exploit_limit: float | None,
    cost_ratio: float,
    seed: int,
) -> None:
    """Say where the proxy of LOG can be trusted, and where not.

    LOG is JSONL, CSV or Parquet with one row a rollout and the columns group, family, proxy, gold, or a trueup
    run folder. Optional columns: step, kl, cost, calibrated, propensity, id. An empty proxy or gold is
    unscored. Nothing needs to have been trained with trueup.

    \b
    trueup audit rollouts.jsonl
    trueup audit runs/demo --json
    trueup audit rollouts.csv --out audit/      # audit.json with every figure, reliability plots
    """
    from trueup.monitor import MonitorConfig, audit, load_table

    config = MonitorConfig(
        alpha=alpha, confidence=confidence, horizon=horizon, exploit_limit=exploit_limit, cost_ratio=cost_ratio,
        seed=seed,
    )  # fmt: skip
    result = audit(load_table(log), config)
    if out is not None:
        _write(result, out)
    if as_json:
        click.echo(json.dumps(result.to_json(), allow_nan=False, indent=1))
    else:
        _show(result, config.confidence)


def _write(result: Audit, out: Path) -> None:
    from trueup.monitor.plots import plot_reliability

    out.mkdir(parents=True, exist_ok=True)
    (out / "audit.json").write_text(json.dumps(result.details(), allow_nan=False, indent=1), encoding="utf-8")
    plot_reliability(result, out)


def _show(result: Audit, confidence: float) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(title="Proxy against gold, within groups", title_justify="left")
    upper = f"≤ ({confidence:.0%})"
    for head in (
        "family",
        "pairs",
        "groups",
        "bias",
        "variance",
        "τ",
        "AUROC",
        "exploit",
        upper,
        "ECE → mapped",
    ):
        table.add_column(head, justify="left" if head == "family" else "right")
    shown = [*result.families.values(), *([result.overall] if len(result.families) > 1 else [])]
    for family in shown:
        table.add_row(*_row(family, escape(family.family)))
    console.print(table)
    for family in shown:
        for f in family.findings:
            evidence = ", ".join(f"{k} {_short(v)}" for k, v in f.evidence.items() if not isinstance(v, dict))
            console.print(
                f"[bold]{f.kind}[/bold] in {escape(f.family)} since step {f.since_step}: {escape(evidence)}"
            )
    r = result.recommendation
    if r.anchor:
        console.print(f"Anchor {r.fraction:.1%} of the rollouts.")
    else:
        console.print("Not ready to anchor: train on gold.")
    for name, reason in r.reasons.items():
        console.print(f"All gold for {escape(name)}: {escape(reason)}.")
    for key, value in r.first_1000_anchors.items():
        console.print(f"  first 1,000 anchors, {key.replace('_', ' ')}: {_short(value)}")
    cost = result.cost
    console.print(f"Gold was run for {cost['n_gold']:.0f} of {cost['n_rollouts']:.0f} rollouts, as logged.")
    for key in sorted(cost.keys() - {"n_gold", "n_rollouts", "gold_fraction", "gold_queries_saved"}):
        console.print(f"  {escape(key.replace('_', ' '))}: {_short(cost[key])}")
    for line in (*result.assumptions, *result.notes):
        console.print(f"  note: {escape(line)}")


def _row(f: FamilyAudit, name: str) -> list[str]:
    c = f.calibration
    return [
        name, f"{f.n_pairs}", f"{f.n_groups}", _short(f.bias), _short(f.variance), _short(f.kendall_tau),
        _short(f.auroc_within), _short(f.exploit_rate), _short(f.exploit_upper),
        "–" if c is None else f"{c.ece:.3f} → {c.ece_after:.3f}",
    ]  # fmt: skip


def _short(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_short(v) for v in value) + "]"
    return str(value)
