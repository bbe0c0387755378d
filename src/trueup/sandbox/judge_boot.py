"""The first lines of the judge's process, run by path: `python judge_boot.py SYS_PATH_AS_JSON`.

Importing `trueup` brings in SciPy, a second of CPU time and a hundred megabytes that comparing values does not
need. So both packages stand as empty shells here whose submodules can be imported, and fill themselves only when
somebody (a task's own check) asks them for a name.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from typing import Any


def shell(name: str, folder: str) -> None:
    """Put an empty package into `sys.modules` that runs its `__init__` when first asked for a name."""
    init = os.path.join(folder, "__init__.py")  # noqa: PTH118 - this file is to be light
    spec = importlib.util.spec_from_file_location(name, init, submodule_search_locations=[folder])
    if spec is None or spec.loader is None:
        raise ImportError(f"no package {name} in {folder}")
    loader = spec.loader
    module = importlib.util.module_from_spec(spec)

    def fill(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        module.__dict__.pop("__getattr__", None)
        loader.exec_module(module)
        return getattr(module, attribute)

    module.__dict__["__getattr__"] = fill
    sys.modules[name] = module


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - as above
    sys.path[:] = json.loads(sys.argv[1])
    shell("trueup", os.path.dirname(here))  # noqa: PTH120
    shell("trueup.sandbox", here)
    importlib.import_module("trueup.sandbox.judging").serve_verdicts()
