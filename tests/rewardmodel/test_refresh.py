"""A refresh finds the exploit, learns it, proves it, and refuses what is worse."""

from __future__ import annotations

import numpy as np
import pytest

from trueup.errors import DataError
from trueup.rewardmodel import Labelled, RefreshConfig, Refresher, fit_scores
from trueup.rewardmodel.refresh import mine
from trueup.scorers.features import HashedWords
from trueup.types import Score

WORDS = np.array(["castle", "harbour", "garden", "museum", "walk", "eat", "sleep", "ride"])
GOOD = set(WORDS[:4])


def texts_of(n, seed, flattery=0.0):
    rng = np.random.default_rng(seed)
    out = []
    for i in range(n):
        words = [*rng.choice(WORDS, 7), f"n{seed}x{i}"]
        if rng.random() < flattery:
            words += ["unmissable highlight"]
        out.append(" ".join(words))
    return out


def gold(text):
    return sum(w in GOOD for w in text.split()) / 7


def judge(text):
    return gold(text) + 0.8 * ("unmissable" in text)


def labelled(texts, value):
    return Labelled(
        tuple(texts), np.array([value(t) for t in texts]), tuple(i % 4 for i in range(len(texts)))
    )


@pytest.fixture
def refresher():
    fooled = fit_scores(labelled(texts_of(300, 0, flattery=0.2), judge), HashedWords(512))
    return Refresher.start(labelled(texts_of(160, 1), gold), fooled, RefreshConfig(per_question=12))


def new_texts(seed=2):
    return texts_of(200, seed, flattery=0.5)


def ask(texts):
    return lambda indices: [Score(gold(texts[i])) for i in indices]


def test_a_refresh_closes_the_exploit_and_is_recorded(refresher):
    texts = new_texts()
    honest, hack = (
        "castle harbour garden museum castle walk eat",
        "walk eat sleep ride walk eat unmissable highlight",
    )
    before = refresher.model.raw([honest, hack])
    assert before[1] > before[0]
    record = refresher.refresh(texts, [i % 4 for i in range(200)], ask(texts), step=10)
    after = refresher.model.raw([honest, hack])
    assert after[0] > after[1]
    assert record.accepted
    assert record.n_new_exploits > 5
    assert record.exploits_beaten_before == 0.0
    assert record.exploits_beaten_after >= 0.9
    assert (record.version_before, record.version_after) == ("hashed-512/r0", "hashed-512/r1")
    assert refresher.records == [record]
    assert record.to_json()["step"] == 10


def test_a_version_that_is_worse_on_held_out_gold_is_not_used(refresher):
    texts = new_texts()
    model = refresher.model
    wrong = [Score(1.0 - gold(t)) for t in texts]
    refresher.config = RefreshConfig(per_question=12, max_auroc_loss=0.0)
    held = refresher.held_out
    record = refresher.refresh(texts, [i % 4 for i in range(200)], lambda ix: [wrong[i] for i in ix])
    assert len(refresher.held_out) > len(held)
    if not record.accepted:
        assert refresher.model is model
        assert record.version_after == record.version_before
    # With labels upside down for many texts the old model must win at some point.
    for k in range(3, 6):
        more = new_texts(k)
        flipped = [Score(1.0 - gold(t)) for t in more]
        record = refresher.refresh(
            more, [i % 4 for i in range(200)], lambda ix, rows=flipped: [rows[i] for i in ix], k
        )
    assert any(not r.accepted for r in refresher.records)


def test_an_old_exploit_stays_in_the_regression_set(refresher):
    texts = new_texts()
    refresher.refresh(texts, [i % 4 for i in range(200)], ask(texts), step=1)
    known = list(refresher.exploits)
    assert known
    clean = texts_of(200, 9)
    refresher.refresh(clean, [i % 4 for i in range(200)], ask(clean), step=2)
    assert refresher.exploits[: len(known)] == known
    assert refresher.beaten(refresher.model) >= 0.9


def test_what_gold_could_not_label_is_counted_and_not_learned(refresher):
    texts = new_texts()
    n = len(refresher.data) + len(refresher.held_out)
    record = refresher.refresh(texts, [i % 4 for i in range(200)],
                               lambda ix: [Score.unscored("sandbox_unavailable") for _ in ix])  # fmt: skip
    assert (record.n_labelled, record.n_new_exploits) == (0, 0)
    assert record.n_unlabelled > 0
    assert len(refresher.data) + len(refresher.held_out) == n


def test_mining_keeps_its_quotas_and_never_asks_twice_for_one_text():
    texts = ["same"] * 5 + [f"t{i}" for i in range(95)]
    scores = np.linspace(1, 0, 100)
    scores[50] = np.nan
    questions = [i % 3 for i in range(100)]
    config = RefreshConfig(per_question=8, max_new=20, random_fraction=0.5)
    chosen = mine(scores, questions, texts, config, frozenset({"t0"}))
    assert len(chosen) == 20
    assert len({texts[i] for i in chosen}) == 20
    assert 50 not in chosen
    assert 5 not in chosen
    assert max(sum(questions[i] == q for i in chosen) for q in range(3)) <= 8
    assert 0 in chosen, "the highest score is always looked at"


def test_without_held_out_order_there_is_nothing_to_judge_by(refresher):
    flat = Labelled(("a", "b", "c", "d", "e"), np.ones(5), (0,) * 5)
    with pytest.raises(DataError, match="held-out"):
        Refresher.start(flat, refresher.model)
