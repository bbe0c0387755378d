"""The anchored loop: one step is one transaction.

    choose anchors → score (proxy for all, gold for the anchors, side by side) → measure the anchors with the old
    map → apply that one map to the whole step → form advantages → only then push the pairs, refit, update

Everything up to the last arrow reads state and changes none, so a step that raises leaves the object as it was, and
a step that is repeated after a crash gives the same result. What a step uses (map, scale, λ, variances) was fixed
before its anchors were drawn; the unbiasedness of the estimators rests on that order alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from trueup.errors import ConfigError, GroupError, StateError
from trueup.loop.batch import Batch, FamilyIndex
from trueup.loop.config import AnchorConfig
from trueup.loop.constraints import VerifierLike, check_constraints
from trueup.loop.driving import drive_in_place, drive_on_loop
from trueup.loop.outcome import Outcome
from trueup.loop.request import (
    Request,
    as_floats,
    checked_anchors,
    checked_features,
    checked_influence,
    run,
    spread,
)
from trueup.loop.state import LoopState
from trueup.scorers.base import ScorerLike, ScoringCall
from trueup.types import Group, Rollout, ScoreArray, StepResult, reason_code

__all__ = ["AnchoredReward"]


class AnchoredReward:
    """Turn a step's groups of rollouts into advantages, from a proxy for all and gold for a few.

    Args:
        proxy: cheap scorer, asked for every rollout: a function `rollouts -> list[Score | float | None]` or an
            object with such a `score` method, sync or async.
        gold: costly and believed scorer of the same form, asked for the anchors only.
        config: an `AnchorConfig`; or give its settings as keywords (`anchor_fraction=0.1, seed=0, ...`).
        verifiers: hard constraints, checked before any scoring (`loop/constraints.py`).
        features: optional cheap numbers per rollout, `rollouts -> (n, d)`, for the second stage of the calibration
            (`trueup.scorers.code_features` has some for programs). They must be finite.

    Raises:
        ConfigError: settings out of range or contradictory.
    """

    def __init__(
        self,
        proxy: ScorerLike | None,
        gold: ScorerLike | None,
        config: AnchorConfig | None = None,
        *,
        verifiers: Sequence[VerifierLike] = (),
        features: Callable[[Sequence[Rollout]], ArrayLike] | None = None,
        **settings: Any,
    ) -> None:
        if config is not None and settings:
            raise ConfigError(
                f"Settings must come in one form, got a config and {', '.join(settings)}. One of them would be "
                "ignored. Put everything into AnchorConfig."
            )
        self.config = config if config is not None else AnchorConfig(**settings)
        self._verifiers = tuple(verifiers)
        self._features = features
        self._proxy_range = self.config.proxy_range or self.config.gold_range
        self._proxy = None if proxy is None else ScoringCall(proxy, "proxy", self._proxy_range)
        self._gold = None if gold is None else ScoringCall(gold, "gold", self.config.gold_range)
        self._own = (self._proxy, self._gold, self._verifiers)  # as given, before any `route`
        self._state = LoopState(self.config)
        self._busy = False

    @property
    def step_index(self) -> int:
        """Number of steps done; the next one draws its anchors with it."""
        return self._state.step

    # -- steps ------------------------------------------------------------------------------------------------

    def step(
        self,
        groups: Iterable[Group | Sequence[Rollout]],
        anchors: Iterable[int] | None = None,
        influence: ArrayLike | None = None,
    ) -> StepResult:
        """Score one step's groups.

        Args:
            groups: lists of `Rollout` (or `Group`), one per prompt; sizes may differ.
            anchors: indices of groups to anchor whole, instead of drawing. They are taken for a uniform draw of
                that many groups (π = share of groups); chosen by content, they bias the step.
            influence: optional squared norms of ∇ log π per rollout, flat in order, for active propensities.

        Returns:
            StepResult with advantages of shape (n_groups, group_size), NaN where unscored, or a list of arrays
            for ragged groups.

        Raises:
            GroupError, ScorerContractError: faults of the call; no state has changed.
            ConfigError: called inside a running event loop; use `await reward.astep(...)` there.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise ConfigError(
                "step() must be called outside a running event loop, got called inside one. It would block the "
                "loop that your scorers may need. Use: result = await reward.astep(groups)."
            )
        on_loop = self._needs_loop(anchors is not None)
        with self._one_at_a_time():
            coroutine = self._score_groups(groups, anchors, influence, on_loop)
            return self._commit(drive_on_loop(coroutine) if on_loop else drive_in_place(coroutine))

    async def astep(
        self,
        groups: Iterable[Group | Sequence[Rollout]],
        anchors: Iterable[int] | None = None,
        influence: ArrayLike | None = None,
    ) -> StepResult:
        """`step` for callers that run an event loop themselves; sync scorers run in worker threads."""
        with self._one_at_a_time():
            return self._commit(await self._score_groups(groups, anchors, influence, on_loop=True))

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        """Steps of one object follow each other: each uses what the one before it has learned."""
        if self._busy:
            raise StateError(
                "A step must be finished before the next one starts, got a second one. Both would draw the same "
                "anchors and one would undo what the other learned. Await the first, or use one object per stream."
            )
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def _needs_loop(self, fixed_anchors: bool) -> bool:
        """Whether a scorer is async, or two scorers are to run side by side."""
        if any(call is not None and call.is_async for call in (self._proxy, self._gold)):
            return True
        config = self.config
        planned_ahead = fixed_anchors or not config.is_active or config.scores_all_with_gold
        return config.asks_proxy and config.estimator != "proxy" and planned_ahead

    async def _score_groups(
        self,
        groups: Iterable[Group | Sequence[Rollout]],
        anchors: Iterable[int] | None,
        influence: ArrayLike | None,
        on_loop: bool,
    ) -> Outcome:
        state = self._state
        families = state.families.copy()
        batch = Batch.from_groups(groups, families)
        assert batch.rollouts is not None
        proxy, gold = self._proxy, self._gold
        if proxy is None or gold is None:
            raise ConfigError(
                "step needs a proxy and a gold scorer, got None. Give both, or use step_arrays."
            )
        rollouts = batch.rollouts
        failed, undecided = check_constraints(self._verifiers, rollouts)

        async def score(call: ScoringCall, index: np.ndarray, in_thread: bool) -> ScoreArray:
            chosen = rollouts if index.size == batch.n_rollouts else [rollouts[i] for i in index.tolist()]
            return await call(chosen, in_thread=in_thread)

        request = Request(
            batch=batch,
            families=families,
            anchors=checked_anchors(anchors),
            influence_P=checked_influence(influence, batch.n_rollouts),
            features_PD=checked_features(
                None if self._features is None else self._features(rollouts), batch.n_rollouts
            ),
            failed_P=failed,
            undecided_P=undecided,
            score_proxy=lambda index, in_thread: score(proxy, index, in_thread),
            score_gold=lambda index, in_thread: score(gold, index, in_thread),
            shut_P=state.shut(batch, proxy.version),
            proxy_version=proxy.version,
            on_loop=on_loop,
        )
        return await run(state, request)

    def step_arrays(
        self,
        proxy: ArrayLike,
        gold: ArrayLike | Callable[[np.ndarray], ArrayLike],
        *,
        families: Sequence[str] | None = None,
        group_ids: Sequence[Hashable] | None = None,
        anchors: Iterable[int] | None = None,
        influence: ArrayLike | None = None,
        features: ArrayLike | None = None,
        proxy_version: str | None = None,
    ) -> StepResult:
        """A step for simulators and adapters that hold scores as arrays already.

        Args:
            proxy: (n_groups, group_size) proxy scores, NaN where unscored.
            gold: the same shape, of which only the anchors' entries are read; or a function that is given the
                anchors' flat indices and returns their gold scores.
            families: family of each group; group_ids: as `Group.id`; anchors, influence: as `step`.
            features: (n_groups, group_size, d) for the second stage of the calibration, in every step or in none.
            proxy_version: what the proxy calls itself; a guard takes a change of it for a new proxy.
        """
        proxy_GN = as_floats(proxy, "proxy")
        if proxy_GN.ndim != 2 or 0 in proxy_GN.shape:
            raise GroupError(
                f"proxy must be an array of shape (n_groups, group_size), got shape {proxy_GN.shape}. "
                "Nothing was scored. Use step() for ragged groups."
            )
        state = self._state
        index = state.families.copy()
        batch = _array_batch(proxy_GN.shape, families, group_ids, index)
        calls = {
            "proxy": ScoringCall(lambda _: proxy_GN.reshape(-1), "proxy", self._proxy_range),
            "gold": ScoringCall(_reader(gold, proxy_GN.shape), "gold", self.config.gold_range),
        }
        nobody = np.zeros(batch.n_rollouts, np.bool_)
        request = Request(
            batch=batch,
            families=index,
            anchors=checked_anchors(anchors),
            influence_P=checked_influence(influence, batch.n_rollouts),
            features_PD=checked_features(features, batch.n_rollouts),
            failed_P=nobody,
            undecided_P=nobody,
            score_proxy=lambda chosen, _: calls["proxy"](chosen),
            score_gold=lambda chosen, _: calls["gold"](chosen),
            shut_P=state.shut(batch, proxy_version),
            proxy_version=proxy_version,
            on_loop=False,
        )
        with self._one_at_a_time():
            return self._commit(drive_in_place(run(state, request)))

    def _commit(self, outcome: Outcome) -> StepResult:
        """Learn into a copy of the state and put it in the place of the old one: the only change of a step."""
        state = self._state.copy()
        state.families = outcome.families
        events = [] if state.guard is None else outcome.inform(state.guard, state.calibrator)
        refit = outcome.learn(state.calibrator, state.predictables, state.next_group)
        state.next_group += outcome.batch.n_groups
        state.step += 1
        result = outcome.result(refit, events)
        self._state = state
        return result

    # -- for adapters -----------------------------------------------------------------------------------------

    def route(
        self,
        scorer: Callable[[ScoringCall], ScorerLike],
        verifier: Callable[[VerifierLike], VerifierLike],
    ) -> None:
        """Put `scorer(call)` and `verifier(v)` in the place of the scorers and verifiers that were given.

        Adapters spread the scoring of one step over ranks with it. A second call starts from the originals again.
        """
        proxy, gold, verifiers = self._own
        self._proxy, self._gold = (
            None if call is None else ScoringCall(scorer(call), call.role, call.limits)
            for call in (proxy, gold)
        )
        self._verifiers = tuple(map(verifier, verifiers))

    def evaluate(self, rollouts: Sequence[Rollout]) -> ScoreArray:
        """Constraints and gold alone, for held-out rollouts: n scores, no anchors, no change of state.

        It asks the scorer that was given, in this process, whatever `route` has put in its place.
        """
        _, gold, verifiers = self._own
        if gold is None:
            raise ConfigError("evaluate needs a gold scorer, got None. Nothing was scored. Give one.")
        failed, undecided = check_constraints(verifiers, rollouts)
        asked = np.flatnonzero(~(failed | undecided))
        coroutine = gold([rollouts[i] for i in asked.tolist()])
        answers = spread(
            drive_on_loop(coroutine) if gold.is_async else drive_in_place(coroutine), asked, failed.size
        )
        answers.code[undecided] = reason_code("verifier_unknown")
        answers.value[failed], answers.code[failed] = self.config.gold_range[0], 0
        return answers

    # -- state ------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs, as plain data that survives JSON bit for bit."""
        return self._state.to_plain()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume: the following steps give the same results as if the run had never stopped.

        Raises:
            StateError: the state cannot be read, is of another version, or was saved under another configuration;
                nothing has changed.
        """
        self._state = LoopState.from_plain(self.config, state)


def _array_batch(
    shape: tuple[int, ...],
    families: Sequence[str] | None,
    group_ids: Sequence[Hashable] | None,
    index: FamilyIndex,
) -> Batch:
    n_groups, group_size = shape
    names = ["default"] * n_groups if families is None else list(families)
    ids = range(n_groups) if group_ids is None else tuple(group_ids)
    if len(names) != n_groups or len(ids) != n_groups or len(set(ids)) != n_groups:
        raise GroupError(
            f"families and group_ids must have one entry per group ({n_groups}), ids unique, got {len(names)} "
            f"and {len(set(ids))}. Nothing was scored."
        )
    return Batch(
        group_ids=ids,
        sizes_G=np.full(n_groups, group_size),
        family_P=np.repeat(index.codes(names), group_size),
        rollouts=None,
        rollout_ids=None,
    )


def _reader(
    gold: ArrayLike | Callable[[np.ndarray], ArrayLike], shape: tuple[int, ...]
) -> Callable[[Any], np.ndarray]:
    """Gold of the rollouts with given flat indices, from a function or from a grid of the proxy's shape."""
    if callable(gold):
        ask = gold
        return lambda chosen: np.asarray(ask(chosen), np.float64)
    gold_GN = as_floats(gold, "gold")
    if gold_GN.shape != shape:
        raise GroupError(
            f"gold must have the proxy's shape {shape}, got {gold_GN.shape}. Scores would be paired with the wrong "
            "rollouts. Give one gold entry per rollout; only those of the anchors are read."
        )
    flat = gold_GN.reshape(-1)
    return lambda chosen: flat[chosen]
