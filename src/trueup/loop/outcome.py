"""What one step found: formed from scores without changing state, then learned from, then reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.loop.batch import Batch, FamilyIndex
from trueup.loop.calibration import Calibrator
from trueup.loop.config import AnchorConfig
from trueup.loop.estimators import ESTIMATORS, StepScores, anchored_groups, answered_propensity
from trueup.loop.guard import Guard, StepEvidence
from trueup.loop.learning import Predictables
from trueup.loop.schedule import AnchorPlan
from trueup.loop.wmrl_parts import disagreement
from trueup.stats.advantages import center
from trueup.stats.fusion import projected_correction, within_group_variance
from trueup.types import (
    REASONS,
    BoolArray,
    FloatArray,
    ScoreArray,
    StepRecord,
    StepResult,
    reason_code,
)

__all__ = ["Outcome", "form_outcome"]


@dataclass(frozen=True)
class Outcome:
    """A scored step. Vectors are flat over rollouts, grids `_GN` are padded."""

    config: AnchorConfig
    step: int
    batch: Batch
    families: FamilyIndex
    plan: AnchorPlan
    anchored_P: BoolArray
    propensity_P: FloatArray
    proxy: ScoreArray
    gold: ScoreArray
    calibrated_P: FloatArray
    features_PD: FloatArray | None
    clipped_fraction: float
    scores: StepScores
    rewards_P: FloatArray
    advantages_P: FloatArray
    code_P: NDArray[np.int8]  # why a reward is missing; 0 where it is not
    asked_P: BoolArray  # the proxy was asked for it
    lost_families: tuple[int, ...]  # whose proxy scores are missing too often in this step
    proxy_version: str | None
    notes: tuple[str, ...]

    @property
    def pairs(self) -> NDArray[np.int64]:
        """Flat indices of the anchors that both proxy and gold have scored."""
        both = self.anchored_P & np.isfinite(self.calibrated_P) & np.isfinite(self.gold.value)
        return np.flatnonzero(both)

    def inform(self, guard: Guard, calibrator: Calibrator) -> list[str]:
        """Let the guard see this step; forgets the calibration of a proxy that has been replaced."""
        if guard.version_changed(self.proxy_version):
            calibrator.forget()
        evidence = StepEvidence(
            family_P=self.batch.family_P,
            group_P=self.batch.group_P,
            proxy_asked_P=self.asked_P,
            calibrated_P=self.calibrated_P,
            gold_P=self.gold.value,
            anchored_P=self.anchored_P,
            propensity_P=self.propensity_P,
            width=self.config.width,
            whole_groups=self.plan.unit == "group",
        )
        return guard.observe(self.step, evidence, list(self.lost_families), self.proxy_version)

    def learn(
        self, calibrator: Calibrator, predictables: Predictables, first_group: int
    ) -> Mapping[str, Any] | None:
        """Update every predictable quantity from this step; returns the report of a refit, if one was due."""
        if not self.config.learns:
            return None
        index = self.pairs
        family = self.batch.family_P[index]
        calibrated, gold = self.calibrated_P[index], self.gold.value[index]
        self._update_moments(predictables)
        residual = gold - self.scores.coefficient * calibrated
        predictables.residual_variance.update(self.proxy.value[index], residual, family)
        return calibrator.push(
            proxy_A=self.proxy.value[index],
            gold_A=gold,
            weight_A=1.0 / self.propensity_P[index],
            predicted_A=calibrated,
            family_A=family,
            group_A=first_group + self.batch.group_P[index],
            families=self.families.names,
            features_AD=None if self.features_PD is None else self.features_PD[index],
        )

    def _update_moments(self, predictables: Predictables) -> None:
        s = self.scores
        if not self.anchored_P.any():
            return
        predictables.spread.update(*self._gold_variance(), predictables.scale_fade)
        if self.config.mode == "shadow":
            return
        if self.config.estimator == "control_variate":
            predictables.coefficient_estimate.update(*_inner_products(s))
        elif self.config.estimator == "mse":
            unshrunk, control = _unshrunk_correction(s)
            cross, square = projected_correction(unshrunk, control)
            if square > 0:
                predictables.correction.update(cross / square)
        elif self.config.estimator == "adaptive":
            self._update_leaning(predictables)
        elif self.config.estimator == "wmrl":
            for row in np.flatnonzero(np.logical_or.reduce(s.anchored_GN, axis=1)):
                both = np.isfinite(s.calibrated_GN[row]) & np.isfinite(s.gold_GN[row])
                predictables.weighter.update(disagreement(s.calibrated_GN[row][both], s.gold_GN[row][both]))

    def _update_leaning(self, predictables: Predictables) -> None:
        """Each family's projected correction at κ = 1, from the groups that belong to it."""
        control = center(self.batch.grid(self.calibrated_P))
        correction = np.zeros(self.batch.n_rollouts)
        index = self.pairs
        residual = self.gold.value[index] - self.calibrated_P[index]
        correction[index] = residual / self.propensity_P[index]
        correction_GN = self.batch.grid(correction)
        family_G = self.batch.family_P[self.batch.starts_G]
        for code in np.unique(family_G[self.batch.group_P[index]]).tolist():
            mine = family_G == code
            cross, square = projected_correction(correction_GN[mine], control[mine])
            if square > 1e-6 * self.config.width**2 * int(mine.sum()):  # a flat proxy has no direction
                predictables.leaning.update(code, cross / square)

    def _gold_variance(self) -> tuple[float, int]:
        """Gold's variance within groups, summed, and the number of groups. Where single rollouts are anchored it
        needs the corrected rewards; where a group has gold alone, gold's own variance is it."""
        s = self.scores
        if self.plan.unit == "group":
            return _plain_variance(s.gold_GN)
        gold_alone = ~np.logical_or.reduce(np.isfinite(s.calibrated_GN), axis=1)
        rewards = self.batch.grid(self.rewards_P)
        mixed = ~gold_alone
        pi, _ = answered_propensity(s.propensity_GN, s.anchored_GN, np.isfinite(s.gold_GN))
        parts = (s.calibrated_GN, s.gold_GN, s.anchored_GN, pi, rewards)
        if not gold_alone.any():
            return within_group_variance(*parts)
        total, n_groups = within_group_variance(*(part[mixed] for part in parts))
        more, n_more = _plain_variance(s.gold_GN[gold_alone])
        return total + more, n_groups + n_more

    def result(self, refit: Mapping[str, Any] | None, events: list[str]) -> StepResult:
        """The caller's view."""
        batch = self.batch
        reasons = np.array([None, *REASONS], dtype=object)[self.code_P]
        unit_is_group = self.plan.unit == "group"
        return StepResult(
            advantages=batch.shaped(self.advantages_P),
            rewards=batch.shaped(self.rewards_P),
            propensities=batch.shaped(self.propensity_P),
            anchored=batch.shaped(self.anchored_P),
            reasons=batch.shaped(reasons),
            anchor_ids=self._anchor_ids(unit_is_group),
            record=self._record(refit, events),
            anchor_weight=self.scores.anchor_weight,
        )

    def _anchor_ids(self, unit_is_group: bool) -> tuple[Any, ...]:
        if unit_is_group:
            return tuple(self.batch.group_ids[i] for i in np.flatnonzero(self.plan.anchored_U).tolist())
        index = np.flatnonzero(self.anchored_P).tolist()
        ids = self.batch.rollout_ids
        return tuple(index) if ids is None else tuple(ids[i] for i in index)

    def _record(self, refit: Mapping[str, Any] | None, events: list[str]) -> StepRecord:
        batch = self.batch
        n_queries = int(self.anchored_P.sum())
        return StepRecord(
            step=self.step,
            estimator=self.config.estimator,
            unit=self.plan.unit,
            group_ids=tuple(batch.group_ids),
            families=tuple(self.families.names),
            group=batch.group_P,
            family=batch.family_P,
            proxy=self.proxy.value,
            proxy_code=self.proxy.code,
            calibrated=self.calibrated_P,
            gold=self.gold.value,
            gold_code=self.gold.code,
            anchored=self.anchored_P,
            propensity=self.propensity_P,
            reward=self.rewards_P,
            advantage=self.advantages_P,
            planned_fraction=self.plan.planned_fraction,
            realised_fraction=n_queries / batch.n_rollouts,
            n_gold_queries=n_queries,
            metrics=self._metrics(n_queries),
            notes=(*self.notes, *(self._named(event) for event in events)),
            refit=refit,
        )

    def _named(self, event: str) -> str:
        code, what = event.split(":", 1)
        return f"guard: {self.families.names[int(code)]} {what}"

    def _metrics(self, n_queries: int) -> dict[str, float]:
        s = self.scores
        index = self.pairs
        residual = self.gold.value[index] - self.calibrated_P[index]
        metrics = {
            "trueup/proxy/mean": _mean(self.proxy.value),
            "trueup/calibrated/mean": _mean(self.calibrated_P),
            "trueup/gold/mean": _mean(self.gold.value),
            "trueup/reward/mean": _mean(self.rewards_P),
            "trueup/residual/mean": _mean(residual),
            "trueup/residual/rms": float(np.sqrt(_mean(residual**2))),
            "trueup/anchor/fraction": n_queries / self.batch.n_rollouts,
            "trueup/anchor/planned_fraction": self.plan.planned_fraction,
            "trueup/anchor_weight": s.anchor_weight,
            "trueup/coefficient": s.coefficient,
            "trueup/kappa": s.kappa if s.leaning_GN is None else _mean(s.leaning_GN),
            "trueup/scale": s.scale,
            "trueup/calibration/clipped_fraction": self.clipped_fraction,
            "trueup/unscored/fraction": float((self.code_P != 0).mean()),
            "trueup/guard/dropped_fraction": float((self.code_P == reason_code("guarded")).mean()),
        }
        for scores in (self.proxy, self.gold):
            for code, count in enumerate(np.bincount(scores.code, minlength=len(REASONS) + 1)[1:].tolist()):
                if count and REASONS[code] != "not_selected":
                    key = f"trueup/failure/{REASONS[code]}"
                    metrics[key] = metrics.get(key, 0.0) + count
        return metrics


