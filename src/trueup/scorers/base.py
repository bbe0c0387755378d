"""The boundary between trueup and the functions that people write.

A scorer is a plain function `rollouts -> list of Score, float or None`, or an object with such a `score` method,
sync or async. What comes back, or does not, is sorted here and nowhere else:

* a wrong length or type, or a number outside the declared range, is the programmer's fault and raises;
* NaN and infinity are `non_finite`, None is `abstained`;
* an exception is an infrastructure fault: the whole call is unscored with the exception's text kept, the run goes
  on, and the failure is logged. It is never a zero, which the policy would learn from.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from trueup.errors import ConfigError, InfrastructureError, ProgrammerError, ScorerContractError
from trueup.types import Rollout, ScoreArray, UnscoredReason

__all__ = ["Scorer", "ScorerLike", "ScoringCall"]

logger = logging.getLogger("trueup.scorers")

# A score may leave its range by rounding (a mean of ones can be 1 + 2⁻⁵²); it is clipped back, not refused.
RANGE_TOLERANCE = 1e-9


@runtime_checkable
class Scorer(Protocol):
    """Anything with a `score` method; it may be a coroutine function."""

    def score(self, rollouts: Sequence[Rollout]) -> Any: ...


ScorerLike: TypeAlias = Scorer | Callable[[Sequence[Rollout]], Any]


class ScoringCall:
    """A scorer behind the fault boundary: `await call(rollouts)` always gives a `ScoreArray`, or raises a
    `ProgrammerError`.

    Args:
        scorer: function or object with `score`.
        role: "proxy" or "gold", used in messages.
        limits: declared inclusive range of finite scores.
    """

    def __init__(self, scorer: ScorerLike, role: str, limits: tuple[float, float]) -> None:
        function = getattr(scorer, "score", scorer)
        if not callable(function):
            raise ConfigError(
                f"{role} must be a function of rollouts or an object with a score method, "
                f"got {type(scorer).__name__}. Nothing could be scored. Pass the function itself, not its result."
            )
        self._function: Callable[[Sequence[Rollout]], Any] = function
        self._scorer = scorer
        self.role = role
        self.limits = limits
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 (an async __call__ is what is looked for)
        )

    @property
    def version(self) -> str | None:
        """What the scorer says it is (`scorer.version`, for instance a model's name), None if it does not say. A
        guard takes a change of it for a new proxy."""
        version = getattr(self._scorer, "version", None)
        return None if version is None else str(version)

    async def __call__(self, rollouts: Any, *, in_thread: bool = False) -> ScoreArray:
        """Score a sequence of rollouts, or whatever stands for them (indices, where arrays are scored).

        With `in_thread`, a sync scorer runs in a worker thread so that another can run beside it.
        """
        if len(rollouts) == 0:
            return ScoreArray(np.empty(0), np.empty(0, np.int8))
        try:
            if in_thread and not self.is_async:
                answers = await asyncio.to_thread(self._function, rollouts)
            else:
                answers = self._function(rollouts)
            if isinstance(answers, Awaitable):
                answers = await self._waited(answers)
        except ProgrammerError:
            raise
        except Exception as error:
            return self._failed(len(rollouts), error)
        return self._in_range(ScoreArray.from_answers(answers, len(rollouts), f"The {self.role} scorer"))

    async def _waited(self, answers: Awaitable[Any]) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            if inspect.iscoroutine(answers):
                answers.close()
            raise ScorerContractError(
                f"The {self.role} scorer must be declared with `async def` to answer later, got a plain function "
                "that returned an awaitable. No event loop was started for it. Wrap it in an async function."
            ) from None
        return await answers

    def _failed(self, n: int, error: Exception) -> ScoreArray:
        reason: UnscoredReason = "scorer_error"
        if isinstance(error, InfrastructureError):
            reason = error.reason  # type: ignore[assignment]  # checked against REASONS by ScoreArray.unscored
        elif isinstance(error, TimeoutError):
            reason = "timeout_infrastructure"
        logger.error("the %s scorer failed on %d rollouts, left unscored", self.role, n, exc_info=error)
        return ScoreArray.unscored(n, reason, f"{type(error).__name__}: {error}")

    def _in_range(self, scores: ScoreArray) -> ScoreArray:
        low, high = self.limits
        value = scores.value
        outside = (value < low) | (value > high)  # NaN compares false
        if outside.any():
            i = int(np.argmax(outside))
            slack = RANGE_TOLERANCE * max(1.0, abs(low), abs(high))
            if (np.clip(value[outside], low, high) - value[outside]).__abs__().max() > slack:
                raise ScorerContractError(
                    f"A {self.role} score must lie in the declared range [{low:g}, {high:g}], "
                    f"got {value[i]:g} for rollout {i}. Calibration, scale and guard all rest on that range. "
                    f"Rescale the score, or declare its range with AnchorConfig({self.role}_range=...)."
                )
            np.clip(value, low, high, out=value)
        return scores
