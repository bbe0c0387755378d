"""`trueup bench sandbox`: what a graded program costs on each backend, beside its floors, in one run.

A program here is ten calls of a small function, judged. The floors are what nothing can be cheaper than
without keeping an interpreter warm: starting a bare `python3 -I -S -c pass`, and the same program in a fresh
subprocess with resource limits and no isolation.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich import box
from rich.table import Table

from trueup.cli.tables import progress_bar, wide_console
from trueup.sandbox import Limits, Sandbox, probe

__all__ = ["sandbox_command"]

_INPUTS = [[x] for x in range(10)]
_EXPECTED = [x * x + 1 for x in range(10)]


@dataclass(frozen=True)
class Row:
    """One way to run a program."""

    name: str
    runs_per_s: float
    cpu_ms: float  # of every process involved, per run
    p50_ms: float
    p95_ms: float
    n_runs: int


def _cpu_s() -> float:
    """CPU seconds of this process and of all descendants that have been waited for."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def _measure(name: str, one: Callable[[int], None], n_runs: int, slots: int) -> tuple[Row, float]:
    """Time `n_runs` of `one`, `slots` at a time."""
    taken: list[float] = []

    def timed(index: int) -> None:
        started = time.perf_counter()
        one(index)
        taken.append(time.perf_counter() - started)

    with ThreadPoolExecutor(slots) as threads:
        list(threads.map(timed, range(2 * slots)))  # starts what is started lazily
        taken.clear()
        started = time.perf_counter()
        list(threads.map(timed, range(n_runs)))
        elapsed = time.perf_counter() - started
    cuts = statistics.quantiles(taken, n=20)
    return Row(name, n_runs / elapsed, 0.0, 1e3 * statistics.median(taken), 1e3 * cuts[-1], n_runs), elapsed


def _bare(n_runs: int, slots: int) -> Row:
    def one(_: int) -> None:
        subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)

    before = _cpu_s()
    row, _ = _measure("bare interpreter start", one, n_runs, slots)
    return Row(**{**asdict(row), "cpu_ms": 1e3 * (_cpu_s() - before) / (n_runs + 2 * slots)})


def _backend(backend: str, name: str, n_runs: int, slots: int) -> Row:
    def session(n: int) -> tuple[Row | None, float]:
        """CPU of a whole session, because a zygote's children are accounted for when it has ended."""
        before, row = _cpu_s(), None
        with Sandbox(slots, backend, unsafe_no_isolation=backend == "unsafe") as sandbox:

            def one(index: int) -> None:
                source = f"def solve(x):\n    return x * x + 1  # {index}\n"
                grade = sandbox.grade_calls(source, inputs=_INPUTS, expected=_EXPECTED)
                if grade.score.value != 1.0:
                    raise click.ClickException(f"{backend} paid an honest program {grade.score.value}")

            row, _ = _measure(name, one, n, slots)
        return row, _cpu_s() - before

    _, overhead = session(2 * slots)
    row, cpu_s = session(n_runs)
    assert row is not None
    return Row(**{**asdict(row), "cpu_ms": 1e3 * max(cpu_s - overhead, 0.0) / max(n_runs - 2 * slots, 1)})


def _overshoot(n_busy: int, n_runs: int) -> dict[str, float]:
    """Milliseconds by which runs outlive their deadlines while `n_busy` processes keep the machine busy."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n_busy)]
    limits = Limits(cpu_s=0.2, wall_s=0.5)
    try:
        with Sandbox(slots=1) as sandbox:
            sandbox.run_script("pass")
            sleeps = [sandbox.run_script("import time; time.sleep(60)", limits=limits) for _ in range(n_runs)]
            loops = [sandbox.run_script("while True: pass", limits=limits) for _ in range(n_runs)]
    finally:
        for process in busy:
            process.kill()
            process.wait()
    return {
        "n_busy": n_busy,
        "wall_median_ms": 1e3 * statistics.median(r.wall_s - limits.wall_s for r in sleeps),
        "wall_max_ms": 1e3 * max(r.wall_s - limits.wall_s for r in sleeps),
        "cpu_median_ms": 1e3 * statistics.median(r.cpu_s - limits.cpu_s for r in loops),
        "cpu_max_ms": 1e3 * max(r.cpu_s - limits.cpu_s for r in loops),
    }


@click.command("sandbox")
@click.option("--runs", type=click.IntRange(min=20), default=300, show_default=True, help="Programs per row.")
@click.option("--slots", type=click.IntRange(min=1), default=None, help="Programs at a time [default: CPUs].")
@click.option(
    "--busy", type=click.IntRange(min=0), default=8, show_default=True, help="Busy processes beside."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def sandbox_command(runs: int, slots: int | None, busy: int, as_json: bool) -> None:
    """What a graded program costs on each backend, beside its floors.

    A program is ten calls of a small function, judged. CPU is that of every process involved. Slow backends
    get a tenth of the runs. The last line says by how much runs outlive their deadlines on a busy machine.
    """
    slots = slots or os.cpu_count() or 1
    few = max(20, runs // 10)
    works = [report.name for report in probe() if report.works]
    jobs: list[Callable[[], Row]] = [
        lambda: _bare(few, slots),
        lambda: _backend("unsafe", "subprocess + rlimits (unsafe)", few, slots),
    ]
    for name in reversed(works):
        n = few if name == "bwrap" else runs
        jobs.append(lambda name=name, n=n: _backend(name, name, n, slots))  # type: ignore[misc]
    rows = []
    with progress_bar() as progress:
        task = progress.add_task("backends", total=len(jobs) + 1)
        for job in jobs:
            rows.append(job())
            progress.advance(task)
        overshoot = _overshoot(busy, 5)
        progress.advance(task)
    result: dict[str, Any] = {
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}, {os.cpu_count()} CPUs",
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
        "slots": slots,
        "calls_per_program": len(_INPUTS),
        "rows": [asdict(row) for row in rows],
        "overshoot": overshoot,
    }
    if as_json:
        click.echo(json.dumps(result, indent=2))
    else:
        _print(result)


def _print(result: dict[str, Any]) -> None:
    console = wide_console()
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("one program, ten calls, judged")
    for title in ("programs/s", "CPU ms", "p50 ms", "p95 ms", "runs"):
        table.add_column(title, justify="right")
    for row in result["rows"]:
        table.add_row(
            row["name"],
            f"{row['runs_per_s']:.1f}",
            f"{row['cpu_ms']:.1f}",
            f"{row['p50_ms']:.1f}",
            f"{row['p95_ms']:.1f}",
            str(row["n_runs"]),
        )
    console.print(table)
    over = result["overshoot"]
    console.print(
        f"{result['machine']}, {result['slots']} slots, load {result['load_average']:.1f} at the end. "
        f"Beyond the deadline with {over['n_busy']} busy processes: wall {over['wall_median_ms']:.0f} ms "
        f"(at most {over['wall_max_ms']:.0f}), CPU {over['cpu_median_ms']:.0f} ms (at most {over['cpu_max_ms']:.0f})."
    )
