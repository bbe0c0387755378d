"""One step on its way from a checked call to its outcome: plan, score, form. Reads state and changes none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from trueup.errors import GroupError
from trueup.loop.batch import Batch, FamilyIndex
from trueup.loop.outcome import Outcome, form_outcome
from trueup.loop.planning import Eligible, anchored_rollouts, plan_active, plan_ahead
from trueup.loop.state import LoopState
from trueup.types import BoolArray, FloatArray, ScoreArray

__all__ = [
    "Request",
    "as_floats",
    "checked_anchors",
    "checked_features",
    "checked_influence",
    "run",
    "spread",
]

Score = Callable[[np.ndarray, bool], Awaitable[ScoreArray]]
"""Score the rollouts with the given flat indices; the flag asks for a worker thread."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call of a step, after its checks."""

    batch: Batch
    families: FamilyIndex
    anchors: tuple[int, ...] | None
    influence_P: FloatArray | None
    features_PD: FloatArray | None
    failed_P: BoolArray  # fails a hard constraint: its reward is known
    undecided_P: BoolArray  # a hard constraint could not be decided
    score_proxy: Score
    score_gold: Score
    shut_P: BoolArray  # the guard does not trust the proxy of the rollout's family
    proxy_version: str | None
    on_loop: bool  # an event loop runs: sync scorers go to worker threads, so that nothing blocks it


async def run(state: LoopState, request: Request) -> Outcome:
    """Choose the anchors, score, and form the outcome."""
    config, batch = state.config, request.batch
    state.calibrator.check_features(request.features_PD)
    open_P = ~(request.failed_P | request.undecided_P)
    asked = np.flatnonzero(open_P)
    proxy = ScoreArray.unscored(batch.n_rollouts, "not_selected")
    eligible = Eligible(batch, open_P, request.shut_P)
    plan = plan_ahead(config, state.step, state.fraction, eligible, request.anchors)
    if plan is None:  # active: the proxy says where gold is worth most, so gold has to wait for it
        proxy = spread(await request.score_proxy(asked, request.on_loop), asked, batch.n_rollouts)
        variance_P = state.predictables.residual_variance.predict(proxy.value, batch.family_P)
        plan = plan_active(config, state.step, state.fraction, eligible, variance_P, request.influence_P)
        chosen = np.flatnonzero(anchored_rollouts(plan, batch) & open_P)
        answers = await request.score_gold(chosen, request.on_loop)
    else:
        chosen = np.flatnonzero(anchored_rollouts(plan, batch) & open_P)
        if not config.asks_proxy:
            answers = await request.score_gold(chosen, request.on_loop)
        else:
            answers, everyone = await _score_both(request, chosen, asked)
            proxy = spread(everyone, asked, batch.n_rollouts)
    anchored_P = np.zeros(batch.n_rollouts, np.bool_)
    anchored_P[chosen] = True
    return form_outcome(
        config=config,
        step=state.step,
        batch=batch,
        families=request.families,
        plan=plan,
        anchored_P=anchored_P,
        proxy=proxy,
        gold=spread(answers, chosen, batch.n_rollouts),
        failed_P=request.failed_P,
        undecided_P=request.undecided_P,
        shut_P=request.shut_P,
        features_PD=request.features_PD,
        proxy_version=request.proxy_version,
        guard=state.guard,
        calibrator=state.calibrator,
        predictables=state.predictables,
    )


async def _score_both(
    request: Request, chosen: np.ndarray, asked: np.ndarray
) -> tuple[ScoreArray, ScoreArray]:
    """Gold of the anchors and proxy of all, side by side; a fault of one is raised when both are done."""
    if not (request.on_loop and chosen.size):
        gold = await request.score_gold(chosen, request.on_loop)
        return gold, await request.score_proxy(asked, request.on_loop)
    answers = await asyncio.gather(
        request.score_gold(chosen, True), request.score_proxy(asked, True), return_exceptions=True
    )
    for answer in reversed(answers):
        if isinstance(answer, BaseException):
            raise answer
    answered = [answer for answer in answers if isinstance(answer, ScoreArray)]
    return answered[0], answered[1]


def spread(some: ScoreArray, index: np.ndarray, n: int) -> ScoreArray:
    """Scores of the rollouts in `index`, placed among n; the others are `not_selected`."""
    if index.size == n:
        return some
    everyone = ScoreArray.unscored(n, "not_selected")
    everyone.value[index] = some.value
    everyone.code[index] = some.code
    details = {int(index[i]): text for i, text in some.details.items()}
    return ScoreArray(everyone.value, everyone.code, details)


def as_floats(values: Any, what: str) -> FloatArray:
    """A float64 array, or a `GroupError` that says what could not be read."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise GroupError(
            f"{what} must be an array of numbers, got {type(values).__name__} ({error}). Nothing was scored."
        ) from None


def checked_anchors(anchors: Iterable[int] | None) -> tuple[int, ...] | None:
    if anchors is None:
        return None
    if isinstance(anchors, (str, bytes)) or not isinstance(anchors, Iterable):
        raise GroupError(
            f"anchors must be a list of indices of groups, got {anchors!r}. Nothing was scored. "
            "Leave it out to have them drawn."
        )
    return tuple(anchors)


def checked_influence(influence: ArrayLike | None, n: int) -> FloatArray | None:
    if influence is None:
        return None
    values = as_floats(influence, "influence").reshape(-1)
    if values.size != n or not np.isfinite(values).all() or (values < 0).any():
        raise GroupError(
            f"influence must be one finite non-negative number per rollout ({n}), got {values.size} values. "
            "Propensities could not be formed. Leave it out to weigh all rollouts alike."
        )
    return values


def checked_features(features: Any, n: int) -> FloatArray | None:
    """(n, d) features, from (n, d) or (n_groups, group_size, d)."""
    if features is None:
        return None
    values = as_floats(features, "features")
    if values.ndim == 3:
        values = values.reshape(-1, values.shape[2])
    if values.ndim != 2 or values.shape[0] != n or not np.isfinite(values).all():
        raise GroupError(
            f"features must be finite numbers of shape ({n}, d), got shape {values.shape}. The second stage of the "
            "calibration could not be fitted. Return one row of d numbers per rollout."
        )
    return values
