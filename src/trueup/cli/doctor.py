"""`trueup doctor`: what works on this machine, and the remedy for what does not."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
import sys
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from trueup import __version__
from trueup.sandbox import probe
from trueup.sandbox.cgroup import make_group

__all__ = ["doctor"]

_FOR_DEVELOPERS = ("dev", "docs")


def _extras() -> dict[str, dict[str, Any]]:
    """Every extra of the installed package, and which of its requirements are missing."""
    found: dict[str, dict[str, Any]] = {}
    for line in importlib.metadata.requires("trueup") or ():
        match = re.match(r"([\w.-]+)[^;]*;.*extra == ['\"]([\w-]+)['\"]", line)
        if match is None or match[2] in _FOR_DEVELOPERS:
            continue
        package, extra = match.groups()
        entry = found.setdefault(extra, {"installed": True, "missing": []})
        try:
            importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            entry["missing"].append(package)
            entry |= {"installed": False, "remedy": f'pip install "trueup[{extra}]"'}
    return found


def _control_groups() -> bool:
    """Whether a control group can be made per slot here."""
    group = make_group()
    if group is None:
        return False
    group.close()
    return True


def examine() -> dict[str, Any]:
    """What `trueup doctor --json` prints."""
    reports = probe()
    working = [r.name for r in reports if r.works]
    return {
        "trueup": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
        "sandbox": {
            "backend": working[0] if working else None,
            "control_groups": _control_groups(),
            "backends": [
                {"name": r.name, "works": r.works, "what": r.what, "why": r.why, "remedy": r.remedy}
                for r in reports
            ],
        },
        "extras": _extras(),
    }


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def doctor(as_json: bool) -> int:
    """Say what works on this machine and what to do about the rest.

    Every sandbox backend is tried with a real run, best first; the first that works is the one that
    `Sandbox()` takes. Exit code 0 when a backend works, 3 when none does.
    """
    found = examine()
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        _print(found)
    return 0 if found["sandbox"]["backend"] else 3


def _print(found: dict[str, Any]) -> None:
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    console.print(f"trueup {found['trueup']}, Python {found['python']}, {found['machine']}")
    chosen = found["sandbox"]["backend"]
    console.print(
        f"\nsandbox: {f'[green]{chosen}[/]' if chosen else '[red]nothing can isolate a candidate here[/]'}"
    )
    for backend in found["sandbox"]["backends"]:
        mark = "[green]works[/]" if backend["works"] else "[red]no[/]   "
        console.print(f"  {backend['name']:<9} {mark}  {backend['what']}")
        if not backend["works"]:
            console.print(f"            why: {escape(backend['why'])}")
            console.print(f"            do:  {escape(backend['remedy'])}")
    groups = (
        "one per slot"
        if found["sandbox"]["control_groups"]
        else "none can be made here; limits per process hold"
    )
    console.print(f"  control groups: {groups}")
    console.print("\nextras:")
    for name, extra in found["extras"].items():
        note = "[green]installed[/]" if extra["installed"] else escape(f"not installed; {extra['remedy']}")
        console.print(f"  {name:<12} {note}")
