"""`trueup bench`: the measurements behind the documentation's tables, each in a module of its own."""

from __future__ import annotations

import importlib

import click

__all__ = ["bench_command"]

# name -> (module, attribute, one line)
_BENCHES: dict[str, tuple[str, str, str]] = {
    "alarms": ("trueup.cli.bench_alarms", "alarms_command", "false alarms and delays of every alarm"),
}


class _LazyBenches(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_BENCHES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _BENCHES:
            return None
        module, attribute, _ = _BENCHES[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Benchmarks"):
            formatter.write_dl([(name, line) for name, (_, _, line) in _BENCHES.items()])


@click.group("bench", cls=_LazyBenches)
def bench_command() -> None:
    """Measure what the documentation states."""
