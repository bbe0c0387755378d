"""A group of commands that are imported when they are called: `trueup --help` must not load an experiment."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, TypeAlias

import click

__all__ = ["Commands", "LazyGroup"]

Commands: TypeAlias = Mapping[str, tuple[str, str, str]]
"""Name → (module, attribute, one line for the list of commands), in the order of the list."""


class LazyGroup(click.Group):
    """A click group over such a table."""

    def __init__(self, *args: Any, table: Commands, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return None
        module, attribute, _ = self._table[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in self._table.items()])