def form_outcome(
    *,
    config: AnchorConfig,
    step: int,
    batch: Batch,
    families: FamilyIndex,
    plan: AnchorPlan,
    anchored_P: BoolArray,
    proxy: ScoreArray,
    gold: ScoreArray,
    failed_P: BoolArray,
    undecided_P: BoolArray,
    shut_P: BoolArray,
    features_PD: FloatArray | None,
    proxy_version: str | None,
    guard: Guard | None,
    calibrator: Calibrator,
    predictables: Predictables,
) -> Outcome:
    """Apply the map in force, form rewards and advantages, and say why what is missing is missing."""
    raw = config.estimator == "proxy"
    calibrated = proxy.value if raw else calibrator.apply(proxy.value, batch.family_P, features_PD)
    propensity = plan.propensity_U if plan.unit == "rollout" else plan.propensity_U[batch.group_P]
    seen_gold, known = gold.value, calibrated
    if failed_P.any():  # the reward of a failed hard constraint is known: lowest, from both scorers' view
        lowest = config.gold_range[0]
        known = np.where(failed_P, lowest, calibrated)
        whole = plan.unit == "group"
        fills_gold = failed_P & (plan.anchored_U[batch.group_P] if whole else False)
        seen_gold = np.where(fills_gold | (failed_P & (config.estimator == "gold")), lowest, seen_gold)
        anchored_view = anchored_P | fills_gold
    else:
        anchored_view = anchored_P
    asked = ~(failed_P | undecided_P)
    lost: list[int] = [] if guard is None else guard.lost_now(batch.family_P, asked, proxy.value)
    for family in lost:
        shut_P = shut_P | (batch.family_P == family)
    dropped = undecided_P | (shut_P & ~failed_P)
    if dropped.any():
        known = np.where(dropped, np.nan, known)
    scores = StepScores(
        config=config,
        calibrated_GN=batch.grid(known),
        gold_GN=batch.grid(seen_gold),
        anchored_GN=batch.grid(anchored_view, False),
        propensity_GN=batch.grid(propensity),
        scale=predictables.scale,
        coefficient=predictables.coefficient,
        kappa=predictables.kappa,
        leaning_GN=(
            batch.grid(predictables.leaning.kappa(batch.family_P)) if config.estimator == "adaptive" else None
        ),
        anchor_weight=predictables.weighter.weight,
    )
    with np.errstate(invalid="ignore"):
        rewards_GN, advantages_GN = ESTIMATORS["gold" if config.mode == "shadow" else config.estimator](
            scores
        )
    rewards, advantages = batch.flat(rewards_GN), batch.flat(advantages_GN)
    notes: tuple[str, ...] = ()
    if config.learns and plan.unit == "group" and not plan.propensity_U.any():
        notes = ("no group was to be anchored; this step trains on the proxy alone",)
    proxy_code = np.where((proxy.code == 0) & shut_P, np.int8(reason_code("guarded")), proxy.code)
    code = _reasons(config, rewards, anchored_P, proxy_code, gold, undecided_P)
    if anchored_P.any() and not np.isfinite(gold.value[anchored_P]).any() and config.estimator != "proxy":
        rewards, advantages = np.full_like(rewards, np.nan), np.full_like(advantages, np.nan)
        code = np.where(code == 0, np.int8(reason_code("gold_unavailable")), code)
        notes = (
            "no anchor came back from gold; the step is unscored rather than trained on the proxy alone",
        )
    return Outcome(
        config=config,
        step=step,
        batch=batch,
        families=families,
        plan=plan,
        anchored_P=anchored_P,
        propensity_P=propensity,
        proxy=proxy,
        gold=gold,
        calibrated_P=calibrated,
        features_PD=features_PD,
        clipped_fraction=0.0 if raw else calibrator.clipped(proxy.value),
        scores=scores,
        rewards_P=rewards,
        advantages_P=advantages,
        code_P=code,
        asked_P=asked,
        lost_families=tuple(lost),
        proxy_version=proxy_version,
        notes=notes,
    )


