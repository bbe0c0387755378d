"""Judges are wrong in the way that they promise to be wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest, spearmanr

from trueup.errors import ConfigError
from trueup.tasks.catalogue import load_programs
from trueup.tasks.judges import (
    N_DRAWS,
    Judge,
    copula_scores,
    hackable_mean,
    latent_of_uniform,
    monotone_mean,
    pearson_of_spearman,
    read_assurance,
    read_checklist,
)

PROMISES = (
    '"""Complete, robust, verified, reviewed, tested: handles accents, quotes, white space, punctuation."""\n'
)


def test_the_monotone_judge_keeps_the_order_of_gold() -> None:
    gold = np.linspace(0, 1, 21)
    mean = monotone_mean(gold)
    assert mean[0] == pytest.approx(0.08)
    assert mean[-1] == pytest.approx(0.90)
    assert (np.diff(mean) > 0).all()


def test_the_hackable_judge_ranks_a_hacker_first_and_the_reference_next() -> None:
    programs = load_programs()
    opinion = hackable_mean([p.source for p in programs])
    ranked = [programs[k] for k in np.argsort(-opinion)]
    assert ranked[0].is_hacker
    assert ranked[1].name == "reference"
    assert ((opinion >= 0) & (opinion <= 1)).all()


def test_what_a_hackable_judge_reads_is_the_source_and_nothing_else() -> None:
    """The same body with promises in the prose is worth more; the body does not change."""
    body = "def canonicalise(text):\n    return text\n"
    assert hackable_mean([PROMISES + body])[0] > hackable_mean([body])[0] + 0.2


@pytest.mark.parametrize(
    "carrier",
    [
        '"""{}"""\ndef canonicalise(text):\n    return text\n',
        "def canonicalise(text):\n    # {}\n    return text\n",
        'def canonicalise(text):\n    """{}"""\n    return text\n',
    ],
)
def test_promises_count_wherever_people_read_them(carrier: str) -> None:
    promise = "verified and robust: strips accents"
    assert read_assurance(carrier.format(promise)) > read_assurance(carrier.format("nothing"))
    assert read_checklist(carrier.format(promise)) > read_checklist(carrier.format("nothing"))


def test_names_are_read_as_words() -> None:
    plain = "def canonicalise(text):\n    return text\n"
    assert read_assurance(plain + "class VerifiedRobustString(str):\n    pass\n") > read_assurance(plain)
    assert read_assurance(plain + "def fully_tested(x):\n    return x\n") > read_assurance(plain)


def test_code_ticks_off_a_rule_only_where_it_is_code() -> None:
    code = "def canonicalise(text):\n    return ' '.join(text.split())\n"
    comment = "def canonicalise(text):\n    # text.split()\n    return text\n"
    assert read_checklist(code) == pytest.approx(1 / 8)
    assert read_checklist(comment) == 0.0


def test_a_score_is_the_mean_of_clipped_draws() -> None:
    judge = Judge(np.array([0.5, 0.95]), noise=0.2)
    normals = np.array([[-1.0, 0.0, 1.0, 2.0, -2.0], [1.0, 1.0, 1.0, 1.0, -1.0]])
    scores = judge.score(np.array([0, 1]), normals)
    by_hand = [np.mean([0.3, 0.5, 0.7, 0.9, 0.1]), np.mean([1.0, 1.0, 1.0, 1.0, 0.75])]
    np.testing.assert_allclose(scores, by_hand)


def test_a_judge_without_noise_gives_its_opinion() -> None:
    judge = Judge(np.array([0.2, 0.8]), noise=0.0)
    normals = np.random.default_rng(0).standard_normal((3, 2, N_DRAWS))
    np.testing.assert_allclose(judge.score(np.array([[0, 1]] * 3), normals), [[0.2, 0.8]] * 3)


def test_negative_noise_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"at least 0, got -0\.1"):
        Judge(np.zeros(1), noise=-0.1)


@pytest.mark.parametrize("wanted", [-0.3, 0.0, 0.3, 0.6, 0.85, 0.99])
def test_a_copula_judge_has_the_rank_correlation_that_was_asked_for(wanted: float) -> None:
    rng = np.random.default_rng(7)
    latent, normals = rng.standard_normal((2, 40_000))
    measured = spearmanr(latent, copula_scores(latent, normals, wanted)).statistic
    assert measured == pytest.approx(wanted, abs=4 / np.sqrt(40_000))


def test_a_copula_judge_has_a_uniform_marginal_distribution() -> None:
    rng = np.random.default_rng(8)
    latent, normals = rng.standard_normal((2, 5_000))
    assert kstest(copula_scores(latent, normals, 0.7), "uniform").pvalue > 0.01


def test_perfect_rank_correlation_returns_the_truth() -> None:
    u = np.linspace(0.05, 0.95, 19)
    np.testing.assert_allclose(copula_scores(latent_of_uniform(u), np.ones(19), 1.0), u)
    np.testing.assert_allclose(copula_scores(latent_of_uniform(u), np.ones(19), -1.0), 1 - u)


@given(st.floats(-1, 1))
def test_pearson_of_spearman_is_odd_and_inside_the_range(rank: float) -> None:
    r = pearson_of_spearman(rank)
    assert -1.0 - 1e-12 <= r <= 1.0 + 1e-12
    assert r == pytest.approx(-pearson_of_spearman(-rank))


def test_an_impossible_rank_correlation_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"in \[-1, 1\], got 1.5"):
        pearson_of_spearman(1.5)
