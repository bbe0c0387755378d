"""Which files of this machine a candidate may see: the interpreter and what it needs, nothing else.

Binding all of /usr, or the trainer's virtual environment, would hand the candidate whatever data lie there,
and answers may be among them. So the list is found by asking a fresh interpreter: its executable, its
standard library (without site-packages), and the shared libraries that were mapped once every extension
module of the standard library had been imported.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trueup.errors import ConfigError, SandboxUnavailable

__all__ = ["GUEST_DIR", "Layout", "find_layout", "site_of"]

GUEST_DIR = Path(__file__).parent / "guest"

_PROBE = """
import importlib, json, os, sys, sysconfig
paths = sysconfig.get_paths()
useless = {"_tkinter", "readline", "nis", "_ssl", "_curses", "_curses_panel", "_dbm", "_gdbm",
           "ossaudiodev", "_uuid", "_crypt", "spwd", "syslog"}
dynload = [p for p in sys.path if p.endswith("lib-dynload")]
for folder in dynload:
    for name in sorted(os.listdir(folder)):
        module = name.split(".")[0]
        if name.endswith(".so") and "test" not in module and module not in useless:
            try: importlib.import_module(module)
            except Exception: pass
for name in sys.argv[2:]:
    sys.path.append(sys.argv[1]) if sys.argv[1] not in sys.path else None
    importlib.import_module(name)
maps = {line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if line.count("/")}
print(json.dumps({"stdlib": paths["stdlib"], "platstdlib": paths["platstdlib"], "dynload": dynload,
                  "maps": sorted(m for m in maps if os.path.isfile(m) and "gconv" not in m)}))
"""


@dataclass(frozen=True)
class Layout:
    """Files and directories to show read-only, by the path at which they must appear."""

    python: str  # path of the interpreter inside
    binds: tuple[tuple[str, str], ...]  # (where it lies, where it must appear)
    links: tuple[tuple[str, str], ...]  # (target, path) of symbolic links to recreate
    hidden: tuple[str, ...]  # directories inside the binds that must look empty
    packages: tuple[str, ...]  # directories to put on sys.path


@functools.lru_cache(maxsize=8)
def find_layout(packages: tuple[str, ...] = ()) -> Layout:
    """The layout of this interpreter, with the named top-level `packages` of its site-packages.

    Raises `ConfigError` for a package that is not installed, `SandboxUnavailable` if the interpreter cannot
    be asked.
    """
    import json

    python = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    sites = site_of(packages)
    command = [python, "-s", "-P", "-B", "-S", "-c", _PROBE, sites[0] if sites else "", *packages]
    done = subprocess.run(command, capture_output=True, text=True, env={}, timeout=60, check=False)
    if done.returncode != 0:
        raise SandboxUnavailable(
            f"The interpreter {python} could not list what it needs to run: {done.stderr.strip()[-300:]}. "
            "No sandbox can be built around it. Run trueup with a complete Python installation."
        )
    found = json.loads(done.stdout)
    stdlib = [found["stdlib"], found["platstdlib"], *found["dynload"]]
    roots = _outermost(stdlib)
    shown = [(python, python), *((r, r) for r in roots)]
    for site in sites:
        shown += [(str(p), str(p)) for p in _package_paths(Path(site), packages)]
    links = []
    for path in found["maps"]:
        if not any(path == where or path.startswith(where + "/") for where, _ in shown):
            shown.append((path, path))
            links += [(path, name) for name in _library_names(Path(path))]
    tops = [Path("/", name) for name in ("lib", "lib64", "lib32", "bin", "sbin")]
    hidden = [Path(root, name) for root in roots for name in ("site-packages", "dist-packages")]
    return Layout(
        python=python,
        binds=tuple(dict.fromkeys(shown)),
        links=tuple([(str(top.readlink()), str(top)) for top in tops if top.is_symlink()] + links),
        hidden=tuple(str(path) for path in hidden if path.is_dir()),
        packages=tuple(sites),
    )


def _outermost(paths: Sequence[str]) -> list[str]:
    kept: list[str] = []
    for path in sorted({os.path.realpath(p) for p in paths if Path(p).is_dir()}):
        if not any(path.startswith(k + "/") for k in kept):
            kept.append(path)
    return kept


def _library_names(library: Path) -> list[str]:
    """Other names of a library: loaders ask by soname, executables by the loader's full path."""
    stem = library.name.split(".so")[0]
    places = [library.parent]
    if stem.startswith("ld-"):
        places += [Path("/lib64").resolve(), Path("/lib").resolve()]
    names: list[str] = []
    for place in places:
        names += [
            str(other) for other in sorted(place.glob(f"{stem}*")) if other.resolve() == library != other
        ]
    return list(dict.fromkeys(names))


def site_of(packages: Sequence[str]) -> list[str]:
    """The directory on sys.path that holds the packages; all must share one."""
    import importlib.util

    sites = []
    for name in packages:
        spec = importlib.util.find_spec(name) if name.isidentifier() else None
        if spec is None or spec.origin is None:
            raise ConfigError(
                f"Sandbox packages must be importable top-level packages, got {name!r}. "
                "Every candidate that imports it would fail. Install it, or leave it out."
            )
        origin = Path(spec.origin)
        sites.append(str(origin.parent.parent if origin.name == "__init__.py" else origin.parent))
    return list(dict.fromkeys(sites))


def _package_paths(site: Path, packages: Sequence[str]) -> list[Path]:
    """The packages' own files in `site`, with the shared libraries that wheels keep beside them."""
    wanted = []
    for name in packages:
        wanted += [site / name, site / f"{name}.libs", site / f"{name}.py"]
    return [p for p in wanted if p.exists()]
