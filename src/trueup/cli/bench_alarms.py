"""`trueup bench alarms`: false-alarm rates and detection delays of every alarm."""

from __future__ import annotations

import json
from typing import Any

import click

__all__ = ["alarms_command"]


@click.command("alarms")
@click.option("--full", is_flag=True, help="10,000 steps × 1,000 seeds, the documentation's table (minutes).")
@click.option("--steps", type=int, help="Units of evidence a run; default 1,000.")
@click.option("--seeds", type=int, help="Runs; default 200.")
@click.option("--alpha", default=0.01, show_default=True, help="Level of every alarm over the run.")
@click.option("--seed", default=0, show_default=True, help="Of the streams.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON alone on standard output.")
def alarms_command(
    full: bool, steps: int | None, seeds: int | None, alpha: float, seed: int, as_json: bool
) -> None:
    """False alarms on stationary data, and the delay until a shift of 0.1 and of 0.2 is seen.

    Every alarm of the monitor, beside a repeated z-test and, with the extra `bench`, river's Page-Hinkley and
    ADWIN. The change comes after a quarter of the run; delays count units of evidence (anchored groups).
    """
    from rich.console import Console
    from rich.progress import Progress

    from trueup.errors import ConfigError
    from trueup.experiments import alarms

    n_steps, n_seeds = steps or (10_000 if full else 1_000), seeds or (1_000 if full else 200)
    if n_steps < 500 or n_seeds < 1 or not 0 < alpha < 1:
        raise ConfigError(
            f"--steps must be at least 500, --seeds at least 1 and --alpha in (0, 1), got {n_steps}, {n_seeds} and "
            f"{alpha}. Nothing could be measured."
        )
    with Progress(console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def advance(name: str, runs: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=3 * n_seeds)
            bar.advance(tasks[name], runs)

        result = alarms.run(n_steps=n_steps, n_seeds=n_seeds, alpha=alpha, seed=seed, progress=advance)
    if as_json:
        click.echo(json.dumps(result, allow_nan=False, indent=1))
    else:
        click.echo(table(result))


def table(result: dict[str, Any]) -> str:
    """The result as a Markdown table, as the documentation shows it."""
    lines = [
        f"{result['n_steps']:,} units × {result['n_seeds']:,} runs, α = {result['alpha']:g}, "
        f"change after {result['change_at']:,}; delays in units (median, 90 %)",
        "",
        "| alarm | false alarms | 95 % interval | shift 0.1 | shift 0.2 |",
        "|---|---|---|---|---|",
    ]
    for row in result["alarms"]:
        low, high = row["false_alarm_interval"]
        cells = [_delay(row[f"shift_{shift}"]) for shift in (0.1, 0.2)]
        lines.append(
            f"| {row['alarm']} | {row['false_alarm_rate']:.1%} | {low:.1%} – {high:.1%} | {cells[0]} | {cells[1]} |"
        )
    return "\n".join(lines + [f"left out: {line}" for line in result["left_out"]])


def _delay(d: dict[str, float | None]) -> str:
    if d["seen"] is None:
        return "every run had a false alarm before"
    if d["median_delay"] is None:
        return f"seen in {d['seen']:.0%}"
    late = "–" if d["p90_delay"] is None else f"{d['p90_delay']:.0f}"
    return f"{d['median_delay']:.0f}, {late}"
