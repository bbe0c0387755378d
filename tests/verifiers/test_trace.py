"""Both modes of the process reward: what the published formula does, and that the corrected one does not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trueup.errors import ConfigError, GroupError
from trueup.types import Score
from trueup.verifiers.trace import Trace, TraceConfig, clip_rate, discounted_returns, score_traces

numbers = st.floats(-2, 2)
WIDE = {"process_weight_max": 1e9}


@st.composite
def traces(draw, n=None, start=0.0):
    n = n or draw(st.integers(1, 9))
    lists = [draw(st.lists(numbers, min_size=n, max_size=n)) for _ in range(3)]
    return Trace(lists[0], Score(draw(numbers)), lists[1], lists[2], start)


def with_terminal(trace, value):
    return Trace(trace.potentials, Score(value), trace.local, trace.env, trace.start_potential)


def test_the_published_formula_on_numbers_worked_out_by_hand():
    trace = Trace([0.5, 0.75], Score(1.0), [0.1, -0.2], [0.0, 0.5])
    (result,) = score_traces([trace], TraceConfig(mode="published", gamma=0.5))
    # r0 = .5 + .1 = .6; r1 = .25 − .2 + .5 + 1 = 1.55; R1 = 1.55, R0 = .6 + .775 = 1.375; mean 1.4625.
    np.testing.assert_allclose(result.rewards, [0.6, 1.55])
    np.testing.assert_allclose(result.returns, [1.375, 1.55])
    np.testing.assert_allclose(result.weights, [-0.0875, 0.0875])
    np.testing.assert_allclose(result.terminal_worth, [-0.25, 0.25])
    assert (result.success, result.near_miss, result.first_error) == (True, False, 1)


def test_the_defaults_are_the_published_numbers():
    c = TraceConfig(mode="published")
    assert (c.gamma, c.process_weight_scale, c.process_weight_max, c.baseline) == (
        0.99,
        1,
        4,
        "trajectory_mean",
    )
    assert c.lambda_delta == c.lambda_g == c.lambda_env == c.lambda_u == 1
    assert TraceConfig().baseline == "leave_one_out"


def test_a_single_published_step_keeps_baseline_0():
    (result,) = score_traces([Trace([0.3], Score(1.0))], TraceConfig(mode="published"))
    np.testing.assert_allclose(result.weights, [1.3])


@given(traces(), numbers)
def test_published_at_gamma_1_the_terminal_score_cancels_from_every_weight(trace, other):
    if len(trace.potentials) == 1:
        return
    config = TraceConfig(mode="published", gamma=1.0, **WIDE)
    (one,), (two,) = score_traces([trace], config), score_traces([with_terminal(trace, other)], config)
    np.testing.assert_allclose(one.weights, two.weights, atol=1e-9)
    np.testing.assert_allclose(one.terminal_worth, 0.0, atol=1e-12)


@given(st.integers(1, 30), st.integers(1, 30), st.floats(0.01, 1))
def test_published_returns_grow_with_length_and_corrected_ones_do_not(n, more, local):
    def first_return(length, mode):
        trace = Trace([0.0] * length, Score(0.0), [local] * length)
        return score_traces([trace], TraceConfig(mode=mode, gamma=1.0))[0].returns[0]

    assert first_return(n + more, "published") > first_return(n, "published")
    assert first_return(n + more, "corrected") == pytest.approx(first_return(n, "corrected"))


@given(traces(start=0.4), st.floats(0.1, 1.0))
def test_corrected_shaping_telescopes_to_minus_the_start_potential(trace, gamma):
    plain = TraceConfig(gamma=gamma, lambda_delta=0.0)
    shaped = TraceConfig(gamma=gamma, lambda_delta=1.0)
    (a,), (b,) = score_traces([trace], plain), score_traces([trace], shaped)
    assert b.returns[0] - a.returns[0] == pytest.approx(-0.4, abs=1e-9)


@given(st.lists(traces(start=0.7), min_size=2, max_size=6), st.floats(0.1, 1.0), st.floats(0, 5))
def test_corrected_shaping_leaves_the_order_of_trajectories_alone(group, gamma, strength):
    """Whatever the potentials are, so it leaves the order of policies (averages of these) alone too."""
    plain = score_traces(group, TraceConfig(gamma=gamma, lambda_delta=0.0))
    shaped = score_traces(group, TraceConfig(gamma=gamma, lambda_delta=strength))
    a = np.array([r.returns[0] for r in plain])
    b = np.array([r.returns[0] for r in shaped])
    np.testing.assert_allclose(b - a, -0.7 * strength, atol=1e-8)


def test_published_shaping_changes_the_order_of_trajectories():
    """Undiscounted differences under discounting: reaching the same potential earlier pays more."""
    early = Trace([1.0, 1.0, 1.0], Score(0.0))
    late = Trace([0.0, 0.0, 1.0], Score(0.05))
    for mode, first_wins in (("published", True), ("corrected", False)):
        first, second = score_traces([early, late], TraceConfig(mode=mode, gamma=0.9))
        assert (first.returns[0] > second.returns[0]) == first_wins


@given(
    st.lists(traces(), min_size=2, max_size=5),
    st.floats(-1, 1),
    st.sampled_from(["published", "corrected"]),
    st.sampled_from(["group_mean", "leave_one_out", None]),
)
def test_terminal_worth_is_what_a_unit_of_terminal_score_really_adds(group, du, mode, strategy):
    config = TraceConfig(mode=mode, baseline_strategy=strategy, **WIDE)
    before = score_traces(group, config)[0]
    after = score_traces([with_terminal(group[0], group[0].terminal.value + du), *group[1:]], config)[0]
    np.testing.assert_allclose(after.weights - before.weights, before.terminal_worth * du, atol=1e-8)


@given(st.lists(traces(), min_size=2, max_size=5), traces(n=4))
def test_a_leave_one_out_baseline_does_not_depend_on_the_trajectory_itself(others, mine):
    config = TraceConfig()
    a = score_traces([mine, *others], config)[0].baseline
    b = score_traces([with_terminal(mine, 99.0), *others], config)[0].baseline
    np.testing.assert_allclose(a, b)


def test_a_trajectory_that_has_ended_counts_as_zero_in_the_later_baseline():
    short, long = Trace([0.0], Score(1.0)), Trace([0.0, 0.0, 0.0], Score(2.0))
    result = score_traces([short, long], TraceConfig(gamma=1.0))
    np.testing.assert_allclose(result[1].baseline, [1.0, 0.0, 0.0])
    np.testing.assert_allclose(result[0].baseline, [2.0])


@pytest.mark.parametrize(
    "bad",
    [
        Trace([0.1, 0.2], Score.unscored("cancelled")),
        Trace([0.1, np.nan], Score(1.0)),
        Trace([0.1, np.inf], Score(1.0)),
    ],
)
@pytest.mark.parametrize("mode", ["published", "corrected"])
def test_an_unknown_outcome_is_nan_and_leaves_the_others_as_if_it_were_not_there(bad, mode):
    good = [Trace([0.5, 0.9], Score(0.0)), Trace([0.2], Score(1.0))]
    config = TraceConfig(mode=mode)
    alone, beside = score_traces(good, config), score_traces([bad, *good], config)
    assert np.isnan(beside[0].weights).all()
    for a, b in zip(alone, beside[1:], strict=True):
        np.testing.assert_allclose(a.weights, b.weights)
    assert None in beside[0].to_json()["weights"]


def test_the_clip_rate_is_reported_and_clipped_weights_carry_no_outcome():
    results = score_traces([Trace([0.0, 0.0], Score(50.0)), Trace([0.0], Score(0.0))], TraceConfig())
    assert clip_rate(results) == 1.0
    assert np.all(results[0].weights == 4.0)
    assert np.all(results[0].terminal_worth == 0.0)
    assert np.isnan(clip_rate(score_traces([Trace([0.0], Score.unscored("cancelled"))])))


def test_a_near_miss_reached_the_potential_and_did_not_solve_the_task():
    near, far = Trace([0.3, 0.9, 0.1], Score(0.0)), Trace([0.3, 0.7, 0.1], Score(0.0))
    assert [r.near_miss for r in score_traces([near, far])] == [True, False]


@given(st.lists(numbers, min_size=1, max_size=20), st.floats(0.1, 1.0))
def test_returns_are_the_discounted_sums(rewards, gamma):
    r = np.array(rewards)
    direct = [sum(gamma ** (k - t) * r[k] for k in range(t, r.size)) for t in range(r.size)]
    np.testing.assert_allclose(discounted_returns(r, gamma), direct, atol=1e-9)


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(GroupError):
        score_traces([])
    with pytest.raises(GroupError):
        score_traces([Trace([], Score(1.0))])
    with pytest.raises(ConfigError):
        score_traces([Trace([0.1, 0.2], Score(1.0), [0.1])])
    for bad in ({"gamma": 0.0}, {"mode": "corrected", "baseline_strategy": "trajectory_mean"}, {"gama": 1.0}):
        with pytest.raises(ValidationError):
            TraceConfig(**bad)
