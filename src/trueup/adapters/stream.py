"""Groups that arrive one at a time, for trainers in which a whole step never exists.

prime-rl finishes groups one by one; a rubric, a resources server or a reward plug-in sees one rollout at a time. What
is waiting when the loop is free becomes one step: under load steps are large and gold runs many anchors at once, when
idle a step is one group. Steps never overlap, so each one still sees a map and variances that were fixed before its
anchors were drawn. A fraction of an anchor has to be spread over such small steps, which a floor of one anchor per
step would turn into all gold; the floor has to be off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trueup.adapters.reward_function import OnStep
from trueup.errors import ConfigError
from trueup.loop import AnchoredReward
from trueup.types import FloatArray, Group, Rollout, Score

__all__ = ["GroupScores", "Stream", "neutral"]


@dataclass(frozen=True, slots=True)
class GroupScores:
    """What the loop made of one group of n rollouts."""

    rewards: FloatArray  # (n,) NaN where unscored
    advantages: FloatArray  # (n,) NaN where unscored
    reasons: tuple[str | None, ...]  # why a rollout is unscored

    def scores(self) -> list[Score]:
        """The rewards as `Score` objects."""
        pairs = zip(self.rewards.tolist(), self.reasons, strict=True)
        return [Score(None, reason) if reason is not None else Score(value) for value, reason in pairs]


def neutral(rewards_GN: Sequence[FloatArray], otherwise: float) -> list[list[float]]:
    """Rewards for a trainer that takes floats alone and centres them over the group: an unscored rollout gets the
    mean of its scored siblings, so that its own advantage is exactly 0 and theirs do not move.

    A group without any score gets `otherwise` throughout, which centring takes out. For advantages that are divided
    by the group's spread it would not do: the spread shrinks with every stand-in.
    """
    filled = []
    for rewards_N in rewards_GN:
        seen = np.isfinite(rewards_N)
        filled.append(np.where(seen, rewards_N, rewards_N[seen].mean() if seen.any() else otherwise).tolist())
    return filled


class Stream:
    """A queue in front of an `AnchoredReward`. One event loop, any number of callers.

    Args:
        anchored: with `min_anchors_per_step=0`.
        on_step: called after every step, as in `AnchoredRewardFunction`.
    """

    def __init__(self, anchored: AnchoredReward, on_step: OnStep | None = None) -> None:
        floor = anchored.config.min_anchors_per_step
        if floor and anchored.config.estimator not in ("gold", "proxy"):
            raise ConfigError(
                f"min_anchors_per_step must be 0 where groups arrive one at a time, got {floor}. A step may be a "
                "single group, and every one of them would be anchored. Set AnchorConfig(min_anchors_per_step=0)."
            )
        self.anchored = anchored
        self._on_step = on_step
        self._waiting: list[tuple[Group, asyncio.Future[GroupScores]]] = []
        self._worker: asyncio.Task[None] | None = None

    async def group(self, rollouts: Sequence[Rollout]) -> GroupScores:
        """Score one group, with whatever else is waiting.

        Raises:
            ProgrammerError: of the step that it was in; every caller of that step gets it.
        """
        future: asyncio.Future[GroupScores] = asyncio.get_running_loop().create_future()
        self._waiting.append((Group(rollouts), future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await future

    async def one(self, rollout: Rollout) -> Score:
        """Score a rollout by itself: its corrected reward, or why there is none.

        Raises:
            ConfigError: the estimator compares rollouts of a group, and there is no group.
        """
        if self.anchored.config.anchor_unit == "group" and self.anchored.config.estimator not in (
            "gold",
            "proxy",
        ):
            raise ConfigError(
                f"estimator must be 'corrected' where rollouts come singly, got "
                f"{self.anchored.config.estimator!r}. There is no group to compare within. Leave estimator out."
            )
        return (await self.group([rollout])).scores()[0]

    async def _work(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            groups = [group for group, _ in batch]
            try:
                result = await self.anchored.astep(groups)
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            if self._on_step is not None:
                self._on_step(result, groups)
            for i, (_, future) in enumerate(batch):
                if not future.done():  # its caller may have gone
                    reasons = tuple(result.reasons[i].tolist())
                    future.set_result(GroupScores(result.rewards[i], result.advantages[i], reasons))
