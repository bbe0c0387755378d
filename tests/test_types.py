"""Scores, rollouts and groups hold what they promise."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trueup
from trueup.errors import GroupError, InfrastructureError, MissingExtraError, ScorerContractError, TrueupError
from trueup.types import REASONS, ScoreArray


def test_an_unscored_score_says_why_and_has_no_number():
    score = trueup.Score.unscored("sandbox_unavailable", "no user namespaces")
    assert score.value is None
    assert not score.is_scored
    assert score.to_json() == {
        "value": None,
        "status": "unscored",
        "reason": "sandbox_unavailable",
        "detail": "no user namespaces",
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), True])
def test_a_score_refuses_what_is_not_a_finite_number(value):
    with pytest.raises(ScorerContractError, match=r"finite float or None, got .* Use Score\.unscored"):
        trueup.Score(value)


def test_a_score_refuses_a_reason_outside_the_vocabulary():
    with pytest.raises(ScorerContractError, match="must be one of timeout_infrastructure"):
        trueup.Score.unscored("because")  # type: ignore[arg-type]


def test_a_score_is_never_both_scored_and_failed():
    with pytest.raises(ScorerContractError, match="must not carry a reason"):
        trueup.Score(0.5, "cancelled")


scores = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(trueup.Score),
    st.sampled_from(REASONS).map(lambda reason: trueup.Score.unscored(reason, f"detail of {reason}")),
)


@given(st.lists(scores))
def test_scores_survive_the_way_through_arrays(given_scores):
    assert ScoreArray.from_answers(given_scores, len(given_scores), "test").to_scores() == given_scores


def test_every_kind_of_answer_has_its_meaning():
    answers = [
        0.5,
        None,
        float("nan"),
        float("-inf"),
        1,
        np.float32(0.25),
        trueup.Score.unscored("cancelled"),
    ]
    read = ScoreArray.from_answers(answers, 7, "test").to_scores()
    assert [s.value for s in read] == [0.5, None, None, None, 1.0, 0.25, None]
    reasons = ["abstained", "non_finite", "non_finite", "cancelled"]
    assert [s.reason for s in read if s.value is None] == reasons


def test_an_array_is_read_like_a_list_and_not_aliased():
    given_array = np.array([0.5, np.nan])
    read = ScoreArray.from_answers(given_array, 2, "test")
    read.value[0] = 9.0
    assert given_array[0] == 0.5
    assert [s.reason for s in read.to_scores()] == [None, "non_finite"]


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([0.1], r"one score per rollout \(2\), got 1"),
        (np.zeros((2, 1)), r"one score per rollout \(2\), got an array of shape \(2, 1\)"),
        ("ab", "must return a list"),
        ({0: 1.0, 1: 1.0}, "must return a list"),
        (0.5, "must return a list"),
        ([True, 0.5], "got True for rollout 0"),
        (["0.5", 0.5], "got '0.5' for rollout 0"),
    ],
)
def test_an_answer_that_cannot_be_paired_with_rollouts_raises(answers, message):
    with pytest.raises(ScorerContractError, match=message):
        ScoreArray.from_answers(answers, 2, "The scorer")


def test_an_empty_group_is_refused():
    with pytest.raises(GroupError, match="at least one rollout"):
        trueup.Group([])


def test_a_group_iterates_over_its_rollouts():
    rollouts = [trueup.Rollout("p", str(i)) for i in range(3)]
    group = trueup.Group(rollouts, id="g")
    assert list(group) == rollouts
    assert len(group) == 3


def test_a_record_writes_null_and_reason_never_nan_or_zero():
    reward = trueup.AnchoredReward(
        lambda rs: [None, 0.5], lambda rs: [None] * len(rs), estimator="gold_budget"
    )
    record = reward.step([[trueup.Rollout("p", "a"), trueup.Rollout("p", "b")]]).record
    text = json.dumps(record.to_json(), allow_nan=False)
    plain = json.loads(text)
    assert plain["gold"] == [None, None]
    assert plain["gold_unscored"] == {"0": "abstained", "1": "abstained"}
    assert plain["advantage"] == [None, None]


def test_every_exception_of_the_tree_is_caught_by_its_root():
    for name in trueup.errors.__all__:
        assert issubclass(getattr(trueup.errors, name), TrueupError)


def test_a_missing_extra_names_the_pip_line():
    error = MissingExtraError("The report", "report", "matplotlib")
    assert isinstance(error, ImportError)
    assert 'pip install "trueup[report]"' in str(error)


def test_an_infrastructure_error_carries_its_reason():
    assert InfrastructureError("gone", reason="cancelled").reason == "cancelled"
