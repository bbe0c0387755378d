"""OpenEnv: a rubric whose verdict is the corrected reward; it runs where the environment runs.

    env.rubric = rubric(stream, lambda action, observation: Rollout(observation.prompt, action.text))

No verdict: None, which an observation's reward may be. Keep it at the top: inside a WeightedSum None is a TypeError.
Tested against openenv 0.10.0. It cannot share an environment with verifiers 0.4.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trueup.adapters.stream import Stream
from trueup.errors import MissingExtraError
from trueup.types import Rollout

__all__ = ["rubric"]


def rubric(stream: Stream, to_rollout: Callable[[Any, Any], Rollout]) -> Any:
    """An `openenv.core.rubrics.Rubric` over (action, observation)."""
    try:
        from openenv.core.rubrics import Rubric
    except ImportError as error:
        raise MissingExtraError("The OpenEnv rubric", "openenv", error.name or "openenv") from None

    class AnchoredRubric(Rubric):  # type: ignore[misc]
        async def forward(self, action: Any, observation: Any) -> float | None:
            return (await stream.one(to_rollout(action, observation))).value

    return AnchoredRubric()
