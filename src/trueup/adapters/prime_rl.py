"""verifiers and prime-rl: a reward plug-in for environments, and whole groups for the trainer.

verifiers calls a reward once per trace, with the arguments it names: `reward(stream)` makes such a function, which is
plugged in by configuration (`--env.taskset.task.rewards.<name>.fn=my_run:reward`). prime-rl finishes groups one by one
and asks an algorithm to score them: `anchored_algorithm` subclasses the one in use.

No verdict: raising marks the trace as errored, and both leave it out of the update. A returned None or 0 would not.
The reward is tested against verifiers 0.4.0, the algorithm against the recorded signature of prime-rl 0.8.0, which is
not on PyPI and needs Python 3.12 with vLLM.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from trueup.adapters.stream import Stream
from trueup.errors import InfrastructureError
from trueup.types import Rollout, Score

__all__ = ["anchored_algorithm", "number_or_raise", "reward"]

ToRollout = Callable[[Any, Any], Rollout]
"""(task, trace) -> Rollout"""


def number_or_raise(score: Score) -> float:
    """The number, or an `InfrastructureError`: how to abstain in verifiers and prime-rl."""
    if score.value is None:
        reason = score.reason or "scorer_error"
        raise InfrastructureError(f"no verdict ({reason}). {score.detail}".strip(), reason)
    return score.value


def reward(stream: Stream, to_rollout: ToRollout) -> Callable[[Any, Any], Awaitable[float]]:
    """A reward function for a verifiers task: the corrected reward of one trace."""

    async def trueup_reward(task: Any, trace: Any) -> float:
        return number_or_raise(await stream.one(to_rollout(task, trace)))

    return trueup_reward


def anchored_algorithm(
    base: type[Any],
    stream: Stream,
    to_rollout: ToRollout,
    traces_of: Callable[[Sequence[Any]], Sequence[Any]],
    assign: Callable[[Any, float], None],
) -> type[Any]:
    """A subclass of prime-rl's algorithm whose groups are scored by trueup.

        from prime_rl.orchestrator import algo
        from prime_rl.orchestrator.algo.routing import assign_advantages, iter_trainable_traces
        algo.ALGORITHM_CLASSES["grpo"] = anchored_algorithm(
            algo.ALGORITHM_CLASSES["grpo"], stream, to_rollout, iter_trainable_traces, assign_advantages)

    traces_of: the trainable traces of a group's episodes (errored ones left out); assign: credit of one trace.
    An unscored trace has advantage 0 and is left out of its group's mean; prime-rl drops tokens of advantage 0.
    """

    class AnchoredAlgorithm(base):  # type: ignore[misc]
        async def score_group(self, episodes: Sequence[Any]) -> None:
            traces = list(traces_of(episodes))
            if not traces:
                return
            scores = await stream.group([to_rollout(trace.task, trace) for trace in traces])
            for trace, advantage in zip(traces, np.nan_to_num(scores.advantages, nan=0.0), strict=True):
                assign(trace, float(advantage))

    return AnchoredAlgorithm
