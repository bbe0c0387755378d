"""Shape, identity and calendar: what cannot be read, named or timed ends there."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trueup.rewards import gate
from trueup.types import Verdict
from trueup.verifiers.plan import PlanVerifier, TripTask
from trueup.verifiers.plan.clock import Zone


def item(plan, id_):
    return next(i for d in plan["days"] for i in d["items"] if i["id"] == id_)


def only_failure(report, name):
    assert report.failed == (name,), report.failed
    assert report.feasible is False


def test_the_plan_made_by_hand_is_feasible_as_text_bytes_and_in_a_fence(weekend, plan):
    text = json.dumps(plan)
    for answer in (plan, text, text.encode(), f"Here you are:\n```json\n{text}\n```\nEnjoy!"):
        assert weekend.verify(answer).feasible is True


@pytest.mark.parametrize(
    "answer",
    ["", "no", "[]", "{}", "null", '{"days": []}', '{"days": 3}', b"\xff\xfe", None, 7, [1], {"days": [None]},
     "```json\n{}\n```\n```json\n{}\n```", "[" * 100_000, '{"days": [' * 5_000],
)  # fmt: skip
def test_an_unreadable_answer_fails_its_shape_and_never_raises(weekend, answer):
    report = weekend.verify(answer)
    only_failure(report, "shape")
    assert all(r.verdict is Verdict.NOT_APPLICABLE for r in report.results[1:])
    assert report.credit == 0.0
    assert gate(report).value == 0.0


def test_a_missing_repeated_or_swapped_day_fails_the_shape(weekend, plan):
    first, second = plan["days"]
    for days in ([first], [first, first], [second, first], [first, second, second]):
        only_failure(weekend.verify({"days": days}), "shape")


@pytest.mark.parametrize(
    "change",
    [{"id": "b"}, {"kind": "party"}, {"via": "teleport"}, {"price": 0}, {"place": 5}, {"place": ""},
     {"start": 1234567890}, {"place": "x" * 201}],
)  # fmt: skip
def test_repeated_ids_unknown_kinds_and_extra_keys_fail_the_shape(weekend, plan, change):
    item(plan, "c").update(change)
    only_failure(weekend.verify(plan), "shape")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", '"12"'])
def test_a_claim_that_is_no_finite_number_fails_the_shape(weekend, plan, number):
    text = json.dumps({**plan, "claims": {"cost": 1}}).replace('"cost": 1', f'"cost": {number}')
    only_failure(weekend.verify(text), "shape")


@pytest.mark.parametrize("word", ["cafe", "Café Ole", "  CAFÉ   OLE ", "cafe\u0301 ole", "Ｃafé ole"])
def test_names_are_compared_after_nfkc_case_folding_and_trimming(weekend, plan, word):
    item(plan, "c")["place"] = word
    assert weekend.verify(plan).feasible is True


@pytest.mark.parametrize("word", ["Cafe Ole", "Café-Ole", "Café", "inn"])
def test_accents_and_punctuation_and_the_kind_of_place_still_count(weekend, plan, word):
    item(plan, "c")["place"] = word
    only_failure(weekend.verify(plan), "identity")


def test_a_name_that_fits_two_places_is_unknown_and_leaves_the_rest_unknown(weekend, plan):
    item(plan, "c")["place"] = "Twin"
    report = weekend.verify(plan)
    assert report["identity"].verdict is Verdict.UNKNOWN
    assert report["identity"].witness == ("c: Twin",)
    assert report.feasible is None
    assert gate(report).reason == "verifier_unknown"


@pytest.mark.parametrize(
    ("start", "end"),
    [("2026-06-05T13:00", "2026-06-05T13:00"), ("2026-06-05T14:00", "2026-06-05T13:00"),
     ("2026-06-06T13:00", "2026-06-06T14:00"), ("2026-06-05T13:61", "2026-06-05T14:00"),
     ("2026-02-30T13:00", "2026-06-05T14:00"), ("2026-06-05T13:00:30", "2026-06-05T14:00"),
     ("2026-06-05T13:00+02:00", "2026-06-05T14:00"), ("2026-06-05T13:00", "2026-06-09T14:00")],
)  # fmt: skip
def test_times_that_do_not_exist_or_lie_on_another_day_fail_the_calendar(weekend, plan, start, end):
    item(plan, "c").update(start=start, end=end)
    only_failure(weekend.verify(plan), "calendar")


def test_an_offset_that_the_zone_really_has_and_utc_say_the_same_as_local_time(weekend, plan):
    item(plan, "c").update(start="2026-06-05T13:00+01:00", end="2026-06-05T13:00Z")
    assert weekend.verify(plan).feasible is True


@pytest.mark.parametrize(
    ("day", "start", "end", "minutes"),
    [("2026-03-29", "01:30", "03:30", 60), ("2026-10-25", "01:30", "03:30", 180),
     ("2026-06-05", "01:30", "03:30", 120)],
)  # fmt: skip
def test_berlin_half_past_one_to_half_past_three_is_one_two_or_three_hours(day, start, end, minutes):
    zone = Zone.load("Europe/Berlin")
    assert zone.parse(f"{day}T{end}").utc - zone.parse(f"{day}T{start}").utc == minutes


def test_a_time_in_the_spring_gap_is_wrong_and_one_in_the_autumn_hour_is_unknown_without_an_offset():
    zone = Zone.load("Europe/Berlin")
    assert zone.parse("2026-03-29T02:30").problem == "gap"
    assert zone.parse("2026-10-25T02:30").problem == "ambiguous"
    first, second = zone.parse("2026-10-25T02:30+02:00"), zone.parse("2026-10-25T02:30+01:00")
    assert second.utc - first.utc == 60
    assert zone.parse("2026-10-25T02:30+03:00").problem == "offset"


def test_the_autumn_hour_in_a_plan_leaves_it_undecided_until_an_offset_is_given(task, plan):
    task |= {"start": "2026-10-24"}
    task["services"][1]["dates"] = ["2026-10-25"]
    task["places"][2]["hours"] = task["places"][3]["hours"] = "always"
    verifier = PlanVerifier(TripTask.from_dict(task))
    text = json.dumps(plan).replace("2026-06-05", "2026-10-24").replace("2026-06-06", "2026-10-25")
    assert verifier.verify(text).feasible is True
    unclear = text.replace('"end": "2026-10-25T09:00"', '"end": "2026-10-25T01:30"')
    assert verifier.verify(unclear)["calendar"].verdict is Verdict.UNKNOWN
    # From 20:00 the first 01:30 comes after five and a half hours, the second after six and a half.
    first = verifier.verify(unclear.replace("25T01:30", "25T01:30+01:00"))
    second = verifier.verify(unclear.replace("25T01:30", "25T01:30+00:00"))
    assert first.failed == ("nights",)
    assert second.feasible is True


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
stamps = st.sampled_from(
    ["2026-06-05T06:00", "2026-06-05T23:59", "2026-06-06T02:30", "9999-12-31T23:59", "0001-01-01T00:00",
     "2026-06-05T13:00Z", "2026-06-05T13:00+14:59", "2026-06-05T24:00", "２０２６-06-05T10:00"]
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.data())
def test_whatever_a_policy_writes_gets_a_verdict_and_no_exception(weekend, plan, data):
    plan = copy.deepcopy(plan)
    for _ in range(data.draw(st.integers(1, 3))):
        day = plan["days"][data.draw(st.integers(0, len(plan["days"]) - 1))]
        if not isinstance(day, dict) or not day.get("items"):
            continue
        target = data.draw(st.sampled_from(day["items"]))
        key = data.draw(st.sampled_from(["id", "kind", "place", "service", "start", "end", "via", "extra"]))
        target[key] = data.draw(junk | stamps | st.sampled_from(["visit", "move", "stay", "museum", "Twin"]))
    for answer in (plan, data.draw(junk)):
        report = weekend.verify(answer)
        assert len(report.results) == len(weekend.specs)
        assert not any(r.verdict is Verdict.ERROR for r in report.results), report.undecided
        reward = gate(report, 0.5)
        assert reward.value is None or 0.0 <= reward.value <= 1.0
