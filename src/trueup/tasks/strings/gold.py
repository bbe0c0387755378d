"""Gold: the share of hidden inputs on which the program agrees with the reference, found out by running it.

Expected values stay here; the sandboxed process sees source and inputs. The cost of an execution can be raised
(`delay_s`) to stand for tests that take longer than these do: the delay is waited out per execution, in the
sandbox's own slots, so that it overlaps with whatever else runs, as a real one would.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from trueup.sandbox import Grade, Limits, Sandbox
from trueup.tasks.strings.grammar import source_of
from trueup.tasks.strings.tasks import StringTask
from trueup.types import Rollout, Score

__all__ = ["LIMITS", "SandboxGold", "grade_job", "run_gold"]

LIMITS = Limits(cpu_s=1.0, wall_s=10.0, memory_mb=256)


def grade_job(task: StringTask, body: str) -> dict[str, Any]:
    """Arguments of `Sandbox.grade_calls` for one program."""
    return {
        "source": source_of(body),
        "inputs": [[x] for x in task.hidden_inputs],
        "expected": list(task.hidden_outputs),
        "limits": LIMITS,
    }


def run_gold(
    sandbox: Sandbox, tasks: Sequence[StringTask], bodies: Sequence[str], delay_s: float = 0.0
) -> list[Grade]:
    """Grade every body against its task; one execution each."""
    jobs = [grade_job(task, body) for task, body in zip(tasks, bodies, strict=True)]
    if delay_s <= 0.0:
        return sandbox.grade_many(jobs)

    def slow(job: dict[str, Any]) -> Grade:
        time.sleep(delay_s)
        return sandbox.grade_calls(**job)

    sandbox.start()
    with ThreadPoolExecutor(sandbox.slots, thread_name_prefix="trueup-gold") as threads:
        return list(threads.map(slow, jobs))


class SandboxGold:
    """The gold scorer. Every call runs what it is given; nothing is remembered between calls.

    rollouts: `task` is a `StringTask`, `completion` the body as the policy wrote it.
    """

    version = "strings-1"

    def __init__(self, sandbox: Sandbox, delay_s: float = 0.0) -> None:
        self._sandbox = sandbox
        self._delay_s = delay_s
        self.n_executions = 0

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        grades = run_gold(
            self._sandbox, [r.task for r in rollouts], [r.completion for r in rollouts], self._delay_s
        )
        self.n_executions += len(grades)
        return [grade.score for grade in grades]
