"""`trueup bench`: the measurements behind the documentation's tables, each in a module of its own."""

from __future__ import annotations

import click

from trueup.cli.lazy import Commands, LazyGroup

__all__ = ["bench"]

_BENCHES: Commands = {
    "estimators": ("trueup.cli.bench_estimators", "estimators", "which estimator wins where"),
    "slices": ("trueup.cli.bench_slices", "slices", "where calibration by slices helps and costs"),
    "guard": ("trueup.cli.bench_guard", "guard", "what the guard is worth when something goes wrong"),
    "sandbox": ("trueup.cli.bench_sandbox", "sandbox_command", "what a graded program costs, per backend"),
    "alarms": ("trueup.cli.bench_alarms", "alarms_command", "false alarms and delays of every alarm"),
}


@click.group(cls=LazyGroup, table=_BENCHES)
def bench() -> None:
    """Measure what the documentation states."""
