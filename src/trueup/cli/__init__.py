"""The `trueup` command. Each command lives in a module of its own and is imported only when it is called.

Exit codes: 0 done, 1 the answer is "no" (infeasible, gate not passed), 2 bad arguments or bad input,
3 could not tell (unknown, infrastructure), 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from trueup import __version__
from trueup.errors import InfrastructureError, ProgrammerError

__all__ = ["main"]

# name -> (module, attribute, one line for the list of commands). A dotted name is a command of a group.
_COMMANDS: dict[str, tuple[str, str, str]] = {
    "verify": ("trueup.cli.verify", "verify", "judge a plan against a task's hard constraints"),
    "trips": ("trueup.cli.trips", "trips", "make travel-planning tasks; prove that their checks hold"),
    "filter": ("trueup.cli.filter", "filter_rollouts", "keep the rollouts worth training on"),
}


class _LazyGroup(click.Group):
    """A group that knows its commands by name and imports a command's module when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in _COMMANDS.items()])


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trueup")
def cli() -> None:
    """The reward layer for RL post-training of agents.

    Train mostly on a cheap proxy, keep it honest with a few real executions (anchors), and know when it lies.
    Start with `trueup demo`; `trueup COMMAND --help` explains each command.
    """


def main(args: list[str] | None = None) -> Any:
    """Entry point: one clear line on standard error for whatever a person can mend, and an exit code."""
    try:
        code = cli.main(args=args, prog_name="trueup", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.NoArgsIsHelpError as help_wanted:
        click.echo(help_wanted.format_message())
        sys.exit(2)
    except click.ClickException as error:
        click.echo(f"trueup: {error.format_message()}", err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("trueup: interrupted", err=True)
        sys.exit(130)
    except ProgrammerError as error:
        click.echo(f"trueup: {error}", err=True)
        sys.exit(2)
    except InfrastructureError as error:
        click.echo(f"trueup: {error}", err=True)
        sys.exit(3)
