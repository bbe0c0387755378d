"""An `AnchoredReward` as the plain reward function that TRL and its kin call: rows in, one number or None per row.

It needs no hook in the trainer wherever the trainer's advantage is linear in the rewards, because a corrected reward
*is* a reward. What it needs is whole groups: rows come in prompt-repeat order, and a rank may hold a part of a group,
so the rows of all ranks are put together, scored as one step, and this rank's part is returned.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar

import numpy as np

from trueup.adapters.ranks import Ranks
from trueup.errors import GroupError
from trueup.loop import AnchorConfig, AnchoredReward
from trueup.runlog.names import step_metrics
from trueup.types import FloatArray, Group, Rollout, StepResult

__all__ = ["AnchoredRewardFunction", "OnStep", "default_rollout", "needs_hook"]

logger = logging.getLogger("trueup.adapters")

T = TypeVar("T")

OnStep: TypeAlias = Callable[[StepResult, Sequence[Group]], None]
"""Called after every training step on rank 0, for instance to append `result.record` to a run log."""

# What TRL passes beside the dataset's columns; objects of the trainer, not data of a task.
_NOT_COLUMNS = ("completion_ids", "trainer_state", "log_extra", "log_metric", "environments")


def needs_hook(config: AnchorConfig) -> bool:
    """Whether the estimator's advantages are more than centred rewards, so that no reward function can carry them."""
    if config.estimator == "mse":
        return config.anchor_unit == "group"
    return config.estimator in ("control_variate", "wmrl")


def default_rollout(prompt: Any, completion: Any, columns: Mapping[str, Any]) -> Rollout:
    """A row as a rollout: `task` holds the dataset's columns, `family` the column of that name if there is one.

    A completion of one assistant message becomes its text; a longer conversation stays a list of messages.
    """
    if isinstance(completion, list) and len(completion) == 1 and isinstance(completion[0], Mapping):
        completion = completion[0].get("content", "")
    family = columns.get("family")
    return Rollout(prompt, completion, dict(columns), family if isinstance(family, str) else "default")


class AnchoredRewardFunction:
    """A reward function with the signature of TRL's; also callable by hand: `function(prompts, completions)`.

    Args:
        anchored: the loop. Its state advances by one step per call.
        num_generations: rollouts per group; rows are cut into groups of this size, over all ranks.
        to_rollout: (prompt, completion, columns of the row) -> Rollout; default `default_rollout`.
        on_step: see `OnStep`.
        ranks: made on first use.
    """

    def __init__(
        self,
        anchored: AnchoredReward,
        num_generations: int,
        *,
        to_rollout: Callable[[Any, Any, Mapping[str, Any]], Rollout] = default_rollout,
        on_step: OnStep | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.__name__ = "anchored"  # trainers name their metrics by it
        self.anchored = anchored
        self.num_generations = num_generations
        self.evaluating = False
        """Set by a trainer while it evaluates: gold scores every row, and nothing is learned from it."""
        self.result: StepResult | None = None
        """The step that the last call made; None after an evaluation."""
        self._to_rollout = to_rollout
        self._on_step = on_step
        self._ranks = ranks
        self._rows = slice(0, 0)

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **extra: Any
    ) -> list[float | None]:
        """One reward per row, None where a row is unscored.

        Raises:
            GroupError: the rows cannot be cut into groups of one prompt each.
            ScorerContractError: a fault of a scorer that must be mended; nothing was scored.
        """
        columns = {name: values for name, values in extra.items() if name not in _NOT_COLUMNS}
        rows = [
            self._to_rollout(prompt, completion, {name: values[i] for name, values in columns.items()})
            for i, (prompt, completion) in enumerate(zip(prompts, completions, strict=True))
        ]
        rewards = self._evaluated(rows, extra) if self.evaluating else self._stepped(rows, extra)
        return [reward if np.isfinite(reward) else None for reward in rewards.tolist()]

    def advantages(self) -> tuple[FloatArray, FloatArray]:
        """trueup's own advantages of the last step: this rank's rows, and all rows. 0 where unscored, which is
        what trainers multiply a row with that is to say nothing."""
        assert self.result is not None
        everyone = np.nan_to_num(self.result.record.advantage, nan=0.0)
        return everyone[self._rows], everyone

    def _evaluated(self, rows: Sequence[Rollout], extra: Mapping[str, Any]) -> FloatArray:
        self.result = None
        scores = _outside_loop(lambda: self.anchored.evaluate(rows))
        unknown = np.full(len(rows), np.nan)
        _log_rows(extra, proxy=unknown, gold=scores.value, propensity=np.ones(len(rows)))
        return scores.value

    def _stepped(self, rows: Sequence[Rollout], extra: Mapping[str, Any]) -> FloatArray:
        started = time.perf_counter()
        if self._ranks is None:
            self._ranks = Ranks()
        self._ranks.spread(self.anchored)
        shared = self._ranks.share(rows)
        first = sum(len(part) for part in shared[: self._ranks.index])
        self._rows = slice(first, first + len(rows))
        groups = self._groups([row for part in shared for row in part])
        self.result = result = _outside_loop(lambda: self.anchored.step(groups))
        record = result.record
        mine = self._rows
        _log_rows(extra, proxy=record.proxy[mine], gold=record.gold[mine], propensity=record.propensity[mine])
        if (log_metric := extra.get("log_metric")) is not None:
            for name, value in step_metrics(record).items():
                log_metric(name, value)
            log_metric("trueup/seconds", time.perf_counter() - started)
        for note in record.notes:
            logger.warning("step %d: %s", record.step, note)
        if self._on_step is not None and self._ranks.index == 0:
            self._on_step(result, groups)
        return record.reward[mine]

    def _groups(self, rows: Sequence[Rollout]) -> list[Group]:
        n = self.num_generations
        if not rows or len(rows) % n:
            raise GroupError(
                f"The rows of a step must be a multiple of num_generations ({n}), got {len(rows)} over all ranks. "
                "No group could be formed. Pass the num_generations of the trainer."
            )
        groups = [Group(rows[i : i + n]) for i in range(0, len(rows), n)]
        for index, group in enumerate(groups):
            if any(rollout.prompt != group.rollouts[0].prompt for rollout in group):
                raise GroupError(
                    f"A group must hold {n} rollouts of one prompt, got different prompts in group {index}. "
                    "Advantages would be centred over unrelated rows. Pass the num_generations of the trainer; "
                    "in an evaluation use AnchoredGRPOTrainer, which knows one when it sees it."
                )
        return groups


def _outside_loop(call: Callable[[], T]) -> T:
    """`call()`, in a thread of its own where this one runs an event loop (a notebook)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def _log_rows(extra: Mapping[str, Any], **columns: FloatArray) -> None:
    """Columns of the trainer's table of completions, in every mode, since all columns must have one length."""
    if (log_extra := extra.get("log_extra")) is None:
        return
    for name, values in columns.items():
        log_extra(f"trueup_{name}", [v if np.isfinite(v) else None for v in values.tolist()])
