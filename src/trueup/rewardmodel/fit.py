"""Training a reward model's head: Bradley–Terry on pairs, ridge regression on scores, and how good it is.

Bradley–Terry: P(a beats b) = σ(s(a) − s(b)), so the bias cancels and only order is learned; regression learns
the level as well. Quality is measured *within* a question (pairs of answers to one prompt): a model that only
knows which questions are hard has an AUROC of .9 over everything and ½ within, and is useless to GRPO.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from trueup.errors import DataError
from trueup.scorers.features import Features
from trueup.scorers.reward_model import RewardModel
from trueup.stats.monotone import fit_isotonic

__all__ = [
    "Labelled",
    "auroc_within",
    "calibrate",
    "fit_pairs",
    "fit_scores",
    "pairs_within",
    "split_questions",
]

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Labelled:
    """Texts with gold labels, and the question that each one answers. All of length n, labels finite."""

    texts: tuple[str, ...]
    gold: FloatArray
    questions: tuple[Hashable, ...]

    def __post_init__(self) -> None:
        n = len(self.texts)
        if self.gold.shape != (n,) or len(self.questions) != n or not np.isfinite(self.gold).all():
            raise DataError(
                f"Labelled data must have one finite label and one question per text ({n}), got "
                f"{self.gold.shape} and {len(self.questions)}. Leave unscored rollouts out: a missing label is "
                "not a zero."
            )

    def __len__(self) -> int:
        return len(self.texts)

    def __add__(self, other: Labelled) -> Labelled:
        gold = np.concatenate([self.gold, other.gold])
        return Labelled(self.texts + other.texts, gold, self.questions + other.questions)

    def take(self, indices: ArrayLike) -> Labelled:
        chosen = [int(i) for i in np.asarray(indices).ravel()]
        questions = tuple(self.questions[i] for i in chosen)
        return Labelled(tuple(self.texts[i] for i in chosen), self.gold[chosen], questions)


def pairs_within(data: Labelled, max_per_question: int = 200, seed: int = 0) -> tuple[IntArray, IntArray]:
    """(better, worse) indices of pairs that answer one question and differ in gold; at most
    `max_per_question` each, drawn at random, so that a popular question does not decide alone."""
    rng = np.random.default_rng(seed)
    better: list[int] = []
    worse: list[int] = []
    members: dict[Hashable, list[int]] = {}
    for i, question in enumerate(data.questions):
        members.setdefault(question, []).append(i)
    for rows in members.values():
        pairs = [(a, b) for a in rows for b in rows if data.gold[a] > data.gold[b]]
        if len(pairs) > max_per_question:
            pairs = [pairs[k] for k in rng.choice(len(pairs), max_per_question, replace=False)]
        better += [a for a, _ in pairs]
        worse += [b for _, b in pairs]
    return np.array(better, np.int64), np.array(worse, np.int64)


def fit_pairs(data: Labelled, features: Features, l2: float = 1e-3, seed: int = 0) -> RewardModel:
    """Bradley–Terry by maximum likelihood with ridge `l2` (per pair); convex, so the start does not matter.

    Raises `DataError` without a single pair that differs: there is no order to learn.
    """
    better, worse = pairs_within(data, seed=seed)
    if not better.size:
        raise DataError("A reward model needs two answers to one question with different gold, got none.")
    X = features(data.texts)
    D = X[better] - X[worse]

    def loss(w: FloatArray) -> tuple[float, FloatArray]:
        z = D @ w
        value = float(np.mean(np.logaddexp(0.0, -z)) + 0.5 * l2 * w @ w)
        slope = -D.T @ (1.0 / (1.0 + np.exp(np.clip(z, -500, 500)))) / z.size + l2 * w
        return value, slope

    fit = minimize(loss, np.zeros(X.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 500})
    return RewardModel(features, np.asarray(fit.x), float(-np.mean(X @ fit.x)))


def fit_scores(data: Labelled, features: Features, l2: float = 1e-2) -> RewardModel:
    """Ridge regression of gold on the features, `l2` per row; the bias is not shrunk. Solved in whichever of
    rows and columns is fewer."""
    if len(data) < 2:
        raise DataError(f"A reward model needs at least two labelled texts, got {len(data)}. Label more.")
    X, y = features(data.texts), data.gold
    mean_x, mean_y = X.mean(axis=0), float(y.mean())
    A, r = X - mean_x, y - mean_y
    n, d = A.shape
    if d <= n:
        w = np.linalg.solve(A.T @ A + l2 * n * np.eye(d), A.T @ r)
    else:
        w = A.T @ np.linalg.solve(A @ A.T + l2 * n * np.eye(n), r)
    return RewardModel(features, w, mean_y - float(mean_x @ w))


def calibrate(model: RewardModel, data: Labelled) -> RewardModel:
    """Fit the monotone map from raw score to gold on data that the head was not trained on."""
    return replace(model, calibration=fit_isotonic(model.raw(data.texts), data.gold))


def auroc_within(scores: ArrayLike, data: Labelled) -> float:
    """P(the better of two answers to one question has the higher score), ties ½, mean over questions that
    have such a pair; NaN when none has."""
    s = np.asarray(scores, np.float64)
    per_question = []
    members: dict[Hashable, list[int]] = {}
    for i, question in enumerate(data.questions):
        members.setdefault(question, []).append(i)
    for rows in members.values():
        g, q = data.gold[rows], s[rows]
        ordered = g[:, None] > g[None, :]
        if ordered.any():
            wins = np.sign(q[:, None] - q[None, :])[ordered]
            per_question.append(float(np.mean((wins + 1) / 2)))
    return float(np.mean(per_question)) if per_question else float("nan")


def split_questions(data: Labelled, held_out: float = 0.25, seed: int = 0) -> tuple[Labelled, Labelled]:
    """Split within each question, at random: both parts see all questions, no text is in both."""
    rng = np.random.default_rng(seed)
    part = np.zeros(len(data), np.bool_)
    for question in dict.fromkeys(data.questions):
        rows = np.array([i for i, q in enumerate(data.questions) if q == question])
        part[rng.permutation(rows)[: round(held_out * rows.size)]] = True
    copies = {t for t, out in zip(data.texts, part, strict=True) if not out}
    held = [i for i in np.flatnonzero(part) if data.texts[i] not in copies]
    return data.take(np.flatnonzero(~part)), data.take(held)
