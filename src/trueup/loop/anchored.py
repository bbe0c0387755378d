"""The anchored loop: one step is one transaction.

    choose anchors → score (proxy for all, gold for the anchors, side by side) → measure the anchors with the old
    map → apply that one map to the whole step → form advantages → only then push the pairs, refit, update

Everything up to the last arrow reads state and changes none, so a step that raises leaves the object as it was, and
a step that is repeated after a crash gives the same result. What a step uses (map, scale, λ, variances) was fixed
before its anchors were drawn; the unbiasedness of the estimators rests on that order alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from trueup.errors import ConfigError, GroupError, StateError
from trueup.loop.batch import Batch, FamilyIndex
from trueup.loop.calibration import Calibrator
from trueup.loop.config import AnchorConfig
from trueup.loop.constraints import VerifierLike, check_constraints
from trueup.loop.driving import drive_in_place, drive_on_loop
from trueup.loop.guard import Guard
from trueup.loop.learning import Predictables
from trueup.loop.outcome import Outcome, form_outcome
from trueup.loop.planning import Eligible, anchored_rollouts, plan_active, plan_ahead
from trueup.loop.schedule import scheduled_fraction
from trueup.scorers.base import ScorerLike, ScoringCall
from trueup.types import BoolArray, FloatArray, Group, Rollout, ScoreArray, StepResult, reason_code

__all__ = ["AnchoredReward"]

STATE_VERSION = 1

Score = Callable[[np.ndarray, bool], Awaitable[ScoreArray]]
"""Score the rollouts with the given flat indices; the flag asks for a worker thread."""


@dataclass(frozen=True, slots=True)
class _Request:
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
        self.step_index = 0
        self._verifiers = tuple(verifiers)
        self._features = features
        gold_range = self.config.gold_range
        proxy_range = self.config.proxy_range or gold_range
        self._proxy = None if proxy is None else ScoringCall(proxy, "proxy", proxy_range)
        self._gold = None if gold is None else ScoringCall(gold, "gold", gold_range)
        self._own = (self._proxy, self._gold, self._verifiers)  # as given, before any `route`
        self._families = FamilyIndex()
        self._calibrator = Calibrator(self.config.calibration, proxy_range, gold_range)
        self._predictables = Predictables(self.config)
        self._guard = None if self.config.guard is None else Guard(self.config.guard)
        self._next_group = 0

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
        coroutine = self._score_groups(groups, anchors, influence, on_loop)
        return self._commit(drive_on_loop(coroutine) if on_loop else drive_in_place(coroutine))

    async def astep(
        self,
        groups: Iterable[Group | Sequence[Rollout]],
        anchors: Iterable[int] | None = None,
        influence: ArrayLike | None = None,
    ) -> StepResult:
        """`step` for callers that run an event loop themselves; sync scorers run in worker threads."""
        return self._commit(await self._score_groups(groups, anchors, influence, on_loop=True))

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
        families = self._families.copy()
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

        request = _Request(
            batch=batch,
            families=families,
            anchors=None if anchors is None else tuple(anchors),
            influence_P=_checked_influence(influence, batch.n_rollouts),
            features_PD=None
            if self._features is None
            else _checked_features(self._features(rollouts), batch.n_rollouts),
            failed_P=failed,
            undecided_P=undecided,
            score_proxy=lambda index, in_thread: score(proxy, index, in_thread),
            score_gold=lambda index, in_thread: score(gold, index, in_thread),
            shut_P=self._shut(batch, proxy.version),
            proxy_version=proxy.version,
            on_loop=on_loop,
        )
        return await self._run(request)

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
        proxy_GN = np.asarray(proxy, dtype=np.float64)
        if proxy_GN.ndim != 2 or 0 in proxy_GN.shape:
            raise GroupError(
                f"proxy must be an array of shape (n_groups, group_size), got shape {proxy_GN.shape}. "
                "Nothing was scored. Use step() for ragged groups."
            )
        n_groups, group_size = proxy_GN.shape
        index = self._families.copy()
        names = ["default"] * n_groups if families is None else list(families)
        ids = range(n_groups) if group_ids is None else tuple(group_ids)
        if len(names) != n_groups or len(set(ids)) != n_groups:
            raise GroupError(
                f"families and group_ids must have one entry per group ({n_groups}), ids unique, got {len(names)} "
                f"and {len(set(ids))}. Nothing was scored."
            )
        batch = Batch(
            group_ids=ids,
            sizes_G=np.full(n_groups, group_size),
            family_P=np.repeat(index.codes(names), group_size),
            rollouts=None,
            rollout_ids=None,
        )

        async def score_proxy(_: np.ndarray, __: bool) -> ScoreArray:
            return ScoreArray.from_answers(proxy_GN.reshape(-1), batch.n_rollouts, "proxy")

        async def score_gold(chosen: np.ndarray, _: bool) -> ScoreArray:
            values = gold(chosen) if callable(gold) else np.asarray(gold, np.float64).reshape(-1)[chosen]
            return ScoreArray.from_answers(np.asarray(values, np.float64), chosen.size, "gold")

        nobody = np.zeros(batch.n_rollouts, np.bool_)
        request = _Request(
            batch=batch,
            families=index,
            anchors=None if anchors is None else tuple(anchors),
            influence_P=_checked_influence(influence, batch.n_rollouts),
            features_PD=None
            if features is None
            else _checked_features(
                np.asarray(features, np.float64).reshape(batch.n_rollouts, -1), batch.n_rollouts
            ),
            failed_P=nobody,
            undecided_P=nobody,
            score_proxy=score_proxy,
            score_gold=score_gold,
            shut_P=self._shut(batch, proxy_version),
            proxy_version=proxy_version,
            on_loop=False,
        )
        return self._commit(drive_in_place(self._run(request)))

    def _shut(self, batch: Batch, proxy_version: str | None) -> BoolArray:
        """Rollouts whose proxy the guard leaves out of this step."""
        if self._guard is None:
            return np.zeros(batch.n_rollouts, np.bool_)
        if self._guard.version_changed(proxy_version):
            return np.ones(batch.n_rollouts, np.bool_)
        return self._guard.closed(batch.family_P)

    async def _run(self, request: _Request) -> Outcome:
        """Plan, score, and form the step's outcome; reads state and changes none."""
        batch = request.batch
        open_P = ~(request.failed_P | request.undecided_P)
        asked = np.flatnonzero(open_P)
        proxy = ScoreArray.unscored(batch.n_rollouts, "not_selected")
        eligible = Eligible(batch, open_P, request.shut_P)
        fraction = self._fraction()
        plan = plan_ahead(self.config, self.step_index, fraction, eligible, request.anchors)
        if plan is None:  # active: the proxy says where gold is worth most, so gold has to wait for it
            proxy = _spread(await request.score_proxy(asked, request.on_loop), asked, batch.n_rollouts)
            variance_P = self._predictables.residual_variance.predict(proxy.value, batch.family_P)
            plan = plan_active(
                self.config, self.step_index, fraction, eligible, variance_P, request.influence_P
            )
            chosen = np.flatnonzero(anchored_rollouts(plan, batch) & open_P)
            answers = await request.score_gold(chosen, request.on_loop)
        else:
            chosen = np.flatnonzero(anchored_rollouts(plan, batch) & open_P)
            if not self.config.asks_proxy:
                answers = await request.score_gold(chosen, request.on_loop)
            else:
                answers, everyone = await _score_both(request, chosen, asked)
                proxy = _spread(everyone, asked, batch.n_rollouts)
        anchored_P = np.zeros(batch.n_rollouts, np.bool_)
        anchored_P[chosen] = True
        return form_outcome(
            config=self.config,
            step=self.step_index,
            batch=batch,
            families=request.families,
            plan=plan,
            anchored_P=anchored_P,
            proxy=proxy,
            gold=_spread(answers, chosen, batch.n_rollouts),
            failed_P=request.failed_P,
            undecided_P=request.undecided_P,
            shut_P=request.shut_P,
            features_PD=request.features_PD,
            proxy_version=request.proxy_version,
            guard=self._guard,
            calibrator=self._calibrator,
            predictables=self._predictables,
        )

    def _fraction(self) -> float:
        """Fraction of units that the schedule wants anchored at this step."""
        if self.config.schedule == "adaptive":
            return self._predictables.anchor_fraction
        return scheduled_fraction(self.config, self.step_index)

    def _commit(self, outcome: Outcome) -> StepResult:
        """The only place that changes state."""
        self._families = outcome.families
        events = [] if self._guard is None else outcome.inform(self._guard, self._calibrator)
        refit = outcome.learn(self._calibrator, self._predictables, self._next_group)
        self._next_group += outcome.batch.n_groups
        self.step_index += 1
        return outcome.result(refit, events)

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
        answers = _spread(
            drive_on_loop(coroutine) if gold.is_async else drive_in_place(coroutine), asked, failed.size
        )
        answers.code[undecided] = reason_code("verifier_unknown")
        answers.value[failed], answers.code[failed] = self.config.gold_range[0], 0
        return answers

    # -- state ------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs, as plain data that survives JSON bit for bit."""
        return {
            "version": STATE_VERSION,
            "config": self.config.model_dump(mode="json"),
            "step_index": self.step_index,
            "next_group": self._next_group,
            "families": self._families.names,
            "calibrator": self._calibrator.state_dict(),
            "predictables": self._predictables.state_dict(),
            "guard": None if self._guard is None else self._guard.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume: the following steps give the same results as if the run had never stopped.

        Raises:
            StateError: the state is of another version or was saved under another configuration.
        """
        if state.get("version") != STATE_VERSION:
            raise StateError(
                f"The state must be of version {STATE_VERSION}, got {state.get('version')!r}. It could be read "
                "wrongly without notice. Resume it with the version of trueup that wrote it."
            )
        mine = self.config.model_dump(mode="json")
        changed = [name for name, value in mine.items() if state["config"].get(name) != value]
        if changed:
            raise StateError(
                f"The state must come from the same configuration, got different {', '.join(changed)}. The run "
                "would not be the one that was stopped. Build AnchoredReward with the saved config."
            )
        self.step_index = int(state["step_index"])
        self._next_group = int(state["next_group"])
        self._families = FamilyIndex(state["families"])
        self._calibrator.load_state_dict(state["calibrator"])
        self._predictables.load_state_dict(state["predictables"])
        if self._guard is not None:
            self._guard.load_state_dict(state["guard"])


async def _score_both(
    request: _Request, chosen: np.ndarray, asked: np.ndarray
) -> tuple[ScoreArray, ScoreArray]:
    """Gold of the anchors and proxy of all, side by side; a fault of one is raised when both are done."""
    if not (request.on_loop and chosen.size):
        return await request.score_gold(chosen, request.on_loop), await request.score_proxy(
            asked, request.on_loop
        )
    gold, proxy = await asyncio.gather(
        request.score_gold(chosen, True), request.score_proxy(asked, True), return_exceptions=True
    )
    for answer in (proxy, gold):
        if isinstance(answer, BaseException):
            raise answer
    assert isinstance(gold, ScoreArray)
    assert isinstance(proxy, ScoreArray)
    return gold, proxy


def _spread(some: ScoreArray, index: np.ndarray, n: int) -> ScoreArray:
    """Scores of the rollouts in `index`, placed among n; the others are `not_selected`."""
    if index.size == n:
        return some
    everyone = ScoreArray.unscored(n, "not_selected")
    everyone.value[index] = some.value
    everyone.code[index] = some.code
    details = {int(index[i]): text for i, text in some.details.items()}
    return ScoreArray(everyone.value, everyone.code, details)


def _checked_influence(influence: ArrayLike | None, n: int) -> FloatArray | None:
    if influence is None:
        return None
    values = np.asarray(influence, dtype=np.float64).reshape(-1)
    if values.size != n or not np.isfinite(values).all() or (values < 0).any():
        raise GroupError(
            f"influence must be one finite non-negative number per rollout ({n}), got {values.size} values. "
            "Propensities could not be formed. Leave it out to weigh all rollouts alike."
        )
    return values


def _checked_features(features: ArrayLike, n: int) -> FloatArray:
    values = np.asarray(features, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] != n or not np.isfinite(values).all():
        raise GroupError(
            f"features must be finite numbers of shape ({n}, d), got shape {values.shape}. The second stage of the "
            "calibration could not be fitted. Return one row of d numbers per rollout."
        )
    return values
