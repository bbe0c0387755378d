"""Breaking good plans on purpose, to find out whether the checks notice.

A mutation is a sloppy random change of a plan, or of one constraint line, aimed at one check. It need not hit
only that one: the CP-SAT twin says which checks it really broke, and the imperative checks must say the
same. So a mutation is a test of agreement whatever it does, and a clean hit when exactly one check broke.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from trueup.verifiers.plan import PlanVerifier, TripTask
from trueup.verifiers.plan.oracle import Oracle

__all__ = ["AIMS", "STAGE_AIMS", "Mutation", "Outcome", "compare", "known_bad", "mutate", "mutate_stage"]

Plan: TypeAlias = dict[str, Any]
Lines: TypeAlias = list[dict[str, Any]]
Aim: TypeAlias = Callable[[random.Random, TripTask, Plan, Lines], bool]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A changed plan and task. `aim` is the check that the change was meant to break."""

    aim: str
    plan: Plan
    task: TripTask


@dataclass(frozen=True, slots=True)
class Outcome:
    """What both implementations said of a mutation. `staged`: it did not get past a stage."""

    aim: str
    broken: frozenset[str]  # by the CP-SAT twin
    failed: frozenset[str]  # by the imperative checks
    staged: bool = False

    @property
    def agrees(self) -> bool:
        return self.staged or self.broken == self.failed


def _items(plan: Plan, *kinds: str) -> list[dict[str, Any]]:
    return [i for day in plan["days"] for i in day["items"] if not kinds or i["kind"] in kinds]


def _shift(stamp: str, minutes: int) -> str:
    return (datetime.fromisoformat(stamp) + timedelta(minutes=minutes)).isoformat(timespec="minutes")


def _pick(rng: random.Random, rows: list[Any]) -> Any:
    return rng.choice(rows) if rows else None


def _remove(plan: Plan, item: dict[str, Any]) -> None:
    for day in plan["days"]:
        day["items"] = [i for i in day["items"] if i is not item]


def _line(lines: Lines, check: str) -> dict[str, Any] | None:
    return next((line for line in lines if line["check"] == check), None)


# --- changes of the plan -------------------------------------------------------------------------------


