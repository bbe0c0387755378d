"""Keeping a reward model honest: look at what the policy does to score high, label it, learn, and prove it.

    mine the policy's new rollouts with the highest scores → label them by verifiers or gold → add them, with
    quotas → retrain → gate the new version on held-out gold and on every exploit ever found → swap and record

The gate has two halves because each alone is passed by a bad model. Held-out gold comes from ordinary rollouts,
among which exploits are rare, so a model that still falls for one can be better there. And a model that scores
every exploit low may have forgotten the rest. A version that fails either half is not used; the data stay.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trueup.errors import DataError
from trueup.rewardmodel.fit import Labelled, auroc_within, calibrate, fit_pairs, split_questions
from trueup.scorers.reward_model import RewardModel
from trueup.types import Score
from trueup.verifiers.base import Frozen

__all__ = ["Exploit", "RefreshConfig", "RefreshRecord", "Refresher", "mine"]

FloatArray: TypeAlias = NDArray[np.float64]
Label: TypeAlias = Callable[[Sequence[int]], Sequence[Score]]
"""Gold for the candidates with these indices; a `Score` each, perhaps unscored."""


class RefreshConfig(Frozen):
    """Quotas and the gate."""

    per_question: int = Field(default=4, ge=1)  # mined candidates per question and refresh
    max_new: int = Field(default=128, ge=1)  # mined candidates in all
    random_fraction: float = Field(
        default=0.25, ge=0, le=1
    )  # of the quota, drawn at random: keeps the rest known
    exploit_gap: float = Field(default=0.3, gt=0)  # score minus gold from which a mined text is an exploit
    max_auroc_loss: float = Field(default=0.02, ge=0)  # held-out, against the version in use
    exploits_beaten: float = Field(default=0.9, ge=0, le=1)  # share of exploits scored below an honest rival
    held_out: float = Field(default=0.25, gt=0, lt=1)
    l2: float = Field(default=1e-3, gt=0)


@dataclass(frozen=True, slots=True)
class Exploit:
    """A text that was scored high and is worth little, and an answer to the same question that is worth more
    and was scored below it: a model has learned when it puts the second above the first."""

    text: str
    rival: str
    question: Hashable


@dataclass(frozen=True, slots=True)
class RefreshRecord:
    """What one refresh did, for the run log."""

    step: int
    version_before: str
    version_after: str  # the same when the gate said no
    accepted: bool
    reason: str
    n_labelled: int
    n_unlabelled: int  # asked for, and gold had no answer
    n_new_exploits: int
    auroc_before: float
    auroc_after: float
    exploits_beaten_before: float
    exploits_beaten_after: float

    def to_json(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__}
        return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in values.items()}


def mine(
    scores: FloatArray,
    questions: Sequence[Hashable],
    texts: Sequence[str],
    config: RefreshConfig,
    known: frozenset[str] = frozenset(),
    seed: int = 0,
) -> list[int]:
    """Indices of rollouts worth a label: per question the highest-scored new texts, plus a random share so
    that the model stays right about the ordinary ones. Texts that are known or repeated are skipped."""
    rng = np.random.default_rng(seed)
    n_random = round(config.random_fraction * config.per_question)
    order = [int(i) for i in np.argsort(-scores, kind="stable") if math.isfinite(scores[i])]
    chosen: list[int] = []
    seen, taken = set(known), Counter[Hashable]()
    for candidates, quota in (
        (order, config.per_question - n_random),
        (rng.permutation(order).tolist(), config.per_question),
    ):
        for i in candidates:
            if len(chosen) < config.max_new and taken[questions[i]] < quota and texts[i] not in seen:
                chosen.append(int(i))
                seen.add(texts[i])
                taken[questions[i]] += 1
    return chosen


@dataclass
class Refresher:
    """The model in use, its data, and the regression set of exploits. `model` changes only when the gate
    says yes; `records` keeps every attempt."""

    model: RewardModel
    data: Labelled
    held_out: Labelled
    config: RefreshConfig = field(default_factory=RefreshConfig)
    exploits: list[Exploit] = field(default_factory=list)
    records: list[RefreshRecord] = field(default_factory=list)

    @classmethod
    def start(cls, data: Labelled, model: RewardModel, config: RefreshConfig | None = None) -> Refresher:
        """`model` as it is; `data` is split into what later versions train on and what judges them."""
        config = config or RefreshConfig()
        train, held_out = split_questions(data, config.held_out)
        if not len(held_out) or math.isnan(auroc_within(held_out.gold, held_out)):
            raise DataError(
                f"A refresher needs held-out answers that differ in gold, got {len(held_out)} without any "
                "pair. No version could be judged. Label more answers per question."
            )
        return cls(model, train, held_out, config)

    def refresh(
        self, texts: Sequence[str], questions: Sequence[Hashable], label: Label, step: int = 0
    ) -> RefreshRecord:
        """Mine the policy's new rollouts, label, retrain, gate. `label` is asked once, for the mined ones."""
        old = self.model
        scores = old.predict(texts)
        chosen = mine(scores, questions, texts, self.config, frozenset(self.data.texts), seed=step)
        golds = label(chosen) if chosen else []
        if len(golds) != len(chosen):
            raise DataError(f"label must return one Score per index, got {len(golds)} for {len(chosen)}.")
        scored = [(i, g.value) for i, g in zip(chosen, golds, strict=True) if g.value is not None]
        new = Labelled(
            tuple(texts[i] for i, _ in scored),
            np.array([g for _, g in scored], np.float64),
            tuple(questions[i] for i, _ in scored),
        )
        train, held = split_questions(new, self.config.held_out, seed=step) if len(new) else (new, new)
        self.data, self.held_out = self.data + train, self.held_out + held
        found = self._find_exploits(new, scores[[i for i, _ in scored]])
        self.exploits += found
        candidate = replace(self._retrain(), round=old.round + 1)
        record = self._judge(candidate, step, len(scored), len(chosen) - len(scored), len(found))
        if record.accepted:
            self.model = candidate
        self.records.append(record)
        return record

    def _retrain(self) -> RewardModel:
        """The head on one part of the data, its calibration on the other."""
        head, rest = split_questions(self.data, 0.2, seed=1)
        model = fit_pairs(head, self.model.features, self.config.l2)
        return calibrate(model, rest if len(rest) >= 10 else head)

    def _find_exploits(self, new: Labelled, scores: FloatArray) -> list[Exploit]:
        """Mined texts that the model in use overrates by `exploit_gap` and prefers to an answer that is worth
        more; the rival is the best such answer."""
        pool = self.data + self.held_out
        pool_scores = self.model.raw(pool.texts)
        raw = self.model.raw(new.texts)
        out = []
        for k, (text, gold, question) in enumerate(zip(new.texts, new.gold, new.questions, strict=True)):
            if scores[k] - gold < self.config.exploit_gap:
                continue
            rivals = [
                i
                for i, q in enumerate(pool.questions)
                if q == question and pool.gold[i] > gold and pool_scores[i] < raw[k]
            ]
            if rivals:
                best = max(rivals, key=lambda i: pool.gold[i])
                out.append(Exploit(text, pool.texts[best], question))
        return out

    def beaten(self, model: RewardModel) -> float:
        """Share of all known exploits that the model scores below their honest rival; 1 without any."""
        if not self.exploits:
            return 1.0
        bad = model.raw([e.text for e in self.exploits])
        good = model.raw([e.rival for e in self.exploits])
        return float(np.mean(good > bad))

    def _judge(
        self, candidate: RewardModel, step: int, n_labelled: int, n_unlabelled: int, n_found: int
    ) -> RefreshRecord:
        old = self.model
        before = auroc_within(old.raw(self.held_out.texts), self.held_out)
        after = auroc_within(candidate.raw(self.held_out.texts), self.held_out)
        beaten_before, beaten_after = self.beaten(old), self.beaten(candidate)
        reason = "better or as good on held-out gold, and past the exploits"
        accepted = True
        if after < before - self.config.max_auroc_loss:
            accepted, reason = False, f"held-out AUROC fell from {before:.3f} to {after:.3f}"
        elif beaten_after < max(self.config.exploits_beaten, beaten_before - 0.02):
            accepted, reason = False, f"only {beaten_after:.0%} of the known exploits are beaten"
        return RefreshRecord(
            step=step,
            version_before=old.version,
            version_after=candidate.version if accepted else old.version,
            accepted=accepted,
            reason=reason,
            n_labelled=n_labelled,
            n_unlabelled=n_unlabelled,
            n_new_exploits=n_found,
            auroc_before=before,
            auroc_after=after,
            exploits_beaten_before=beaten_before,
            exploits_beaten_after=beaten_after,
        )
