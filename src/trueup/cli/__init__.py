"""The `trueup` command. Each command lives in a module of its own and is imported only when it is called.

Exit codes: 0 done, 1 the answer is "no" (infeasible, gate not passed), 2 bad arguments or bad input,
3 could not tell (unknown, infrastructure), 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from trueup import __version__
from trueup.cli.lazy import Commands, LazyGroup
from trueup.errors import InfrastructureError, ProgrammerError

__all__ = ["main"]

_COMMANDS: Commands = {
    "demo": (
        "trueup.cli.demo",
        "demo",
        "the bundled experiment: seven ways to use a little gold, with a report",
    ),
    "audit": ("trueup.cli.audit", "audit_command", "where a log's proxy can be trusted, with the evidence"),
    "power": ("trueup.cli.power", "power_command", "how many anchors it takes to see an exploit"),
    "gate": ("trueup.cli.gate", "gate_command", "may a candidate replace the baseline? an exit code for CI"),
    "export": ("trueup.cli.export", "export_command", "a run's pairs as JSONL, CSV or Parquet"),
    "verify": ("trueup.cli.verify", "verify", "judge a plan against a task's hard constraints"),
    "trips": ("trueup.cli.trips", "trips", "make travel-planning tasks; prove that their checks hold"),
    "filter": ("trueup.cli.filter", "filter_rollouts", "keep the rollouts worth training on"),
    "run": ("trueup.cli.demo_strings", "run", "the strings experiment from a configuration file"),
    "fidelity": (
        "trueup.cli.fidelity",
        "fidelity",
        "how far a log's proxy agrees with its gold, case by case",
    ),
    "bench": ("trueup.cli.bench", "bench", "the measurements behind the documentation's tables"),
    "serve": ("trueup.cli.serve", "serve", "offer this machine's services to others"),
    "doctor": ("trueup.cli.doctor", "doctor", "what works on this machine, and the remedy for what does not"),
}


@click.group(cls=LazyGroup, table=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
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