def _longer(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    item = _pick(rng, _items(plan, "visit"))
    item["end"] = _shift(item["end"], rng.choice((1, 5, 30, 90, 240)))
    return True


def _earlier(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    item = _pick(rng, _items(plan))
    step = rng.choice((-180, -45, -10, -1, 1, 10, 45, 180))
    for key in ("start", "end"):
        item[key] = _shift(item[key], step)
    return True


def _shorter(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    item = _pick(rng, _items(plan, "visit"))
    item["end"] = _shift(item["start"], rng.choice((1, 20, 44, 59, 89)))
    return True


def _short_night(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    item = _pick(rng, _items(plan, "stay"))
    midnight = item["start"][:10] + "T00:00"
    if rng.random() < 0.3:
        _remove(plan, item)
    elif rng.random() < 0.5:
        item["end"] = _shift(midnight, 24 * 60 + rng.randint(0, 59))
    else:
        item["end"] = _shift(midnight, 24 * 60 - 1)
    return True


def _elsewhere(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    item = _pick(rng, _items(plan, "visit", "stay"))
    here = next(p for p in task.places if p.id == item["place"])
    same_city = rng.random() < 0.6
    rows = [
        p.id for p in task.places
        if (p.kind == "hotel") == (here.kind == "hotel") and p.id != here.id
        and (p.city == here.city) == same_city
    ]  # fmt: skip
    if not rows:
        return False
    item["place"] = _pick(rng, rows)
    return True


def _other_way(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    item = _pick(rng, _items(plan))
    modes = sorted({e.mode for e in task.edges} - {item.get("via", "walk")})
    if not modes:
        return False
    item["via"] = _pick(rng, modes)
    return True


def _drop(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    _remove(plan, _pick(rng, _items(plan)))
    return True


def _drop_last_move(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    moves = _items(plan, "move")
    if not moves:
        return False
    _remove(plan, moves[-1] if rng.random() < 0.7 else moves[0])
    return True


def _teleport(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    """A visit in another city, or a journey between two cities left out."""
    moves = _items(plan, "move")
    if len(moves) > 2 and rng.random() < 0.5:
        _remove(plan, _pick(rng, moves[1:-1]))
        return True
    item = _pick(rng, _items(plan, "visit"))
    here = next(p for p in task.places if p.id == item["place"])
    rows = [p.id for p in task.places if p.kind in (here.kind, "station") and p.city != here.city]
    if not rows:
        return False
    item["place"] = _pick(rng, rows)
    return True


def _again(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    """The same sight again in place of another one of its city."""
    sights = {p.id: p.city for p in task.places if p.kind == "sight"}
    visits = [i for i in _items(plan, "visit") if i["place"] in sights]
    first = _pick(rng, visits)
    others = [i for i in visits if first and i is not first and sights[i["place"]] == sights[first["place"]]]
    if not others:
        return False
    _pick(rng, others)["place"] = first["place"]
    return True


def _hotels_count(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    """No repeats among hotels or restaurants either."""
    line = _line(lines, "no_repeat")
    if line is None:
        return False
    line["kinds"] = [*line["kinds"], rng.choice(("hotel", "restaurant"))]
    return True


def _other_service(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    item = _pick(rng, _items(plan, "move"))
    if item is None:
        return False
    item["service"] = _pick(rng, [s.id for s in task.services if s.id != item["service"]])
    return True


def _late_train(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    item = _pick(rng, _items(plan, "move"))
    if item is None:
        return False
    key = rng.choice(("start", "end"))
    item[key] = _shift(item[key], rng.choice((-15, -1, 1, 15)))
    return True


def _false_claim(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    cost = plan.get("claims", {}).get("cost")
    if cost is None:
        return False
    plan["claims"] = {"cost": round(cost + rng.choice((-20, -1.01, 1.01, 5)), 2)}
    return True


# --- changes of one constraint -------------------------------------------------------------------------


def _want_more(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    seen = {i.get("place") for i in _items(plan)}
    unseen = [p.id for p in task.places if p.kind == "sight" and p.id not in seen]
    line = _line(lines, "must_visit")
    if line is None or not unseen:
        return False
    line["places"] = [*line["places"], _pick(rng, unseen)]
    return True


def _fewer(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    line = next((x for x in lines if x.get("name") == "sights_per_day"), None)
    if line is None:
        return False
    line["at_most"] = rng.choice((0, 1))
    return True


def _more_sights(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    line = next((x for x in lines if x.get("name") == "sights"), None)
    if line is None:
        return False
    line["at_least"] = line["at_least"] + rng.choice((1, 4, 9))
    return True


def _poorer(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    line = _line(lines, "budget")
    if line is None:
        return False
    line["limit"] = str(round(float(line["limit"]) * rng.uniform(0.3, 1.0), 2))
    return True


def _long_change(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    line = _line(lines, "connections")
    if line is None:
        line = {"check": "connections"}
        lines.append(line)
    line["minutes"] = rng.choice((300, 2000, 9000))
    return True


def _avoid_seen(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    item = _pick(rng, _items(plan, "visit", "stay"))
    line = _line(lines, "must_avoid")
    if line is None:
        line = {"check": "must_avoid", "places": []}
        lines.append(line)
    line["places"] = [*line["places"], item["place"]]
    return True


def _ban_used(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    mode = rng.choice(("walk", "metro", "taxi", "train"))
    line = _line(lines, "modes_banned")
    if line is None:
        lines.append({"check": "modes_banned", "modes": [mode]})
    else:
        line["modes"] = [*line["modes"], mode]
    return True


def _meal_wish(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    line = _line(lines, "meals")
    if line is None:
        return False
    line["windows"] = [*line["windows"], rng.choice(("08:00-09:00", "15:00-16:30", "11:00-12:00"))]
    return True


def _longer_stay(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    rows = [x for x in lines if x["check"] == "min_stay"]
    if not rows:
        lines.append({"check": "min_stay", "city": task.cities[-1].id, "nights": task.days})
    else:
        line = _pick(rng, rows)
        line["nights"] = line["nights"] + rng.choice((1, 2))
    return True


def _short_day(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    line = _line(lines, "day_window")
    if line is None:
        return False
    if rng.random() < 0.5:
        line["earliest"] = rng.choice(("09:00", "10:30", "12:00"))
    else:
        line["latest"] = rng.choice(("17:00", "19:30", "21:00"))
    return True


def _reversed_order(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    visits = _items(plan, "visit")
    if len(visits) < 2:
        return False
    a, b = rng.sample(visits, 2)
    if a["place"] == b["place"]:
        return False
    lines[:] = [x for x in lines if x["check"] != "precedence"]
    lines.append({"check": "precedence", "before": a["place"], "after": b["place"]})
    return True


def _narrow(rng: random.Random, task: TripTask, plan: Plan, lines: Lines) -> bool:
    item = _pick(rng, _items(plan, "visit"))
    span = rng.choice(("09:00-12:00", "12:00-18:00", "18:00-23:59", "22:00-02:00"))
    lines.append({"check": "time_window", "place": item["place"], "date": item["start"][:10], "span": span})
    return True


AIMS: dict[str, tuple[Aim, ...]] = {
    "must_visit": (_want_more, _elsewhere),
    "nights": (_short_night,),
    "meals": (_meal_wish, _earlier),
    "min_stay": (_longer_stay,),
    "sights": (_more_sights, _drop),
    "sights_per_day": (_fewer,),
    "budget": (_poorer,),
    "claim": (_false_claim,),
    "connections": (_long_change,),
    "time_window": (_narrow,),
    "precedence": (_reversed_order,),
    "must_avoid": (_avoid_seen,),
    "no_repeat": (_again, _hotels_count),
    "modes_banned": (_ban_used,),
    "closed_loop": (_drop_last_move,),
    "day_window": (_short_day, _earlier),
    "overlap": (_longer,),
    "continuity": (_teleport, _teleport, _other_service),
    "transit": (_other_way, _earlier),
    "timetable": (_late_train, _other_service),
    "opening_hours": (_earlier,),  # or `_closed`: a place shuts on the day of a visit
    "dwell": (_shorter,),
    "capacity": (),  # see `_crowd`: the party grows
}


def _crowd(rng: random.Random, task: TripTask) -> TripTask:
    """Capacity cannot break by a change of the plan alone: take away seats, rooms or places."""
    raw = task.model_dump(mode="json")
    what = rng.choice(("rooms", "seats", "max_party"))
    for row in raw["places"] if what != "seats" else raw["services"]:
        if what == "max_party" and row["kind"] in ("sight", "restaurant") and rng.random() < 0.3:
            row["max_party"] = 1
        elif what == "rooms" and row["rooms"] is not None:
            row["rooms"] = 0
        elif what == "seats":
            row["seats"] = rng.choice((0, row["seats"]))
    return TripTask.from_dict(raw)


def _closed(rng: random.Random, task: TripTask, plan: Plan) -> TripTask | None:
    """A visited place is shut on the local date of the visit, or opens a minute too late."""
    raw = task.model_dump(mode="json")
    item = _pick(rng, _items(plan, "visit"))
    row = next(p for p in raw["places"] if p["id"] == item["place"])
    if not isinstance(row["hours"], dict):
        return None
    late = f"{_shift(item['start'], 1)[11:16]}-23:59"
    row["hours"]["dates"][item["start"][:10]] = [] if rng.random() < 0.5 else [late]
    return TripTask.from_dict(raw)


def mutate(rng: random.Random, task: TripTask, aim: str) -> Mutation | None:
    """One change of the task's gold plan aimed at `aim`; None when this task offers no way to make it.
    Afterwards the stated cost is made true again, unless the claim was the aim."""
    plan, lines = copy.deepcopy(task.gold), [copy.deepcopy(line) for line in task.constraints]
    if plan is None:
        return None
    if aim == "capacity":
        return Mutation(aim, plan, _crowd(rng, task))
    if aim == "opening_hours" and rng.random() < 0.5:
        shut = _closed(rng, task, plan)
        return None if shut is None else Mutation(aim, plan, shut)
    change = rng.choice(AIMS[aim])
    if not change(rng, task, plan, lines):
        return None
    changed = (
        task if lines == list(task.constraints) else task.model_copy(update={"constraints": tuple(lines)})
    )
    if aim != "claim":
        resolved = PlanVerifier(changed).resolve(plan)
        if resolved is not None and "cost" in plan.get("claims", {}):
            plan["claims"] = {**plan["claims"], "cost": float(resolved.cost[0])}
    return Mutation(aim, plan, changed)


def compare(mutation: Mutation) -> Outcome:
    """Ask both implementations."""
    report = PlanVerifier(mutation.task).verify(mutation.plan)
    failed = frozenset(report.failed)
    if failed & {"shape", "identity", "calendar"} or report.undecided:
        return Outcome(mutation.aim, frozenset(), failed, staged=True)
    judged = Oracle(mutation.task).judge(mutation.plan)
    # A check that does not apply holds in the model, which knows no third answer.
    broken = frozenset(name for name, holds in judged.items() if not holds)
    return Outcome(mutation.aim, broken, failed)


# --- the three stages, broken by construction ----------------------------------------------------------


def _stage_cases(rng: random.Random, plan: Plan) -> Iterator[tuple[str, Plan]]:
    def fresh() -> tuple[Plan, dict[str, Any]]:
        new = copy.deepcopy(plan)
        return new, _pick(rng, _items(new, "visit"))

    new, _ = fresh()
    new["days"].pop(rng.randrange(len(new["days"])))
    yield "shape", new
    new, _ = fresh()
    new["days"].append(copy.deepcopy(new["days"][-1]))
    yield "shape", new
    new, item = fresh()
    item["id"] = next(i["id"] for i in _items(new) if i is not item)
    yield "shape", new
    new, item = fresh()
    item["kind"] = "sightsee"
    yield "shape", new
    new, item = fresh()
    item["price"] = 0
    yield "shape", new
    new, _ = fresh()
    new["claims"] = {"cost": float("nan")}
    yield "shape", new
    new, item = fresh()
    item["place"] = item["place"] + " annexe"
    yield "identity", new
    new, item = fresh()
    item["start"], item["end"] = item["end"], item["start"]
    yield "calendar", new
    new, item = fresh()
    item["end"] = item["start"]
    yield "calendar", new
    new, item = fresh()
    _remove(new, item)
    day = next(d for d in new["days"] if d["date"] != item["start"][:10])
    day["items"].append(item)
    yield "calendar", new
    new, item = fresh()
    item["start"] = item["start"][:10] + "T25:10"
    yield "calendar", new


STAGE_AIMS = ("shape", "identity", "calendar")


def mutate_stage(rng: random.Random, task: TripTask) -> list[tuple[str, Plan]]:
    """Every way in which this module breaks a stage, once: (stage that must fail, plan)."""
    return list(_stage_cases(rng, task.gold or {}))


def known_bad(task: TripTask, seed: int, limit: int = 8) -> list[dict[str, Any]]:
    """Plans for a task file, each failing exactly one check by the word of both implementations."""
    rng = random.Random(f"known_bad/{seed}")
    out: list[dict[str, Any]] = [
        {"breaks": breaks, "plan": plan} for breaks, plan in mutate_stage(rng, task)[:7:6] if _is_json(plan)
    ]
    for aim in AIMS:
        for _ in range(6):
            mutation = mutate(rng, task, aim)
            if mutation is None or mutation.task is not task:
                continue
            outcome = compare(mutation)
            if outcome.agrees and len(outcome.broken) == 1:
                out.append({"breaks": next(iter(outcome.broken)), "plan": mutation.plan})
                break
        if len(out) >= limit:
            break
    return out


def _is_json(plan: Plan) -> bool:
    return all(value == value for value in plan.get("claims", {}).values())
