"""One step over the ranks of a distributed run.

A trainer may cut a group between two ranks, so no rank can centre over its own rows. Every rank therefore holds all
rollouts of the step (they are text), scores a share of them, and exchanges the scores; planning, calibration and
state are pure functions of these and stay equal on all ranks without another word. Objects travel over gloo groups
of our own, one for the proxy and one for gold, because the two are scored side by side and their exchanges may come
in either order; they also keep out of the way of the trainer's own collectives on the accelerators.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal

import numpy as np

from trueup.errors import ProgrammerError
from trueup.loop import AnchoredReward
from trueup.loop.constraints import VerifierLike
from trueup.scorers.base import ScoringCall
from trueup.types import Rollout, Score, ScoreArray, Verdict

__all__ = ["Ranks"]

Channel = Literal["proxy", "gold"]


class Ranks:
    """The ranks of this run: one without `torch.distributed`, else its world.

    Args:
        timeout_s: how long an exchange waits for the slowest rank, in seconds. It has to cover the longest gold
            execution.
    """

    def __init__(self, timeout_s: float = 3600.0) -> None:
        self._timeout = timedelta(seconds=timeout_s)
        self._groups: dict[str, Any] = {}
        self._routed: AnchoredReward | None = None
        torch = sys.modules.get("torch")
        spread = torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized()
        self.size = torch.distributed.get_world_size() if torch is not None and spread else 1
        self.index = torch.distributed.get_rank() if torch is not None and spread else 0

    def share(self, value: Any, channel: Channel = "proxy") -> list[Any]:
        """`value` of every rank, in order of rank. All ranks must call it, in the same order per channel."""
        if self.size == 1:
            return [value]
        distributed = sys.modules["torch"].distributed
        if not self._groups:
            for name in ("proxy", "gold"):
                self._groups[name] = distributed.new_group(backend="gloo", timeout=self._timeout)
        values: list[Any] = [None] * self.size
        distributed.all_gather_object(values, value, group=self._groups[channel])
        return values

    def spread(self, anchored: AnchoredReward) -> None:
        """Let each rank score its share of every call from now on. With one rank nothing changes."""
        if self.size > 1 and self._routed is not anchored:
            self.share(None)  # makes the groups, here, where no two threads could race for it
            anchored.route(lambda call: _ShareOfScorer(call, self), lambda v: _ShareOfVerifier(v, self))
            self._routed = anchored

    def mine(self, everything: Sequence[Rollout]) -> list[Rollout]:
        """This rank's share: every `size`-th, so that anchors spread evenly."""
        return list(everything[self.index :: self.size])


class _ShareOfScorer:
    """Scores this rank's share and hands back everyone's; a fault of the programmer raises on all ranks."""

    def __init__(self, call: ScoringCall, ranks: Ranks) -> None:
        self._call = call
        self._ranks = ranks
        self._channel: Channel = "gold" if call.role == "gold" else "proxy"
        self.version = call.version
        """Of all ranks together: one that sees another model alone would otherwise leave the others' state."""

    async def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        answer: ScoreArray | ProgrammerError
        try:
            answer = await self._call(self._ranks.mine(rollouts), in_thread=True)
        except ProgrammerError as error:
            answer = error
        shared = await asyncio.to_thread(self._ranks.share, (answer, self._call.version), self._channel)
        self.version = " ".join(sorted({version for _, version in shared if version is not None})) or None
        scores = np.empty(len(rollouts), dtype=object)
        for rank, (part, _) in enumerate(shared):
            if isinstance(part, ProgrammerError):
                raise part
            scores[rank :: self._ranks.size] = part.to_scores()
        answers: list[Score] = scores.tolist()
        return answers


class _ShareOfVerifier:
    """The same for a verifier; one that fails on a rank leaves that rank's share undecided."""

    def __init__(self, verifier: VerifierLike, ranks: Ranks) -> None:
        self._verify = getattr(verifier, "verify", verifier)
        self.__name__ = getattr(verifier, "__name__", type(verifier).__name__)
        self._ranks = ranks

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Any]:
        mine = self._ranks.mine(rollouts)
        answer: list[Any] | Exception
        try:
            answer = list(self._verify(mine))
        except Exception as error:
            answer = error if isinstance(error, ProgrammerError) else [Verdict.ERROR] * len(mine)
        verdicts = np.empty(len(rollouts), dtype=object)
        for rank, part in enumerate(self._ranks.share(answer)):
            if isinstance(part, Exception):
                raise part
            verdicts[rank :: self._ranks.size] = part
        everyone: list[Any] = verdicts.tolist()
        return everyone
