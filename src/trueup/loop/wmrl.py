"""WMRL exactly as published, as a baseline: `WMRLReward` beside `AnchoredReward`, with the same `step`.

Source: arXiv 2608.12564 and the reference vectors of its public release. A step is *not* a transaction here, and
that is the point of keeping it apart:

    choose whole groups → proxy for all, gold for the anchors → walk over the groups in their order: an anchor group
    pushes its pairs one by one (each may refit the map), then its disagreement is measured with the map as it is
    now; any other group is mapped with the map as it is now → all anchor groups' advantages × one weight

so groups of one step may be scored by different maps and the disagreement is in sample. The walk is a loop over
groups, as published; it is also what the speed of `AnchoredReward` is compared with. What is biased in the method is
in `docs/wmrl.md`. One thing is ours: a score that did not come is NaN to the end, never 0.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trueup.errors import ConfigError, GroupError, StateError
from trueup.loop.batch import Batch, FamilyIndex
from trueup.loop.config import explain
from trueup.loop.driving import drive_in_place
from trueup.loop.wmrl_parts import (
    AdvantageStats,
    AnchorWeighter,
    Knots,
    OnlineCalibration,
    anchor_count,
    apply_knots,
    disagreement,
    step_advantages,
)
from trueup.scorers.base import ScorerLike, ScoringCall
from trueup.stats.sampling import mix_keys
from trueup.types import REASONS, BoolArray, FloatArray, Group, Rollout, ScoreArray, StepRecord, StepResult

__all__ = ["WMRLConfig", "WMRLReward"]

STATE_VERSION = 1
_ANY_RANGE = (-np.inf, np.inf)  # the method declares none; finite is all it asks


class WMRLConfig(BaseModel):
    """Settings of the published method, at its published defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    anchor_fraction: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of groups that gold scores, rounded to whole groups per step."""
    min_anchor_groups: Annotated[int, Field(ge=0)] = 1
    """Floor on anchor groups per step, even where the share rounds to fewer."""
    max_concurrent: Annotated[int, Field(ge=0)] | None = None
    """Cap on anchor groups per step: the sandbox's slots."""
    min_pairs: Annotated[int, Field(ge=1)] = 200
    """Pairs before the first fit; until then the map is the identity."""
    refit_every: Annotated[int, Field(ge=1)] = 64
    """Pairs between fits."""
    bins: Annotated[int, Field(ge=2)] = 10
    """Equal bins of [0, 1] whose means are fitted."""
    cap: Annotated[int, Field(ge=1)] = 5_000
    """Pairs kept, first in first out."""
    half_life: Annotated[float, Field(gt=0)] = 64
    """Anchor groups after which a group's disagreement counts half."""
    warmup: Annotated[int, Field(ge=1)] = 32
    """Anchor groups before the weight leaves 1."""
    w_max: Annotated[float, Field(ge=1)] = 4.0
    """Upper end of the weight."""
    target_weight: Annotated[float, Field(ge=1)] = 2.0
    """The weight at the end of the warm-up, by choice of c."""
    standardize: bool = True
    """Divide by the group's standard deviation."""
    eps: Annotated[float, Field(gt=0)] = 1e-4
    """Added to that standard deviation."""
    seed: int = 0
    """Anchors are a pure function of (seed, step, group ids)."""

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise ConfigError(explain(error, WMRLConfig)) from None


@dataclass
class _Walk:
    """What the walk over a step's groups found. Lists are per group, in order."""

    rewards: list[FloatArray] = field(default_factory=list)
    advantages: list[FloatArray] = field(default_factory=list)
    disagreements: list[float] = field(default_factory=list)
    refit_at: list[int] = field(default_factory=list)  # group in whose pairs a refit fell
    n_pairs: int = 0
    weight: float = 1.0
    stats: AdvantageStats = field(default_factory=lambda: AdvantageStats(0, 0, 0, 0))


