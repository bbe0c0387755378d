"""`trueup trips`: make travel-planning tasks, and show that their checks hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from trueup.cli.tables import progress_bar
from trueup.errors import DataError
from trueup.tasks.trips.world import LEVELS

__all__ = ["trips"]

_FILE: Any = click.Path(exists=True, dir_okay=False, path_type=Path)
_TABLES = ("cities", "places", "edges", "services", "rates")


@click.group()
def trips() -> None:
    """Travel-planning tasks with hard constraints and a proven best plan."""


@trips.command()
@click.option("--n", "n", default=4, show_default=True, type=click.IntRange(1), help="Number of tasks.")
@click.option("--level", default=1, show_default=True, type=click.IntRange(min(LEVELS), max(LEVELS)),
              help="1: three days, one city … 4: seven days, three cities.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Of the first task.")
@click.option(
    "--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder to fill."
)
@click.option("--effort", default=20.0, show_default=True, type=click.FloatRange(min=0, min_open=True),
              help="Solver effort per order of cities, in seconds of a quiet core.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the index as JSON alone on standard output.")
def generate(n: int, level: int, seed: int, out: Path, effort: float, as_json: bool) -> None:
    """Write tasks, their tables and an optimal plan each.

    Per task: ID.task.json (everything, with prompt and examples that prove the checks), ID.tables.json and
    ID.plan.json. index.json says of each whether the optimum is proven. Needs the extra `plans`.
    """
    from trueup.tasks.trips.generate import draw_task
    from trueup.tasks.trips.mutate import known_bad
    from trueup.verifiers.plan import PlanVerifier, TripTask

    out.mkdir(parents=True, exist_ok=True)
    index = []
    with progress_bar() as progress:
        bar = progress.add_task("solving", total=n)
        for i in range(n):
            made = draw_task(seed + i, level, effort)
            bad = known_bad(made.task, seed + i)
            raw = {**made.task.model_dump(mode="json"), "known_bad": bad}
            task = TripTask.from_dict(raw, made.task.id)
            PlanVerifier(task).require_valid()
            _write(out, task)
            index.append(
                {
                    "id": task.id,
                    "level": level,
                    "seed": seed + i,
                    "value": task.gold_value,
                    "bound": made.bound,
                    "proven": made.proven,
                    "known_bad": len(bad),
                    "solve_s": round(made.solve_s, 2),
                }
            )
            progress.advance(bar)
    (out / "index.json").write_text(json.dumps(index, indent=1) + "\n")
    if as_json:
        click.echo(json.dumps(index))
        return
    for row in index:
        proven = "proven optimal" if row["proven"] else f"bound {row['bound']:g}"
        click.echo(f"{row['id']}: value {row['value']:g}, {proven}, {row['known_bad']} known-bad plans")


def _write(out: Path, task: Any) -> None:
    data = task.model_dump(mode="json", exclude_defaults=True)
    tables = {key: data[key] for key in _TABLES if key in data}
    for kind, content in (("task", data), ("tables", tables), ("plan", task.gold)):
        (out / f"{task.id}.{kind}.json").write_text(json.dumps(content, indent=1) + "\n")


@trips.command()
@click.argument(
    "tasks", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--n", "n", default=50, show_default=True, type=click.IntRange(1), help="Mutations per check.")
@click.option("--seed", default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON alone on standard output.")
@click.pass_context
def mutations(ctx: click.Context, tasks: tuple[Path, ...], n: int, seed: int, as_json: bool) -> None:
    """Break the gold plans of TASKS on purpose and count which checks notice.

    Truth is the CP-SAT twin. Exit code 1 when a check missed a violation or flagged a sound plan.
    """
    from trueup.experiments.trips import mutation_table
    from trueup.tasks.trips.mutate import AIMS
    from trueup.verifiers.plan import load_task

    loaded = [load_task(path) for path in tasks]
    if without := [t.id for t in loaded if t.gold is None]:
        raise DataError(f"A task must carry a gold plan to be mutated, got none in {', '.join(without)}.")
    with progress_bar() as progress:
        bar = progress.add_task("mutating", total=n * len(AIMS))
        table = mutation_table(loaded, n, seed, lambda k: progress.advance(bar, k))
    if as_json:
        click.echo(json.dumps(table.to_json()))
    else:
        click.echo(table.to_text())
        click.echo(f"\n{table.compared} mutations compared, {len(table.disagreements)} disagreements")
        for line in table.disagreements[:20]:
            click.echo(line)
    ctx.exit(1 if table.disagreements or any(table.misses.values()) else 0)
