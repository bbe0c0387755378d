"""Seconds and summaries: pure arithmetic, against cases done by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.experiments.strings.meter import Meter, covered
from trueup.experiments.strings.summary import break_even_seconds, summarise

INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=8)


@given(INTERVALS)
def test_the_union_of_intervals_is_what_a_ruler_of_unit_steps_finds(pairs):
    ruler = np.zeros(64, bool)
    for start, length in pairs:
        ruler[start : start + length] = True
    assert covered([(float(s), float(s + n)) for s, n in pairs]) == ruler.sum()


def test_components_of_a_step_add_up_to_the_step():
    meter = Meter()
    meter.start()
    with meter.measure("generate"):
        pass
    with meter.measure("reward"), meter.measure("proxy"), meter.measure("sandbox"):
        pass
    s = meter.stop()
    assert s["trueup"] >= 0
    assert s["update"] >= 0
    together = s["generate"] + s["trueup"] + s["update"] + max(s["proxy"], s["sandbox"])
    assert together == pytest.approx(s["step"], abs=1e-9)


def cell(arm, seed, final, gold, seconds=10.0, world="honest"):
    names = ("generate", "proxy", "sandbox", "update", "trueup")
    point = {
        "step": 0,
        "pass_rate": 0.1,
        "gold_executions": 0,
        "seconds": 0.0,
        "pass_by_task": [0.0, 0.2, None],
    }
    last = point | {"step": 5, "gold_executions": gold, "seconds": seconds, "pass_by_task": final}
    return {
        "world": world,
        "arm": arm,
        "seed": seed,
        "gold_executions": gold,
        "rollouts": 100,
        "seconds": dict.fromkeys(names, 1.0) | {"step": seconds},
        "guard_events": [{"step": 3, "event": "guard: letters opened"}] if arm == "guarded" else [],
        "curve": [point, last],
    }


def test_errors_are_over_seeds_where_there_are_several_and_over_tasks_otherwise():
    one, _ = summarise([cell("gold", 0, [0.0, 1.0, 0.5], 100)], ["a", "a", "b"], 2)
    rate = one["gold"]["heldout_pass_rate"]
    assert rate == {"mean": 0.5, "se": pytest.approx(0.5 / np.sqrt(3)), "se_over": "tasks"}
    cells = [cell("gold", s, [v, v, v], 100) for s, v in enumerate((0.2, 0.4))]
    two, hackable = summarise(
        [*cells, cell("guarded", 0, [0, 0, 0], 50, world="hackable")], ["a", "a", "b"], 2
    )
    assert two["gold"]["heldout_pass_rate"] == {
        "mean": pytest.approx(0.3),
        "se": pytest.approx(0.1),
        "se_over": "seeds",
    }
    assert two["gold"]["start_pass_rate"] == pytest.approx(0.1)
    assert hackable["guarded"]["guard_events"] == [{"seed": 0, "step": 3, "event": "guard: letters opened"}]


def test_an_unscored_task_is_left_out_of_the_rate_and_is_not_zero():
    arms, _ = summarise([cell("gold", 0, [1.0, None, 1.0], 10)], ["a", "a", "b"], 2)
    assert arms["gold"]["heldout_pass_rate"]["mean"] == 1.0


def test_anchoring_pays_from_where_the_saved_executions_cover_its_own_time():
    gold = {"gold_executions": 1000, "seconds": {"update": 10.0, "sandbox": 99.0}}
    arm = {"gold_executions": 100, "seconds": {"update": 10.0, "proxy": 9.0, "sandbox": 1.0}}
    assert break_even_seconds(arm, gold, slots=2) == pytest.approx(9.0 * 2 / 900)
    assert break_even_seconds(gold, gold, slots=2) is None
