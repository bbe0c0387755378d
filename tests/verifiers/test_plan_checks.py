"""Every check against a case whose answer was worked out by hand."""

from __future__ import annotations

import copy
from decimal import Decimal
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.errors import DataError
from trueup.rewards import gate
from trueup.types import Verdict
from trueup.verifiers.plan import Constraint, PlanVerifier, TripTask, smallest
from trueup.verifiers.plan.money import Party, Price, Rates, line_cost, round_money


def item(plan, id_):
    return next(i for d in plan["days"] for i in d["items"] if i["id"] == id_)


def verify(task, plan, extra=()):
    return PlanVerifier(TripTask.from_dict(task), extra).verify(plan)


def with_lines(task, *lines):
    task["constraints"] = [*task["constraints"], *lines]
    return task


def test_the_cost_is_the_tables_and_was_added_up_by_hand(weekend, plan):
    # Trains 3 × 150, museum 2 × £20 + £10 at 0.8 = 62.50, café 3 × £8 = 30, inn 2 rooms × £80 = 200.
    assert weekend.resolve(plan).cost == (Decimal("742.50"), ())
    result = weekend.verify(plan)["budget"]
    assert (result.margin, result.unit) == (257.5, "EUR")
    assert "3 people" in result.basis
    assert "2026-01-15" in result.basis


def test_a_taxi_is_paid_by_the_vehicle(weekend, plan):
    item(plan, "c")["via"] = "taxi"  # three people, two per taxi: 2 × £12 = 30 EUR
    assert weekend.resolve(plan).cost[0] == Decimal("772.50")


def test_a_missing_price_is_unknown_unless_the_rest_is_already_too_much(task, plan):
    task["places"][5]["price"] = None
    report = verify(task, plan)
    assert report["budget"].verdict is Verdict.UNKNOWN
    assert report["budget"].witness == ("c",)
    assert report.feasible is None
    task["constraints"][3]["limit"] = "700"
    assert verify(task, plan)["budget"].verdict is Verdict.FAIL


def test_a_price_in_a_currency_without_a_rate_is_unknown(task, plan):
    task["places"][5]["price"] = {"amount": "8", "currency": "USD"}
    assert verify(task, plan)["budget"].verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("code", ["EURO", "eur", "XXX", ""])
def test_a_currency_that_is_not_iso_4217_is_refused(task, code):
    task["places"][5]["price"] = {"amount": "8", "currency": code}
    with pytest.raises(DataError, match="ISO 4217"):
        TripTask.from_dict(task)


@pytest.mark.parametrize(
    ("amount", "currency", "rounded"),
    [("2.345", "EUR", "2.34"), ("2.355", "EUR", "2.36"), ("2.5", "JPY", "2"), ("3.5", "JPY", "4"),
     ("1.2345", "KWD", "1.234")],
)  # fmt: skip
def test_money_is_rounded_half_even_to_the_minor_unit(amount, currency, rounded):
    assert round_money(Decimal(amount), currency) == Decimal(rounded)


def test_a_conversion_between_two_foreign_currencies_goes_through_the_base():
    rates = Rates(date="2026-01-15", base="EUR", rates={"CZK": "25", "GBP": "0.8"})
    price = Price(amount="250", currency="CZK", per="group")
    assert line_cost(price, Party(adults=1), rates, "GBP") == Decimal("8.00")


