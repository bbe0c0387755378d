"""Two implementations of every check, the solver's proofs, and the speed of verification."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Literal

import pytest

pytest.importorskip("ortools")

from trueup.errors import ConfigError, DataError
from trueup.experiments.trips import mutation_table, plans_per_second
from trueup.tasks import trips as trips_package
from trueup.tasks.trips.generate import GeneratedTask, draw_task
from trueup.tasks.trips.mutate import AIMS, compare, mutate
from trueup.tasks.trips.soft import place_values
from trueup.verifiers.base import Finding
from trueup.verifiers.plan import Constraint, PlanVerifier, TripTask
from trueup.verifiers.plan.oracle import Oracle

DATA = Path(trips_package.__file__).parent / "data"


@pytest.fixture(scope="module")
def tasks() -> list[TripTask]:
    return [TripTask.from_json(p.read_text()) for p in sorted(DATA.glob("trip-l*.json"))]


def test_both_implementations_pass_the_solvers_plans(tasks):
    for task in tasks:
        assert PlanVerifier(task).verify(task.gold).feasible is True
        assert all(Oracle(task).judge(task.gold).values())


def test_breaking_one_constraint_flips_exactly_its_check(tasks):
    table = mutation_table(tasks, 8, seed=1)
    assert table.disagreements == ()
    assert not any(table.misses.values())
    assert table.compared > 120
    assert sum(table.cases.values()) > 120
    # So few draws may hit a check never alone; the long run below asks for ten hits each.
    assert sum(n == 0 for n in table.cases.values()) <= 3


@pytest.mark.slow
def test_thousands_of_mutations_are_judged_alike_by_both_implementations(tasks):
    table = mutation_table(tasks, 150, seed=7)
    assert table.disagreements == ()
    assert not any(table.misses.values())
    assert sum(table.cases.values()) > 2000
    assert min(table.cases.values()) >= 10


def test_a_check_that_is_switched_off_is_caught_by_the_twin(tasks, monkeypatch):
    """The comparison itself must be able to fail: with a lenient dwell check it has to report a miss."""
    from trueup.verifiers.plan.always import Dwell

    rng = random.Random(0)
    broken = [m for m in (mutate(rng, tasks[0], "dwell") for _ in range(12)) if m is not None]
    caught = [m for m in broken if compare(m).failed == {"dwell"}]
    assert caught
    monkeypatch.setattr(Dwell, "compile", lambda self, trip: lambda plan: Finding.of_slack(0))
    assert not any(compare(m).agrees for m in caught)


def test_every_aim_has_a_way_to_be_made(tasks):
    rng = random.Random(3)
    for aim in AIMS:
        assert any(mutate(rng, task, aim) for task in tasks for _ in range(8)), aim


@pytest.fixture(scope="module")
def made() -> GeneratedTask:
    return draw_task(3, 1)


def test_the_optimum_is_reached_and_nothing_beats_it(made):
    task = made.task
    assert made.proven
    assert made.bound == task.gold_value
    values = place_values(task)
    visited = {i["place"] for d in task.gold["days"] for i in d["items"] if i["kind"] == "visit"}
    assert sum(values.get(p, 0.0) for p in visited) == task.gold_value
    assert draw_task(3, 1).task == task, "a seed names a task"


def test_the_oracle_proves_a_task_without_a_plan_infeasible(tasks):
    raw = tasks[0].model_dump(mode="json")
    for line in raw["constraints"]:
        if line["check"] == "budget":
            line["limit"] = "10"
    assert Oracle(TripTask.from_dict(raw)).solve(effort=10.0).status == "infeasible"


def test_an_exhaustive_search_agrees_with_the_solver_on_a_tiny_task():
    """One day, three sights, room for two: the best pair is found by trying all plans of a coarse grid."""
    places = [
        {"id": "home", "name": "Home", "city": "c", "kind": "station", "hours": "always", "price": "free"}
    ]
    for i, price in enumerate((5, 7, 9)):
        places.append(
            {"id": f"s{i}", "name": f"S{i}", "city": "c", "kind": "sight", "tags": [f"t{i}"],
             "hours": {"weekly": {"fri": ["10:00-16:00"]}}, "min_dwell_min": 120,
             "price": {"amount": str(price), "currency": "EUR"}}
        )  # fmt: skip
    ids = [p["id"] for p in places]
    edges = [{"a": a, "b": b, "mode": "walk", "minutes": 60, "price": "free"}
             for i, a in enumerate(ids) for b in ids[:i]]  # fmt: skip
    task = TripTask.from_dict(
        {"id": "tiny", "start": "2026-06-05", "days": 1, "home": "home", "party": {"adults": 1},
         "currency": "EUR", "cities": [{"id": "c", "name": "C", "zone": "Europe/Berlin"}], "places": places,
         "edges": edges, "preferences": {"t0": 1, "t1": 2, "t2": 4},
         "constraints": [{"check": "count", "at_least": 1}, {"check": "budget", "limit": "14"},
                         {"check": "no_repeat"}]}
    )  # fmt: skip
    verifier, values = PlanVerifier(task), place_values(task)
    best = 0.0
    for first in ids[1:]:
        for second in [None, *ids[1:]]:
            items = [{"id": "a", "kind": "visit", "place": first, "start": "2026-06-05T10:00",
                      "end": "2026-06-05T12:00"}]  # fmt: skip
            if second:
                items.append({"id": "b", "kind": "visit", "place": second, "start": "2026-06-05T13:00",
                              "end": "2026-06-05T15:00"})  # fmt: skip
            plan = {"days": [{"day": 1, "date": "2026-06-05", "items": items}]}
            if verifier.verify(plan).feasible:
                best = max(best, sum(values[p] for p in {first, second} - {None}))
    solution = Oracle(task).solve(value=values)
    assert (solution.status, solution.value) == ("optimal", best)
    assert best == 5.0  # 5 + 9 fit the budget of 14, 7 + 9 do not
    assert verifier.verify(solution.plan).feasible is True


def test_the_oracle_refuses_to_solve_for_a_check_that_it_does_not_know(tasks):
    class Own(Constraint):
        check: Literal["own"]

        def compile(self, trip):
            return lambda plan: Finding.of_slack(0)

    task = tasks[0].model_copy(update={"constraints": (*tasks[0].constraints, {"check": "own"})})
    assert all(Oracle(task, [Own]).judge(task.gold).values())
    with pytest.raises(DataError, match="own"):
        Oracle(task, [Own]).solve()


def test_an_unknown_level_is_refused():
    with pytest.raises(ConfigError, match="level"):
        draw_task(0, 9)


def test_the_prompt_states_every_constraint_and_every_place(made):
    task = made.task
    assert all(p.id in task.prompt for p in task.places)
    assert all(str(line["check"]) in task.prompt for line in task.constraints)
    assert json.loads(json.dumps(copy.deepcopy(task.gold))) == task.gold


@pytest.mark.slow
def test_two_thousand_seven_day_plans_a_second_are_verified_on_one_core(tasks):
    """Not timed in the fast suite: a busy machine says nothing about the code."""
    assert max(plans_per_second(tasks[1], 1000) for _ in range(3)) > 2000
