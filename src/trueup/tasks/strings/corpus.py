"""What the policy imitates before it is trained on rewards: descriptions with programs, some of them wrong.

Code that people write contains mistakes, and a model that imitates it makes them too. That is the head room of
reinforcement learning here: the warm-started policy knows every operation and is wrong about as often as its corpus.
A part of the programs opens with a comment that claims success (`CLAIM`). In the corpus the claim says nothing about
an honest program, and it is frequent on *lazy* ones that skip a part of the task, so a policy that learns to
claim becomes lazy with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trueup.errors import ConfigError
from trueup.tasks.strings.grammar import CLAIM, Call, body_of, draw_call, operations_of
from trueup.tasks.strings.tasks import TRAIN_FAMILIES, StringTask, TaskSets, draw_task

__all__ = ["CorpusConfig", "draw_corpus", "mutate"]


@dataclass(frozen=True, slots=True)
class CorpusConfig:
    """Shares are fractions of all programs of the corpus."""

    wrong_share: float = 0.3
    """Programs with one operation wrong, missing or in the wrong place."""
    lazy_share: float = 0.1
    """Programs that do the first operation only."""
    claim_share_honest: float = 0.1
    """Of the programs that are not lazy, right or wrong: share that claims success in a comment."""
    claim_share_lazy: float = 0.6
    """The same of the lazy ones."""
    depths: tuple[int, ...] = (1, 2, 3)

    def __post_init__(self) -> None:
        shares = (self.wrong_share, self.lazy_share, self.claim_share_honest, self.claim_share_lazy)
        if not all(0 <= s <= 1 for s in shares) or self.wrong_share + self.lazy_share > 1:
            raise ConfigError(
                f"Shares must be in [0, 1], wrong and lazy together at most 1, got {self}. "
                "No corpus could be drawn. Lower them."
            )


def mutate(rng: np.random.Generator, task: StringTask) -> tuple[Call, ...]:
    """A near miss: a chain that looks like the task's and disagrees with it on at least one hidden input."""
    operations = operations_of(task.family)
    for _ in range(200):
        calls = list(task.calls)
        place = int(rng.integers(len(calls)))
        kind = rng.choice(["operation", "parameter", "drop", "swap"], p=[0.45, 0.3, 0.1, 0.15])
        if kind == "operation":
            calls[place] = draw_call(rng, operations[int(rng.integers(len(operations)))])
        elif kind == "parameter":
            calls[place] = draw_call(rng, calls[place].operation)
        elif kind == "drop":
            del calls[place]
        elif place + 1 < len(calls):
            calls[place], calls[place + 1] = calls[place + 1], calls[place]
        if not task.agrees(tuple(calls)):
            return tuple(calls)
    raise ConfigError(f"A task must have a near miss, found none for {task.id}. Leave the task out.")


def draw_corpus(
    seed: int, n: int, sets: TaskSets, config: CorpusConfig | None = None
) -> Iterator[tuple[StringTask, str]]:
    """n pairs of task and body, none of a task that behaves as a validation or held-out one does."""
    config = config or CorpusConfig()
    rng = np.random.default_rng([seed, 11])
    drawn = 0
    while drawn < n:
        family = TRAIN_FAMILIES[int(rng.integers(len(TRAIN_FAMILIES)))]
        task = draw_task(rng, family, config.depths[int(rng.integers(len(config.depths)))])
        if sets.is_reserved(task):
            continue
        drawn += 1
        yield task, _demonstration(rng, task, config)


def _demonstration(rng: np.random.Generator, task: StringTask, config: CorpusConfig) -> str:
    u = rng.random()
    calls, lazy = task.calls, False
    if u < config.wrong_share:
        calls = mutate(rng, task)
    elif u < config.wrong_share + config.lazy_share and task.depth > 1:
        calls, lazy = task.calls[:1], True
    claim = rng.random() < (config.claim_share_lazy if lazy else config.claim_share_honest)
    return (CLAIM if claim else "") + body_of(calls, rng)