@given(st.integers(1, 30), st.integers(1, 8))
def test_rooms_are_rounded_up(people, holds):
    price = Price(amount="10", currency="EUR", per="room", holds=holds)
    assert line_cost(price, Party(adults=people), None, "EUR") == 10 * ((people + holds - 1) // holds)


def test_rooms_whose_size_nobody_knows_have_no_price():
    price = Price(amount="10", currency="EUR", per="room")
    assert line_cost(price, Party(adults=2), None, "EUR") is None


def test_touching_items_do_not_overlap_and_one_shared_minute_does(weekend, plan):
    item(plan, "b")["end"] = "2026-06-05T13:01"
    report = weekend.verify(plan)
    assert report["overlap"].verdict is Verdict.FAIL
    assert report["overlap"].margin == -1
    assert report["overlap"].witness == ("b/c",)
    item(plan, "c")["place"] = "museum"
    item(plan, "b")["end"] = "2026-06-05T13:00"
    assert weekend.verify(plan)["overlap"].verdict is Verdict.PASS


def test_one_long_item_overlaps_all_that_begin_inside_it(weekend, plan):
    item(plan, "b")["end"] = "2026-06-05T21:00"
    assert weekend.verify(plan)["overlap"].witness == ("b/c", "b/d")


def test_the_way_takes_its_time_by_the_mode_that_the_plan_names(weekend, plan):
    item(plan, "c")["start"] = "2026-06-05T13:00"
    item(plan, "b")["end"] = "2026-06-05T12:50"
    report = weekend.verify(plan)
    assert (report["transit"].verdict, report["transit"].margin) == (Verdict.FAIL, -10)
    item(plan, "c")["via"] = "taxi"
    assert weekend.verify(plan)["transit"].verdict is Verdict.PASS
    item(plan, "c")["via"] = "bus"
    assert weekend.verify(plan)["transit"].verdict is Verdict.UNKNOWN


def test_another_city_without_a_journey_is_a_teleport(weekend, plan):
    plan["days"][0]["items"] = plan["days"][0]["items"][1:]
    report = weekend.verify(plan)
    assert report["continuity"].verdict is Verdict.FAIL
    assert report["continuity"].witness == ("b",)


@pytest.mark.parametrize(
    ("id_", "key", "value", "margin"),
    [("a", "start", "2026-06-05T06:05", -10), ("a", "end", "2026-06-05T09:30", -30),
     ("e", "end", "2026-06-06T22:01", -1)],
)  # fmt: skip
def test_a_train_leaves_and_arrives_when_it_does(weekend, plan, id_, key, value, margin):
    item(plan, id_)[key] = value
    report = weekend.verify(plan)
    assert report.failed == ("timetable",)
    assert report["timetable"].margin == margin


def test_a_train_does_not_run_on_other_dates(task, plan):
    task["services"][1]["dates"] = ["2026-06-07"]
    assert verify(task, plan).failed == ("timetable",)


@pytest.mark.parametrize(
    ("start", "end", "verdict"),
    [("2026-06-05T22:00", "2026-06-06T02:00", "pass"), ("2026-06-05T21:59", "2026-06-05T23:00", "fail"),
     ("2026-06-05T23:00", "2026-06-06T02:01", "fail"), ("2026-06-05T23:30", "2026-06-06T00:30", "pass")],
)  # fmt: skip
def test_opening_hours_reach_over_midnight_and_belong_to_the_date_they_begin_on(
    weekend, plan, start, end, verdict
):
    item(plan, "d").update(kind="visit", place="club", start=start, end=end)
    assert weekend.verify(plan)["opening_hours"].verdict == verdict


def test_a_date_that_differs_wins_over_its_weekday(task, plan):
    task["places"][3]["hours"] = {
        "weekly": {"fri": ["22:00-23:00"]},
        "dates": {"2026-06-05": ["12:00-24:00"]},
    }
    item(plan, "d").update(kind="visit", place="club", start="2026-06-05T20:00", end="2026-06-05T22:00")
    assert verify(task, plan)["opening_hours"].verdict is Verdict.PASS


def test_hours_that_the_table_does_not_give_are_unknown(task, plan):
    del task["places"][2]["hours"]
    assert verify(task, plan)["opening_hours"].witness == ("b",)
    assert verify(task, plan).feasible is None


def test_a_visit_shorter_than_the_minimum_fails_dwell(weekend, plan):
    item(plan, "b")["end"] = "2026-06-05T11:19"
    report = weekend.verify(plan)
    assert report.failed == ("dwell",)
    assert report["dwell"].margin == -1


@pytest.mark.parametrize(
    "change",
    [lambda t: t["services"][0].update(seats=2), lambda t: t["places"][4].update(rooms=1),
     lambda t: t["places"][5].update(max_party=2)],
)  # fmt: skip
def test_a_party_that_does_not_fit_fails_capacity(task, plan, change):
    change(task)
    assert verify(task, plan).failed == ("capacity",)


def test_a_night_needs_hours_and_an_overnight_journey_counts(task, plan):
    item(plan, "d")["end"] = "2026-06-06T01:59"
    assert verify(task, plan).failed == ("nights",)
    item(plan, "d")["end"] = "2026-06-06T02:00"
    assert verify(task, plan).feasible is True
    item(plan, "d")["end"] = "2026-06-05T23:59"
    assert verify(task, plan).failed == ("nights",)


LINES = [
    ({"check": "must_visit", "places": ["museum", "club"]}, "fail", "club"),
    ({"check": "min_stay", "city": "london", "nights": 1}, "pass", None),
    ({"check": "min_stay", "city": "london", "nights": 2}, "fail", "london"),
    ({"check": "count", "where": {"kinds": ["sight", "restaurant"]}, "at_least": 2}, "pass", None),
    ({"check": "count", "where": {"tags": ["art"]}, "at_least": 2}, "fail", "1 in all"),
    ({"check": "count", "where": {"cities": ["london"]}, "at_most": 2, "per": "day"}, "fail", "day 1: 3"),
    ({"check": "connections", "minutes": 30}, "pass", None),
    ({"check": "connections", "minutes": 2000}, "fail", "a->e"),
    ({"check": "time_window", "place": "museum", "date": "2026-06-05", "span": "10:00-13:00"}, "pass", None),
    ({"check": "time_window", "place": "museum", "date": "2026-06-05", "span": "10:30-13:00"}, "fail", "b"),
    ({"check": "time_window", "place": "club", "date": "2026-06-05", "span": "10:30-13:00"},
     "not_applicable", None),
    ({"check": "precedence", "before": "museum", "after": "cafe"}, "pass", None),
    ({"check": "precedence", "before": "cafe", "after": "museum"}, "fail", "b"),
    ({"check": "precedence", "before": "club", "after": "museum"}, "fail", "b"),
    ({"check": "precedence", "before": "museum", "after": "club"}, "not_applicable", None),
    ({"check": "must_avoid", "places": ["cafe"]}, "fail", "c"),
    ({"check": "must_avoid", "places": ["club"]}, "pass", None),
    ({"check": "modes_banned", "modes": ["train"]}, "fail", "a"),
    ({"check": "modes_banned", "modes": ["walk"]}, "fail", "a->b"),
    ({"check": "modes_banned", "modes": ["taxi"]}, "pass", None),
    ({"check": "day_window", "earliest": "10:20", "latest": "14:00"}, "pass", None),
    ({"check": "day_window", "earliest": "10:21"}, "fail", "b"),
    ({"check": "day_window", "latest": "13:59"}, "fail", "c"),
    ({"check": "no_repeat"}, "pass", None),
]  # fmt: skip


@pytest.mark.parametrize(("line", "verdict", "witness"), LINES)
def test_declared_constraints_say_what_was_worked_out_by_hand(task, plan, line, verdict, witness):
    task["constraints"][0] = {"check": "count", "name": "base", "at_least": 1}
    result = verify(with_lines(task, line), plan)[line["check"]]
    assert result.verdict == verdict
    if witness is not None:
        assert witness in result.witness


def test_visiting_a_place_again_under_its_alias_is_a_repeat(task, plan):
    again = {"id": "f", "kind": "visit", "place": "CAFE"}
    again |= {"start": "2026-06-06T10:00", "end": "2026-06-06T11:00"}
    plan["days"][1]["items"].insert(0, again)
    report = verify(with_lines(task, {"check": "no_repeat"}), plan)
    assert report.failed == ("no_repeat",)
    assert report["no_repeat"].witness == ("f",)


def test_a_trip_that_does_not_come_home_fails_the_loop(weekend, plan):
    plan["days"][1]["items"] = []
    assert weekend.verify(plan).failed == ("closed_loop",)


@pytest.mark.parametrize(
    ("claims", "verdict"),
    [({"cost": 742.5}, "pass"), ({"cost": 743.0}, "pass"), ({"cost": 743.01}, "fail"), ({}, "fail"),
     ({"cost": 0.0}, "fail"), ({"cost": 1e300}, "fail")],
)  # fmt: skip
def test_a_claimed_number_must_be_stated_and_true_within_its_tolerance(task, plan, claims, verdict):
    line = {"check": "claim", "quantity": "cost", "tolerance": "0.5"}
    assert verify(with_lines(task, line), {**plan, "claims": claims})["claim"].verdict == verdict


def test_travel_minutes_are_journeys_and_ways(task, plan):
    line = {"check": "claim", "quantity": "travel_minutes"}
    # Two trains of 300 minutes, ways station-museum-café-inn-station: 4 × 20.
    assert verify(with_lines(task, line), {**plan, "claims": {"travel_minutes": 680}}).feasible is True


def test_the_empty_plan_is_minimal_and_not_fine(weekend, plan):
    empty = {"days": [{**d, "items": []} for d in plan["days"]]}
    report = weekend.verify(empty)
    assert set(report.failed) == {"must_visit", "nights", "meals"}
    assert gate(report).value == 0.0
    partial = copy.deepcopy(plan)
    partial["days"][1]["items"] = []
    assert gate(weekend.verify(partial)).value > 0.0


def test_padding_duplicating_and_appending_never_raise_the_reward_of_a_plan(weekend, plan):
    filler = {"id": "z", "kind": "visit", "place": "cafe2", "start": "2026-06-05T14:20",
              "end": "2026-06-05T15:00"}  # fmt: skip
    broken = copy.deepcopy(plan)
    item(broken, "d")["end"] = "2026-06-05T23:59"
    for base in (plan, broken):
        reward = gate(weekend.verify(base)).value
        for n in (1, 5, 40):
            padded = copy.deepcopy(base)
            padded["days"][0]["items"] += [{**filler, "id": f"z{i}"} for i in range(n)]
            assert (gate(weekend.verify(padded)).value or 0.0) <= reward
        twice = copy.deepcopy(base)
        twice["days"][0]["items"] += [{**i, "id": i["id"] + "2"} for i in base["days"][0]["items"]]
        assert gate(weekend.verify(twice)).value <= reward


def test_an_exception_inside_a_check_is_an_error_and_neither_0_nor_1(task, plan):
    class Broken(Constraint):
        check: Literal["broken"]

        def compile(self, trip):
            return lambda plan: 1 / 0

    report = verify(with_lines(task, {"check": "broken"}), plan, [Broken])
    assert report["broken"].verdict is Verdict.ERROR
    assert "ZeroDivisionError" in report["broken"].detail
    assert report.feasible is None
    assert gate(report, 1.0).value is None


@pytest.mark.parametrize("answer", [True, 1.0, None, "pass"])
def test_a_check_that_answers_a_bare_value_is_an_error(task, plan, answer):
    class Bare(Constraint):
        check: Literal["bare"]

        def compile(self, trip):
            return lambda plan: answer

    assert verify(with_lines(task, {"check": "bare"}), plan, [Bare])["bare"].verdict is Verdict.ERROR


def test_a_constraint_of_ones_own_takes_a_few_lines(task, plan):
    class NoLateDinner(Constraint):
        check: Literal["no_late_dinner"]
        latest_min: int

        def compile(self, trip):
            def run(plan):
                return smallest((self.latest_min - s.start_minute, s.id) for s in plan.visits)

            return run

    line = {"check": "no_late_dinner", "latest_min": 12 * 60}
    assert verify(with_lines(task, line), plan, [NoLateDinner]).failed == ("no_late_dinner",)
    with pytest.raises(DataError, match="check must be one of"):
        verify(task, plan)


@pytest.mark.parametrize(
    ("lines", "message"),
    [([], "at least one obligation"), ([{"check": "budget", "limit": "9"}], "at least one obligation"),
     ([{"check": "must_visit", "places": ["nowhere"]}], "nowhere"),
     ([{"check": "must_visit", "places": ["museum"], "weihgt": 2}], "weihgt"),
     ([{"check": "must_vist", "places": ["museum"]}], "must be one of"),
     ([{"check": "nights"}, {"check": "nights"}], "nights twice"),
     ([{"check": "nights"}, {"check": "budget", "limit": "-1"}], "budget"),
     ([{"check": "count", "where": {"tags": ["nope"]}, "at_least": 1}], "matches none")],
)  # fmt: skip
def test_a_task_that_would_pay_for_nothing_or_never_enforce_a_line_is_refused(task, lines, message):
    task["constraints"] = lines
    with pytest.raises(DataError, match=message):
        PlanVerifier(TripTask.from_dict(task))


def test_a_task_proves_its_own_checks(task, plan):
    bad = copy.deepcopy(plan)
    item(bad, "b")["end"] = "2026-06-05T11:19"
    task |= {"gold": plan, "known_bad": [{"breaks": "dwell", "plan": bad}]}
    PlanVerifier(TripTask.from_dict(task)).require_valid()
    for wrong in ({"gold": bad}, {"known_bad": [{"breaks": "overlap", "plan": bad}]},
                  {"known_bad": [{"breaks": "dwell", "plan": plan}]}):  # fmt: skip
        verifier = PlanVerifier(TripTask.from_dict({**task, **wrong}))
        assert verifier.validate()
        with pytest.raises(DataError, match="its own examples"):
            verifier.require_valid()


def test_soft_checks_are_reported_and_do_not_gate(task, plan):
    line = {"check": "must_avoid", "places": ["cafe"], "hard": False}
    report = verify(with_lines(task, line), plan)
    assert report["must_avoid"].verdict is Verdict.FAIL
    assert report.feasible is True
    assert gate(report).value == 1.0
