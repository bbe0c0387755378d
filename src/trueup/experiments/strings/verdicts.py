"""Verdicts of evaluations, remembered over arms and interrupts. Training never reads them: there every execution runs.

The programs of this task read no clock and draw no numbers, so a verdict holds for good. A line of the file is one
verdict; a line that was cut by a kill is left out when the file is read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trueup.sandbox import Sandbox
from trueup.tasks.strings import StringTask, run_gold
from trueup.types import FloatArray

__all__ = ["Verdicts"]

_BLOCK = 64  # programs between two writes


class Verdicts:
    """Gold by task and body, in `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[tuple[str, str], float] = {}
        self.n_executions = 0
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    task, body, gold = json.loads(line)
                except ValueError:
                    continue
                self._known[task, body] = float(gold)

    def grade(
        self, sandbox: Sandbox, tasks: Sequence[StringTask], bodies: Sequence[Sequence[str]]
    ) -> list[FloatArray]:
        """Gold of every body of every task; NaN where the sandbox had no answer, which is not remembered."""
        wanted = [(task, body) for task, group in zip(tasks, bodies, strict=True) for body in group]
        new = list({(t.id, b): (t, b) for t, b in wanted if (t.id, b) not in self._known}.values())
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            if self._path.stat().st_size:
                file.write("\n")  # ends a line that a kill may have cut; empty lines are left out
            for start in range(0, len(new), _BLOCK):
                block = new[start : start + _BLOCK]
                grades = run_gold(sandbox, [t for t, _ in block], [b for _, b in block])
                self.n_executions += len(block)
                for (task, body), grade in zip(block, grades, strict=True):
                    if grade.score.value is not None:
                        self._known[task.id, body] = grade.score.value
                        file.write(json.dumps([task.id, body, grade.score.value]) + "\n")
                file.flush()
        unknown = float("nan")
        return [
            np.array([self._known.get((task.id, body), unknown) for body in group])
            for task, group in zip(tasks, bodies, strict=True)
        ]