class WMRLReward:
    """The published method with the interface of `AnchoredReward`.

    Args:
        proxy: cheap scorer for every rollout; gold: costly scorer for the rollouts of anchor groups. Functions
            `rollouts -> list[Score | float | None]` or objects with such a `score` method; sync only.
        settings: fields of `WMRLConfig`, by default the published ones.

    Raises:
        ConfigError: a setting is unknown or out of range, or a scorer is async.
    """

    def __init__(self, proxy: ScorerLike | None, gold: ScorerLike | None, **settings: Any) -> None:
        self.config = WMRLConfig(**settings)
        c = self.config
        self._proxy = None if proxy is None else _sync_call(proxy, "proxy")
        self._gold = None if gold is None else _sync_call(gold, "gold")
        self.calibration = OnlineCalibration(
            min_pairs=c.min_pairs, refit_every=c.refit_every, n_bins=c.bins, capacity=c.cap
        )
        self.weighter = AnchorWeighter(
            half_life=c.half_life, warmup=c.warmup, w_max=c.w_max, target_weight=c.target_weight
        )
        self.step_index = 0
        self._families = FamilyIndex()

    def step(
        self, groups: Iterable[Group | Sequence[Rollout]], anchors: Iterable[int] | None = None
    ) -> StepResult:
        """Score one step's groups; `anchors` fixes the anchor groups by index instead of drawing them.

        Returns:
            StepResult: advantages (n_groups, group_size), NaN where unscored or in a group with fewer than two
            scores (a list of arrays for ragged groups); `anchor_ids` are group ids, `anchor_weight` the factor.

        Raises:
            GroupError, ScorerContractError: faults of the call; no state has changed.
        """
        if self._proxy is None or self._gold is None:
            raise ConfigError(
                "step needs a proxy and a gold scorer, got None. Give both, or use step_arrays."
            )
        families = self._families.copy()
        batch = Batch.from_groups(groups, families)
        assert batch.rollouts is not None
        anchored_G = self._choose(batch, anchors)
        anchored_P = anchored_G[batch.group_P]
        gold = ScoreArray.unscored(batch.n_rollouts, "not_selected")
        chosen = np.flatnonzero(anchored_P).tolist()
        answers = drive_in_place(self._gold([batch.rollouts[i] for i in chosen]))
        gold.value[chosen], gold.code[chosen] = answers.value, answers.code
        proxy = drive_in_place(self._proxy(batch.rollouts))
        return self._commit(batch, families, anchored_G, proxy, gold)

    def step_arrays(
        self,
        proxy: ArrayLike,
        gold: ArrayLike,
        *,
        group_ids: Sequence[Hashable] | None = None,
        anchors: Iterable[int] | None = None,
    ) -> StepResult:
        """A step on scores that are arrays already, (n_groups, group_size), NaN where unscored; of `gold` only
        the anchor groups' entries are read."""
        proxy_GN, gold_GN = np.asarray(proxy, np.float64), np.asarray(gold, np.float64)
        if proxy_GN.ndim != 2 or 0 in proxy_GN.shape or gold_GN.shape != proxy_GN.shape:
            raise GroupError(
                "proxy and gold must be arrays of one shape (n_groups, group_size), got shapes "
                f"{proxy_GN.shape} and {gold_GN.shape}. Nothing was scored. Use step() for ragged groups."
            )
        n_groups, group_size = proxy_GN.shape
        ids = tuple(range(n_groups)) if group_ids is None else tuple(group_ids)
        if len(ids) != n_groups or len(set(ids)) != n_groups:
            raise GroupError(
                f"group_ids must be one per group ({n_groups}) and unique, got {len(ids)} with {len(set(ids))} "
                "distinct. Anchors are chosen by id. Correct them."
            )
        families = self._families.copy()
        family_P = np.repeat(families.codes(["default"] * n_groups), group_size)
        batch = Batch(ids, np.full(n_groups, group_size), family_P, None, None)
        anchored_G = self._choose(batch, anchors)
        seen = ScoreArray.unscored(batch.n_rollouts, "not_selected")
        chosen = np.flatnonzero(anchored_G[batch.group_P])
        answers = ScoreArray.from_answers(gold_GN.reshape(-1)[chosen], chosen.size, "gold")
        seen.value[chosen], seen.code[chosen] = answers.value, answers.code
        scores = ScoreArray.from_answers(proxy_GN.reshape(-1), batch.n_rollouts, "proxy")
        return self._commit(batch, families, anchored_G, scores, seen)

    def _choose(self, batch: Batch, anchors: Iterable[int] | None) -> BoolArray:
        """Which groups are anchored. The published draw is uniform without replacement; ours is so too, but by
        the order of keys that depend on (seed, step, id) alone, so that a resumed run chooses the same."""
        c, n = self.config, batch.n_groups
        anchored_G = np.zeros(n, np.bool_)
        if anchors is None:
            count = anchor_count(c.anchor_fraction, n, c.min_anchor_groups, c.max_concurrent)
            anchored_G[np.argsort(mix_keys(batch.group_keys, c.seed, self.step_index))[:count]] = True
            return anchored_G
        given = [*anchors]
        if len(set(given)) < len(given) or not all(
            isinstance(i, (int, np.integer)) and not isinstance(i, bool) and 0 <= i < n for i in given
        ):
            raise GroupError(
                f"anchors must be distinct group indices from 0 to {n - 1}, got {given}. Gold would be asked for "
                "the wrong groups. Give positions in `groups`, not ids."
            )
        anchored_G[np.array(given, np.int64)] = True
        return anchored_G

    def _commit(
        self,
        batch: Batch,
        families: FamilyIndex,
        anchored_G: BoolArray,
        proxy: ScoreArray,
        gold: ScoreArray,
    ) -> StepResult:
        """Everything after scoring; from here on nothing can fail and state changes."""
        before = self.calibration.knots
        walk = self._walk(batch, anchored_G, proxy.value, gold.value)
        result = self._result(batch, families, anchored_G, proxy, gold, walk, before)
        self._families = families
        self.step_index += 1
        return result

    def _walk(self, batch: Batch, anchored_G: BoolArray, proxy_P: FloatArray, gold_P: FloatArray) -> _Walk:
        """The published order: groups in turn, pairs before disagreement, the map as it is at that moment."""
        walk = _Walk()
        for g, (start, size) in enumerate(zip(batch.starts_G.tolist(), batch.sizes_G.tolist(), strict=True)):
            proxy_N = proxy_P[start : start + size]
            if not anchored_G[g]:
                walk.rewards.append(self.calibration.apply(proxy_N))
                continue
            gold_N = gold_P[start : start + size]
            paired = np.isfinite(proxy_N) & np.isfinite(gold_N)
            pairs = list(zip(proxy_N[paired].tolist(), gold_N[paired].tolist(), strict=True))
            walk.n_pairs += len(pairs)
            for f, r in pairs:
                if self.calibration.push(f, r):
                    walk.refit_at.append(g)
            value = disagreement(self.calibration.apply(proxy_N[paired]), gold_N[paired])
            if value is not None:
                walk.disagreements.append(value)
            self.weighter.update(value)
            walk.rewards.append(gold_N)
        walk.weight = self.weighter.weight
        walk.advantages, walk.stats = step_advantages(
            walk.rewards, anchored_G.tolist(), walk.weight, self.config.standardize, self.config.eps
        )
        return walk

    def _result(
        self,
        batch: Batch,
        families: FamilyIndex,
        anchored_G: BoolArray,
        proxy: ScoreArray,
        gold: ScoreArray,
        walk: _Walk,
        before: Knots | None,
    ) -> StepResult:
        anchored_P = anchored_G[batch.group_P]
        rewards_P, advantages_P = np.concatenate(walk.rewards), np.concatenate(walk.advantages)
        code_P = np.where(anchored_P, gold.code, proxy.code)
        n_queries = int(anchored_P.sum())
        propensity_P = np.full(batch.n_rollouts, float(anchored_G.mean()))
        notes = [
            f"the map was refitted within group {batch.group_ids[g]!r}; later groups of this step were scored by "
            "another map than earlier ones"
            for g in walk.refit_at
        ]
        record = StepRecord(
            step=self.step_index,
            estimator="wmrl",
            unit="group",
            group_ids=tuple(batch.group_ids),
            families=tuple(families.names),
            group=batch.group_P,
            family=batch.family_P,
            proxy=proxy.value,
            proxy_code=proxy.code,
            calibrated=apply_knots(before, proxy.value),
            gold=gold.value,
            gold_code=gold.code,
            anchored=anchored_P,
            propensity=propensity_P,
            reward=rewards_P,
            advantage=advantages_P,
            planned_fraction=self.config.anchor_fraction,
            realised_fraction=n_queries / batch.n_rollouts,
            n_gold_queries=n_queries,
            metrics=self._metrics(walk, code_P),
            notes=tuple(notes),
            refit=self.calibration.report() if walk.refit_at else None,
        )
        reasons = np.array([None, *REASONS], dtype=object)[code_P]
        return StepResult(
            advantages=batch.shaped(advantages_P),
            rewards=batch.shaped(rewards_P),
            propensities=batch.shaped(propensity_P),
            anchored=batch.shaped(anchored_P),
            reasons=batch.shaped(reasons),
            anchor_ids=tuple(batch.group_ids[i] for i in np.flatnonzero(anchored_G).tolist()),
            record=record,
            anchor_weight=walk.weight,
        )

    def _metrics(self, walk: _Walk, code_P: np.ndarray) -> dict[str, float]:
        level = self.weighter.level
        values = walk.disagreements
        return {
            "trueup/anchor_weight": walk.weight,
            "trueup/wmrl/disagreement": sum(values) / len(values) if values else float("nan"),
            "trueup/wmrl/disagreement_level": float("nan") if level is None else level,
            "trueup/wmrl/n_pairs": float(walk.n_pairs),
            "trueup/wmrl/n_fits": float(self.calibration.n_fits),
            "trueup/wmrl/n_groups": float(walk.stats.n_groups),
            "trueup/wmrl/n_anchor_groups": float(walk.stats.n_anchor_groups),
            "trueup/wmrl/n_degenerate": float(walk.stats.n_degenerate),
            "trueup/unscored/fraction": float((code_P != 0).mean()),
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs, as plain data that survives JSON bit for bit."""
        return {
            "version": STATE_VERSION,
            "config": self.config.model_dump(mode="json"),
            "step_index": self.step_index,
            "families": self._families.names,
            "calibration": self.calibration.state_dict(),
            "weighter": self.weighter.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume bit for bit. Raises StateError for a state of another version or configuration."""
        mine = {"version": STATE_VERSION, "config": self.config.model_dump(mode="json")}
        for name, value in mine.items():
            if state.get(name) != value:
                raise StateError(
                    f"The state must be of the same {name} ({value}), got {state.get(name)!r}. The run would not be "
                    "the one that was stopped. Build WMRLReward with the saved config and version."
                )
        self.step_index = int(state["step_index"])
        self._families = FamilyIndex(state["families"])
        self.calibration.load_state_dict(state["calibration"])
        self.weighter.load_state_dict(state["weighter"])


def _sync_call(scorer: ScorerLike, role: str) -> ScoringCall:
    call = ScoringCall(scorer, role, _ANY_RANGE)
    if call.is_async:
        raise _must_be_sync(role)
    return call


def _must_be_sync(role: str) -> ConfigError:
    return ConfigError(
        f"The {role} scorer must be sync for WMRLReward, got an async one. The published loop scores in line. "
        "Use AnchoredReward(estimator='wmrl'), which awaits scorers, or pass a sync function."
    )