def _reasons(
    config: AnchorConfig,
    rewards: FloatArray,
    anchored: BoolArray,
    proxy_code: NDArray[np.int8],
    gold: ScoreArray,
    undecided: BoolArray,
) -> NDArray[np.int8]:
    """Why each missing reward is missing: an undecided constraint, else gold's reason for an anchor, else the
    proxy's, else that it was not selected."""
    missing = ~np.isfinite(rewards)
    if not missing.any():
        return np.zeros(rewards.size, np.int8)
    not_selected = np.int8(reason_code("not_selected"))
    trains_on_gold = config.estimator in ("gold", "gold_budget") or config.mode == "shadow"
    code = np.where(anchored & (gold.code != 0), gold.code, not_selected if trains_on_gold else proxy_code)
    code = np.where(undecided, np.int8(reason_code("verifier_unknown")), code)
    return np.where(missing, code, 0).astype(np.int8)


def _mean(values: FloatArray) -> float:
    total = float(values.sum())
    if values.size and np.isfinite(total):
        return total / values.size
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else float("nan")


def _plain_variance(gold_GN: FloatArray) -> tuple[float, int]:
    """Sum of the gold variances within groups, over those with two scored rollouts, and their number."""
    gold_GN = gold_GN[np.isfinite(gold_GN[:, 0]) | np.isfinite(gold_GN).any(axis=1)]
    scored = np.isfinite(gold_GN)
    n = scored.sum(axis=1)
    use = n >= 2
    if not use.any():
        return 0.0, 0
    filled = np.where(scored, gold_GN, 0.0)[use]
    mean = filled.sum(axis=1) / n[use]
    squares = (filled**2).sum(axis=1) - n[use] * mean**2
    return float((np.maximum(squares, 0.0) / (n[use] - 1)).sum()), int(use.sum())


def _inner_products(s: StepScores) -> tuple[float, float, int]:
    """Σ⟨A(r), A(f̂)⟩, Σ⟨A(f̂), A(f̂)⟩ and the number of anchored groups with both."""
    a = anchored_groups(s)
    both = np.isfinite(a.proxy_RN) & np.isfinite(a.gold_RN)
    p, g = np.where(both, a.proxy_RN, 0.0), np.where(both, a.gold_RN, 0.0)
    return float((g * p).sum()), float((p * p).sum()), int(np.logical_or.reduce(both, axis=1).sum())


def _unshrunk_correction(s: StepScores) -> tuple[FloatArray, FloatArray]:
    """The step's Horvitz–Thompson correction in advantage space at κ = 1, and the proxy's advantages."""
    full = replace(s, kappa=1.0)
    control = ESTIMATORS["proxy"](s)[1]
    return ESTIMATORS["mse"](full)[1] - control, control
