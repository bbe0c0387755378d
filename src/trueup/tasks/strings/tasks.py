"""Tasks drawn from the grammar, and sets of them that share nothing.

Two descriptions can ask for one function ("reverse it, then turn it around, then …"), so sets are kept apart by
*behaviour*: a task's signature is what it returns for a fixed list of inputs, and no signature occurs in two sets.
A task is refused when one of its operations could be left out without a difference on its hidden inputs: a shorter
program would pass, and the description's length would say nothing about its difficulty.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from trueup.errors import ConfigError
from trueup.tasks.strings.grammar import Call, body_of, draw_call, draw_input, operations_of

__all__ = ["SetSizes", "StringTask", "TaskSets", "draw_task", "draw_task_sets"]

TRAIN_FAMILIES = ("letters", "slices", "words", "numbers")
HELD_OUT_FAMILIES = ("mixed",)

_N_PROBES = 24


@dataclass(frozen=True)
class StringTask:
    """A chain of operations to be written as a program. Everything else follows from it and `seed`."""

    family: str
    calls: tuple[Call, ...]
    seed: int
    n_examples: int = 0
    """Pairs of input and output shown in the specification, beside or instead of the description."""
    describe: bool = True
    n_hidden: int = 10
    """Hidden inputs that gold is the share of."""

    @property
    def id(self) -> str:
        return f"{self.family}:{'+'.join(call.key for call in self.calls)}:{self.seed}"

    @property
    def depth(self) -> int:
        return len(self.calls)

    def expected(self, x: Any) -> Any:
        """What the right program returns for x; computed here, never in the sandbox."""
        for call in self.calls:
            x = call(x)
        return x

    @property
    def reference(self) -> str:
        """The body of a right program."""
        return body_of(self.calls)

    @cached_property
    def prompt(self) -> str:
        """The specification as the policy reads it."""
        rng = np.random.default_rng([self.seed, 1])
        kind = "list" if self.family == "numbers" else "text"
        lines = (
            [f"{kind}: " + ", then ".join(call.phrase(rng) for call in self.calls)] if self.describe else []
        )
        shown = self._draw(rng, self.n_examples)
        lines += [f"{json.dumps(x)} -> {json.dumps(self.expected(x))}" for x in shown]
        return "\n".join(lines) + "\n"

    @cached_property
    def hidden_inputs(self) -> tuple[Any, ...]:
        return tuple(self._draw(np.random.default_rng([self.seed, 2]), self.n_hidden))

    @cached_property
    def hidden_outputs(self) -> tuple[Any, ...]:
        return tuple(self.expected(x) for x in self.hidden_inputs)

    def _draw(self, rng: np.random.Generator, n: int) -> list[Any]:
        """n inputs, of which the first two are never empty."""
        drawn: list[Any] = []
        while len(drawn) < n:
            x = draw_input(rng, self.family)
            if x or len(drawn) >= 2:
                drawn.append(x)
        return drawn

    @cached_property
    def signature(self) -> str:
        """Equal for tasks that ask for one function, as far as a fixed list of inputs can tell."""
        kind = "numbers" if self.family == "numbers" else "mixed"
        rng = np.random.default_rng(20)
        outputs = [self.expected(draw_input(rng, kind)) for _ in range(_N_PROBES)]
        return hashlib.sha256(json.dumps(outputs).encode()).hexdigest()[:16]

    def agrees(self, calls: tuple[Call, ...]) -> bool:
        """Whether another chain gives the same on all hidden inputs."""
        other = StringTask(self.family, calls, self.seed)
        return all(
            other.expected(x) == y for x, y in zip(self.hidden_inputs, self.hidden_outputs, strict=True)
        )

    @property
    def is_tight(self) -> bool:
        """Whether every operation is needed on the hidden inputs."""
        return not any(self.agrees(self.calls[:i] + self.calls[i + 1 :]) for i in range(self.depth))


def draw_task(
    rng: np.random.Generator, family: str, depth: int, n_examples: int = 0, describe: bool = True
) -> StringTask:
    """A tight task of `depth` operations. A `mixed` one takes them from at least two families."""
    operations = operations_of(family)
    while True:
        chosen = [operations[i] for i in rng.integers(len(operations), size=depth)]
        if family == "mixed" and depth > 1 and len({op.family for op in chosen}) < 2:
            continue
        calls = tuple(draw_call(rng, op) for op in chosen)
        task = StringTask(family, calls, int(rng.integers(2**31)), n_examples, describe)
        if task.is_tight:
            return task


@dataclass(frozen=True, slots=True)
class SetSizes:
    """Tasks per set. Held out: tasks of the training families, and of families that training never sees."""

    train: int = 240
    validation: int = 40
    held_out: int = 48
    held_out_families: int = 24
    depths: tuple[int, ...] = (2, 3)

    def __post_init__(self) -> None:
        if min(self.train, self.validation, self.held_out, self.held_out_families) < 1 or not self.depths:
            raise ConfigError(
                f"Every set must hold at least one task, got {self}. Nothing could be measured on it. Enlarge it."
            )


@dataclass(frozen=True, slots=True)
class TaskSets:
    """Disjoint by behaviour; `is_reserved` says which functions no training data may contain."""

    train: tuple[StringTask, ...]
    validation: tuple[StringTask, ...]
    held_out: tuple[StringTask, ...]
    reserved: frozenset[str] = field(repr=False)

    def is_reserved(self, task: StringTask) -> bool:
        return task.signature in self.reserved


def draw_task_sets(
    seed: int, sizes: SetSizes | None = None, n_examples: int = 0, describe: bool = True
) -> TaskSets:
    """Train, validation and held-out tasks: a pure function of its arguments."""
    sizes = sizes or SetSizes()
    rng = np.random.default_rng([seed, 7])
    seen: set[str] = set()

    def fill(n: int, families: tuple[str, ...]) -> tuple[StringTask, ...]:
        tasks: list[StringTask] = []
        while len(tasks) < n:
            depth = sizes.depths[int(rng.integers(len(sizes.depths)))]
            task = draw_task(rng, families[len(tasks) % len(families)], depth, n_examples, describe)
            if task.signature not in seen:
                seen.add(task.signature)
                tasks.append(task)
        return tuple(tasks)

    held_out = fill(sizes.held_out, TRAIN_FAMILIES) + fill(sizes.held_out_families, HELD_OUT_FAMILIES)
    validation = fill(sizes.validation, TRAIN_FAMILIES)
    reserved = frozenset(seen)
    return TaskSets(fill(sizes.train, TRAIN_FAMILIES), validation, held_out, reserved)
