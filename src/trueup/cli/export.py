"""`trueup export`: a run's pairs for other tools."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["export_command"]


@click.command("export")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--format", "format_", help="jsonl, csv or parquet; default: by the suffix of OUT.")
def export_command(run: Path, out: Path, format_: str | None) -> None:
    """Write the kept rollouts of the run folder RUN to OUT: JSONL, CSV or Parquet.

    Unscored is null (an empty field in CSV), with its reason in the column beside it. `trueup audit` reads the
    result. The run may still be going; OUT appears whole or not at all.

    \b
    trueup export runs/demo pairs.parquet
    """
    from trueup.runlog import export_pairs

    n = export_pairs(run, out, format_)
    click.echo(f"{n:,} rollouts written to {out}", err=True)
