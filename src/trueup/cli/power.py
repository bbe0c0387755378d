"""`trueup power`: how many anchors it takes to see something."""

from __future__ import annotations

import json
import math
from typing import Any

import click

__all__ = ["power_command"]


@click.command("power")
@click.option("--prevalence", type=float, required=True, help="Share of rollouts that exploit the proxy.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of seeing at least one.")
@click.option("--anchor-fraction", type=float, help="Share of rollouts that gold is run for.")
@click.option("--groups", type=int, help="Groups a step.")
@click.option("--group-size", type=int, help="Rollouts a group.")
@click.option(
    "--correlation", default=0.0, show_default=True, help="Of the exploit within a group, for whole groups."
)
@click.option(
    "--shift", type=float, help="Also: groups until a shift of the mean residual by so much is seen."
)
@click.option(
    "--sd", default=0.25, show_default=True, help="Standard deviation of group-mean residuals, for --shift."
)
@click.option("--alpha", default=0.01, show_default=True, help="False-alarm level, for --shift.")
@click.option(
    "--horizon", default=10_000, show_default=True, help="Groups over which alpha holds, for --shift."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON alone on standard output.")
def power_command(
    prevalence: float,
    confidence: float,
    anchor_fraction: float | None,
    groups: int | None,
    group_size: int | None,
    correlation: float,
    shift: float | None,
    sd: float,
    alpha: float,
    horizon: int,
    as_json: bool,
) -> None:
    """Anchors needed to see an exploit of a given prevalence at least once.

    `anchors` is the number of random rollouts scored by gold, `rollouts` how many the policy must make for
    that at the anchor fraction, `steps` how many steps that takes. What was not given stays unknown (null).

    \b
    trueup power --prevalence 0.01 --confidence 0.95
    trueup power --prevalence 0.01 --anchor-fraction 0.1 --groups 16 --group-size 8
    trueup power --prevalence 0.01 --shift 0.1 --anchor-fraction 0.1
    """
    from trueup.errors import ConfigError
    from trueup.stats import power

    if anchor_fraction is not None and not 0 < anchor_fraction <= 1:
        raise ConfigError(
            f"--anchor-fraction must lie in (0, 1], got {anchor_fraction}. Nothing would be seen. Give for "
            "instance 0.1."
        )
    for name, value in (("--groups", groups), ("--group-size", group_size)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}. A step would be empty.")
    anchors = power.anchors_to_see(prevalence, confidence)
    if correlation:
        if group_size is None:
            raise ConfigError("--correlation needs --group-size. Within which groups would it hold?")
        anchors = power.groups_to_see(prevalence, confidence, group_size, correlation) * group_size
    rollouts = None if anchor_fraction is None else math.ceil(anchors / anchor_fraction - 1e-9)
    steps = None
    if rollouts is not None and groups is not None and group_size is not None:
        steps = math.ceil(rollouts / (groups * group_size))
    out: dict[str, Any] = {"anchors": anchors, "rollouts": rollouts, "steps": steps}
    if shift is not None:
        needed = power.units_to_see_shift(shift, sd, alpha=alpha, horizon=horizon)
        out["groups_to_see_shift"] = math.ceil(needed) if math.isfinite(needed) else None
    if as_json:
        click.echo(json.dumps(out))
        return
    click.echo(f"To see an exploit of prevalence {prevalence:g} at least once with {confidence:.0%}:")
    click.echo(f"  anchors   {anchors:,}" + ("" if correlation else "  (independent random rollouts)"))
    if group_size:
        each = power.groups_to_see(prevalence, confidence, group_size, correlation)
        click.echo(
            f"  or winner checks of {each:,} groups of {group_size}: gold for the proxy's favourite alone"
        )
    click.echo(f"  rollouts  {_or_unknown(rollouts, '--anchor-fraction')}")
    click.echo(f"  steps     {_or_unknown(steps, '--anchor-fraction, --groups and --group-size')}")
    if shift is not None:
        n = out["groups_to_see_shift"]
        seen = "never: it is within the band" if n is None else f"about {n:,} anchored groups"
        click.echo(f"A shift of the mean residual by {shift:g} is seen after {seen}.")


def _or_unknown(value: int | None, needs: str) -> str:
    return f"unknown without {needs}" if value is None else f"{value:,}"
