"""The promises of `gate`, each as a property over everything that hypothesis can think of."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.errors import ConfigError
from trueup.rewards import SoftMap, fit_soft_map, gate, largest_partial_credit, soft_advantages, weighted_sum
from trueup.types import Score, Verdict, VerifierResult

any_float = st.floats(allow_nan=True, allow_infinity=True)
softs = any_float | any_float.filter(math.isfinite).map(Score) | st.just(Score.unscored("scorer_error"))
decided = st.sampled_from(["pass", "fail", "not_applicable"])
settings_ = st.tuples(st.floats(0.01, 1.0), st.integers(2, 64), st.floats(0.0, 1.0)).map(
    lambda t: {"b": t[0], "group_size": t[1], "a": t[2] * largest_partial_credit(t[0], t[1]) * 0.999}
)


@st.composite
def results(draw: st.DrawFn, verdicts: st.SearchStrategy[str] = decided) -> list[VerifierResult]:
    n = draw(st.integers(1, 8))
    return [
        VerifierResult(
            f"c{i}",
            Verdict(draw(verdicts)),
            weight=draw(st.floats(0.1, 10.0)),
            role=draw(st.sampled_from(["shape", "obligation", "prohibition"])),
        )
        for i in range(n)
    ]


@given(results(), softs, softs, settings_)
def test_no_soft_score_whatever_it_is_buys_back_a_violation(checks, soft, other, settings):
    broken = [*checks, VerifierResult("broken", Verdict.FAIL)]
    bad = gate(broken, soft, **settings)
    assert bad.value is not None
    assert 0.0 <= bad.value <= settings["a"]
    assert bad == gate(broken, other, **settings), "the soft score must not even be looked at"
    good = gate("pass", soft, **settings)
    assert good.value is None or good.value >= settings["b"] > bad.value


@given(st.lists(st.tuples(results(), softs), min_size=1, max_size=12), settings_)
def test_no_infeasible_rollout_has_a_positive_advantage_beside_a_feasible_one(rows, settings):
    size = settings["group_size"]
    bad = [gate([*r, VerifierResult("x", Verdict.FAIL)], s, **settings).value for r, s in rows][: size - 1]
    rewards = np.array([gate("pass", -1e300, **settings).value, *bad], float)
    assert np.all(rewards[1:] - rewards.mean() <= 0)


@pytest.mark.parametrize(("b", "group_size"), [(0.5, 8), (0.9, 4), (0.9, 2), (0.3, 64)])
def test_the_bound_is_sharp(b, group_size):
    """At the bound the worst group just holds; above it, with full partial credit, it does not."""
    a = largest_partial_credit(b, group_size)
    worst = np.array([b, a] + [0.0] * (group_size - 2))
    assert worst[1] - worst.mean() <= 1e-15
    over = np.array([b, a * 1.01] + [0.0] * (group_size - 2))
    assert over[1] > over.mean()
    assert gate("fail", a=a, b=b, group_size=group_size).value < a
    with pytest.raises(ConfigError, match=r"b / \(group_size - 1\)"):
        gate("fail", a=a * 1.01, b=b, group_size=group_size)
    assert gate("fail", a=min(a * 1.01, 1.0), b=b, group_size=group_size, allow_buy_back=True).is_scored


@given(results(), st.data(), settings_)
def test_repairing_one_violation_never_lowers_the_reward(checks, data, settings):
    failed = [i for i, r in enumerate(checks) if r.verdict is Verdict.FAIL]
    before = gate(checks, 0.0, **settings)
    if not failed:
        return
    i = data.draw(st.sampled_from(failed))
    old = checks[i]
    repaired = [*checks]
    repaired[i] = VerifierResult(old.name, Verdict.PASS, weight=old.weight, role=old.role)
    assert gate(repaired, 0.0, **settings).value >= before.value


@given(
    results(st.sampled_from(["pass", "fail"])),
    st.floats(-1e6, 1e6),
    st.floats(1e-3, 1e3),
    st.floats(-1e6, 1e6),
    settings_,
)
def test_an_affine_change_of_the_soft_score_never_reorders_feasible_against_infeasible(
    checks, soft, factor, offset, settings
):
    bad = gate([*checks, VerifierResult("x", Verdict.FAIL)], soft, **settings).value
    for score in (soft, soft * factor + offset):
        assert gate("pass", score, **settings).value > bad


@given(
    st.lists(st.sampled_from(["pass", "fail", "not_applicable"]), min_size=1, max_size=12),
    st.integers(1, 5),
)
def test_padding_or_duplicating_the_list_of_checks_never_raises_the_reward_of_a_violation(names, k):
    if "fail" not in names:
        return
    reward = gate(names, 0.0).value
    assert gate(names + ["pass"] * k, 1e9).value <= reward
    assert gate(names * k, 1e9).value <= reward
    assert gate(names + ["fail"] * k, 1e9).value <= reward


@given(results(), softs)
def test_an_answer_that_meets_no_obligation_is_minimal(checks, soft):
    """What the empty plan looks like: shape and prohibitions hold, every obligation fails."""
    empty = [
        VerifierResult("days", Verdict.PASS, role="shape"),
        VerifierResult("visit", Verdict.FAIL, role="obligation"),
        VerifierResult("budget", Verdict.PASS),
    ]
    assert gate(empty, soft).value == 0.0
    other = gate(checks, 0.0)
    assert other.value is None or other.value >= 0.0


@pytest.mark.parametrize(
    "hard", ["unknown", "error", Verdict.UNKNOWN, ["pass", "error"], ["fail", "unknown"]]
)
@pytest.mark.parametrize("soft", [0.5, math.inf, math.nan, Score(1.0), Score.unscored("cancelled")])
def test_a_hard_check_that_could_not_tell_leaves_the_rollout_unscored(hard, soft):
    score = gate(hard, soft)
    assert score.value is None
    assert score.reason == "verifier_unknown"


def test_a_soft_check_that_could_not_tell_does_not_gate():
    soft_check = VerifierResult("style", Verdict.ERROR, hard=False)
    assert gate([VerifierResult("ok", Verdict.PASS), soft_check], 0.0).value == pytest.approx(0.75)


@pytest.mark.parametrize("nothing", [[], ["not_applicable"], "not_applicable"])
def test_nothing_verified_is_not_feasible(nothing):
    assert gate(nothing, 1.0).reason == "verifier_unknown"


@pytest.mark.parametrize("soft", [math.nan, math.inf, -math.inf])
def test_a_feasible_plan_with_a_non_finite_soft_score_is_unscored_and_not_zero(soft):
    assert gate("pass", soft).reason == "non_finite"


def test_the_reason_of_a_missing_soft_score_is_kept():
    assert gate("pass", Score.unscored("timeout_infrastructure")).reason == "timeout_infrastructure"


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=60), st.floats(-2e6, 2e6), st.floats(-2e6, 2e6))
def test_a_fitted_soft_map_is_monotone_and_bounded(scores, left, right):
    if len(set(scores)) < 2:
        return
    g = fit_soft_map(scores)
    low, high = sorted((left, right))
    assert 0.0 <= g(low) <= g(high) <= 1.0


def test_an_affine_change_of_the_scores_is_undone_by_refitting_the_map():
    scores = np.random.default_rng(0).normal(size=200)
    g, h = fit_soft_map(scores), fit_soft_map(3.0 * scores - 7.0)
    assert [g(s) for s in scores] == pytest.approx([h(3.0 * s - 7.0) for s in scores])


def test_a_map_fitted_on_gold_flattens_where_the_score_misranks():
    score = np.linspace(0, 1, 101)
    gold = np.where(score < 0.8, score, 0.2)  # the top of the score is an exploit
    g = fit_soft_map(score, gold)
    assert g(0.2) < g(0.5) <= g(0.95)
    assert g(0.8) == pytest.approx(g(1.0)), "past the exploit's start more score must not pay more"


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8), st.floats(0.05, 0.95))
def test_in_a_group_of_feasible_plans_the_advantage_is_bounded_by_a_constant(scores, b):
    rewards = [[gate("pass", s, b=b).value for s in scores]]
    scale = 1.0 - b
    assert np.all(np.abs(soft_advantages(rewards, scale)) <= (1.0 - b) / scale + 1e-12)
    nearly_equal = [[gate("pass", s * 1e-9, b=b).value for s in scores]]
    assert np.all(np.abs(soft_advantages(nearly_equal, scale)) < 1e-5), "noise must not be blown up to ±1"


def test_an_unscored_rollout_moves_no_advantage_of_its_group():
    whole = soft_advantages([[0.1, 0.7, 0.4], [0.0, 1.0, 0.5]], 1.0)
    gap = soft_advantages([[0.1, 0.7, 0.4, np.nan], [0.0, 1.0, 0.5, np.nan]], 1.0)
    assert np.isnan(gap[:, 3]).all()
    np.testing.assert_array_equal(gap[:, :3], whole)


def test_the_weighted_sum_buys_a_violation_back_and_the_gate_does_not():
    honest, flattering = (["pass"] * 4, 0.2), (["pass"] * 3 + ["fail"], 0.9)
    assert weighted_sum(*flattering).value > weighted_sum(*honest).value
    assert gate(*flattering).value < gate(*honest).value


@pytest.mark.parametrize(
    "bad",
    [{"a": -0.1}, {"a": math.nan}, {"b": 0.0}, {"b": 1.5}, {"group_size": 0}, {"group_size": True},
     {"a": 0.2}, {"a": 0.6, "b": 0.5, "group_size": 1}],
)  # fmt: skip
def test_settings_under_which_a_violation_could_pay_are_refused(bad):
    with pytest.raises(ConfigError):
        gate("fail", 0.0, **bad)


@pytest.mark.parametrize("name", ["PASS!", "", "ok", "true"])
def test_a_word_that_is_no_verdict_is_refused(name):
    with pytest.raises(ConfigError):
        gate(name, 0.0)


def test_a_soft_map_that_falls_is_refused():
    with pytest.raises(ConfigError):
        SoftMap((0.0, 1.0), (0.9, 0.1))
    with pytest.raises(ConfigError):
        fit_soft_map([1.0, 1.0, math.nan])
