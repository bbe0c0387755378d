"""Twenty wrong plans made from one good plan, of the kinds that published evaluators let through or crash on."""

from __future__ import annotations

import copy

import pytest

from trueup.rewards import gate
from trueup.types import Verdict


def items(plan):
    return {i["id"]: i for d in plan["days"] for i in d["items"]}


def change(id_, **new):
    return lambda plan: items(plan)[id_].update(new)


def drop(id_):
    def run(plan):
        for day in plan["days"]:
            day["items"] = [i for i in day["items"] if i["id"] != id_]

    return run


def add(day, **item):
    return lambda plan: plan["days"][day]["items"].append(item)


WRONG = {
    "nothing at all": lambda plan: [d.update(items=[]) for d in plan["days"]],
    "no days": lambda plan: plan.update(days=[]),
    "the last day is missing": lambda plan: plan["days"].pop(),
    "the first day twice": lambda plan: plan["days"].insert(1, copy.deepcopy(plan["days"][0])),
    "items are null": lambda plan: plan["days"][0].update(items=None),
    "a place that does not exist": change("b", place="The Louvre"),
    "an empty name": change("b", place=""),
    "a dash for a hotel": change("d", place="-"),
    "no bed for the night": drop("d"),
    "no way home": drop("e"),
    "no journey there": drop("a"),
    "the wanted sight is left out": drop("b"),
    "dinner only, where lunch was asked for": change("c", start="2026-06-05T18:00", end="2026-06-05T19:00"),
    "lunch during the museum": change("b", end="2026-06-05T13:30"),
    "ten minutes for a way of twenty": change("b", start="2026-06-05T10:10"),
    "the museum before it opens": change("b", start="2026-06-05T09:30"),
    "a train that leaves when it suits": change("a", start="2026-06-05T05:00", end="2026-06-05T09:00"),
    "a price of its own": change("d", price=1),
    "a hotel for lunch": change("c", place="inn"),
    "the journey home on the wrong day": lambda plan: items(plan)["e"].update(
        start="2026-06-07T16:00", end="2026-06-07T22:00"
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_plan_is_infeasible_and_earns_less_than_any_right_one(weekend, plan, name):
    assert weekend.verify(plan).feasible is True
    WRONG[name](plan)
    report = weekend.verify(plan)
    assert report.feasible is False
    assert not any(r.verdict is Verdict.ERROR for r in report.results)
    assert gate(report, 1e9).value < 0.5


def test_there_are_twenty_of_them():
    assert len(WRONG) == 20


def test_visiting_everything_is_no_way_to_meet_a_request(weekend, plan):
    """A checker that only looks for what was asked pays for buying the whole shop."""
    for n, place in enumerate(("club", "cafe", "cafe2", "cafe3", "museum")):
        add(0, id=f"all{n}", kind="visit", place=place, start="2026-06-05T10:00", end="2026-06-05T19:00")(
            plan
        )
    assert weekend.verify(plan).feasible is False
