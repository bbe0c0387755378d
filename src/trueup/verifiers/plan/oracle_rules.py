"""The constraints once more, as CP rules over slots: `rule(tables, model, holds, line)` posts what must be
true whenever the literal `holds` is. Maximising the sum of these literals tells which checks a fixed plan
satisfies; setting them to 1 makes the plan satisfy all of them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from trueup.verifiers.plan.constraint import Where
from trueup.verifiers.plan.model import Place
from trueup.verifiers.plan.obligations import Count, Meals, MinStay, MustVisit, Nights
from trueup.verifiers.plan.oracle_model import EMPTY, Slot, SlotModel, TaskTables
from trueup.verifiers.plan.prohibitions import (
    Budget,
    Claim,
    ClosedLoop,
    Connections,
    DayWindow,
    ModesBanned,
    MustAvoid,
    NoRepeat,
    Precedence,
    TimeWindow,
)

__all__ = ["ALWAYS_RULES", "RULES"]


def _minutes(span: str) -> tuple[int, int]:
    lo, hi = (int(x[:2]) * 60 + int(x[3:]) for x in span.split("-"))
    return lo, hi if hi > lo else hi + 1440


def _is_used(slot: Slot) -> Any:
    empty = slot.pick.get(EMPTY)
    return 1 if empty is None else empty.negated()


def _matches(where: Where, place: Place) -> bool:
    """Does a place meet every key that `where` gives?"""
    return all(
        (
            not where.places or place.id in where.places,
            not where.kinds or place.kind in where.kinds,
            not where.tags or any(tag in where.tags for tag in place.tags),
            not where.cities or place.city in where.cities,
        )
    )


# --- always -------------------------------------------------------------------------------------------


def overlap(tables: TaskTables, model: SlotModel, holds: Any, line: None) -> None:
    if not model.fixed:
        for slot in model.slots:
            model.when(slot.start >= slot.free_from, holds, _is_used(slot))
        return
    intervals = [
        model.cp.new_optional_fixed_size_interval_var(s.start, s.end - s.start, holds, "")
        for s in model.slots
    ]
    model.cp.add_no_overlap(intervals)


def continuity(tables: TaskTables, model: SlotModel, holds: Any, line: None) -> None:
    city_index = {c.id: i for i, c in enumerate(tables.task.cities)}
    home = city_index[tables.place[tables.task.home].city]
    city_at = [city_index[p.city] for p in tables.task.places] + [home]
    for slot in model.slots:
        if model.fixed:
            here: Any = city_at[slot.before]
        else:
            here = model.cp.new_int_var(0, len(city_index) - 1, "")
            model.cp.add_element(slot.before, city_at, here)
        for name, lit in slot.places():
            model.when(here == city_index[tables.place[name].city], holds, lit)
        for name, lit in slot.services():
            origin = tables.place[tables.service[name].origin]
            model.when(here == city_index[origin.city], holds, lit)


def transit(tables: TaskTables, model: SlotModel, holds: Any, line: None) -> None:
    for slot in model.slots:
        if model.fixed and slot.start < slot.free_from:
            continue  # overlapping items have no gap; the overlap rule speaks of them
        model.when(slot.start >= slot.free_from + slot.way, holds, _is_used(slot))


def timetable(tables: TaskTables, model: SlotModel, holds: Any, line: None) -> None:
    for slot in model.slots:
        for name, lit in slot.services():
            service = tables.service[name]
            model.when(slot.end == slot.start + service.minutes, holds, lit)
            if service.departs is not None:
                hour, minute = service.departs.split(":")
                leaves = tables.at(slot.day, int(hour) * 60 + int(minute), service.origin)
                model.when(slot.start == leaves, holds, lit)
            if service.dates is not None:
                runs = any((d - tables.task.start).days == slot.day for d in service.dates)
                model.when(runs, holds, lit)


def opening_hours(tables: TaskTables, model: SlotModel, holds: Any, line: None) -> None:
    for slot in model.slots:
        for name, lit in slot.places():
            place = tables.place[name]
            if place.kind == "hotel":
                continue
            inside = []
            for lo, hi in tables.windows(place, slot.day) or []:
                if model.fixed:
                    inside.append(int(lo <= slot.start and slot.end <= hi))
                else:
                    chosen = model.literal()
                    model.when(slot.start >= lo, chosen)
                    model.when(slot.end <= hi, chosen)
                    inside.append(chosen)
            model.require_one(inside, holds, lit)


def dwell(tables: TaskTables, model: SlotModel, holds: Any, line: None) -> None:
    for slot in model.slots:
        for name, lit in slot.places():
            if tables.place[name].kind != "hotel":
                model.when(slot.end - slot.start >= tables.place[name].min_dwell_min, holds, lit)


def capacity(tables: TaskTables, model: SlotModel, holds: Any, line: None) -> None:
    people = tables.task.party.adults + tables.task.party.children
    for slot in model.slots:
        for name, lit in slot.places():
            place = tables.place[name]
            fits = place.max_party is None or people <= place.max_party
            if place.rooms is not None and not isinstance(place.price, (str, type(None))):
                fits = fits and people <= place.rooms * (place.price.holds or 0)
            model.when(fits, holds, lit)
        for name, lit in slot.services():
            seats = tables.service[name].seats
            model.when(seats is None or people <= seats, holds, lit)


# --- obligations --------------------------------------------------------------------------------------


def must_visit(tables: TaskTables, model: SlotModel, holds: Any, line: MustVisit) -> None:
    for name in line.places:
        model.require_one([s.pick[key] for s in model.slots if (key := ("place", name)) in s.pick], holds)


def _covers(
    tables: TaskTables, model: SlotModel, night: int, cities: set[str] | None, minutes: int
) -> list[Any]:
    """Literals "this slot lasts over the midnight after day `night`": hotels, and, without `cities`,
    journeys."""
    out = []
    for slot in model.slots:
        if slot.day > night:
            continue
        options = [(n, lit) for n, lit in slot.places() if tables.place[n].kind == "hotel"]
        if cities is None:
            options += [(tables.service[n].destination, lit) for n, lit in slot.services()]
        for place, lit in options:
            if cities is not None and tables.place[place].city not in cities:
                continue
            late = model.at_least(slot.end, tables.at(night + 1, 0, place))
            long = model.at_least(slot.end - slot.start, minutes)
            out.append(_all_of(model, [late, long, lit]))
    return out


def _all_of(model: SlotModel, literals: list[Any]) -> Any:
    """A literal that may be true only when all of `literals` are."""
    if any(isinstance(x, int) and x == 0 for x in literals):
        return 0
    open_ = [x for x in literals if not isinstance(x, int)]
    if not open_:
        return 1
    out = model.literal()
    for x in open_:
        model.cp.add_implication(out, x)
    return out


def nights(tables: TaskTables, model: SlotModel, holds: Any, line: Nights) -> None:
    for night in range(tables.task.days - 1):
        model.require_one(_covers(tables, model, night, None, 60 * line.min_hours), holds)


def min_stay(tables: TaskTables, model: SlotModel, holds: Any, line: MinStay) -> None:
    all_nights = range(tables.task.days)
    slept = [model.any_of(_covers(tables, model, night, {line.city}, 0)) for night in all_nights]
    model.when(sum(slept) >= line.nights, holds)


def meals(tables: TaskTables, model: SlotModel, holds: Any, line: Meals) -> None:
    for day in line.days if line.days is not None else range(1, tables.task.days + 1):
        for window in line.windows:
            lo, hi = _minutes(window)
            options = []
            for slot in model.slots:
                if slot.day != day - 1:
                    continue
                for name, lit in slot.places():
                    if tables.place[name].kind != "restaurant":
                        continue
                    after = model.at_least(slot.start, tables.at(day - 1, lo, name))
                    before = model.at_least(tables.at(day - 1, hi, name) - 1, slot.start)
                    options.append(_all_of(model, [after, before, lit]))
            model.require_one(options, holds)


def count(tables: TaskTables, model: SlotModel, holds: Any, line: Count) -> None:
    names = [p.id for p in tables.task.places if _matches(line.where, p)]
    bins = range(tables.task.days) if line.per == "day" else [None]
    for day in bins:
        slots = [s for s in model.slots if day is None or s.day == day]
        by_place = {i: [s.pick[key] for s in slots if (key := ("place", i)) in s.pick] for i in names}
        if line.distinct:
            total = sum(model.any_of(lits) for lits in by_place.values())
        else:
            total = sum(lit for lits in by_place.values() for lit in lits)
        model.when(total >= line.at_least, holds)
        if line.at_most is not None:
            model.when(total <= line.at_most, holds)


# --- prohibitions -------------------------------------------------------------------------------------


def _total_cost(tables: TaskTables, model: SlotModel) -> Any:
    """Minor units of the whole plan. An item without a price cannot be in a plan that the model makes."""
    total: Any = 0
    for slot in model.slots:
        total = total + slot.way_cost * (1 if not model.fixed else int(bool(slot.hop)))
        for name, lit in slot.services():
            total = total + _priced(tables, model, tables.service[name].price, lit)
        for name, lit in slot.places():
            place = tables.place[name]
            line = _priced(tables, model, place.price, lit)
            total = total + line
            if isinstance(place.price, (str, type(None))) or not place.price.per_night:
                continue
            each = tables.cost(place.price) or 0
            if model.fixed:  # a longer stay; the model itself books night by night
                midnights = range(slot.day + 1, tables.task.days + 2)
                n = sum(slot.end >= tables.at(day, 0, name) for day in midnights)
                total = total + each * (max(n, 1) - 1)
    return total


def _priced(tables: TaskTables, model: SlotModel, price: Any, lit: Any) -> Any:
    cost = tables.cost(price)
    if cost is None:
        model.forbid(lit)
        return 0
    return cost * lit


def budget(tables: TaskTables, model: SlotModel, holds: Any, line: Budget) -> None:
    model.when(_total_cost(tables, model) <= int(Fraction(line.limit) / tables.minor), holds)


def claim(tables: TaskTables, model: SlotModel, holds: Any, line: Claim) -> None:
    if not model.fixed:
        return  # stated after the plan is made
    stated = model.claims.get(line.quantity)
    if stated is None:
        model.forbid(holds)
        return
    if line.quantity == "cost":
        truth = Fraction(_total_cost(tables, model)) * tables.minor
    elif line.quantity == "visits":
        kinds = (tables.place[n].kind for s in model.slots for n, _ in s.places())
        truth = Fraction(sum(kind != "hotel" for kind in kinds))
    else:
        truth = Fraction(sum(s.way * s.hop + sum(s.end - s.start for _ in s.services()) for s in model.slots))
    model.when(abs(Fraction(repr(float(stated))) - truth) <= Fraction(line.tolerance), holds)


def connections(tables: TaskTables, model: SlotModel, holds: Any, line: Connections) -> None:
    for i, a in enumerate(model.slots):
        first = model.any_of([lit for _, lit in a.services()])
        for b in model.slots[i + 1 :]:
            second = model.any_of([lit for _, lit in b.services()])
            model.when(b.start >= a.end + line.minutes, holds, first, second)


def time_window(tables: TaskTables, model: SlotModel, holds: Any, line: TimeWindow) -> None:
    lo, hi = (tables.on(line.date, m, line.place) for m in _minutes(line.span))
    for slot in model.slots:
        lit = slot.pick.get(("place", line.place), 0)
        model.when(slot.start >= lo, holds, lit)
        model.when(slot.end <= hi, holds, lit)


def precedence(tables: TaskTables, model: SlotModel, holds: Any, line: Precedence) -> None:
    for later in model.slots:
        lit = later.pick.get(("place", line.after), 0)
        options = [
            _all_of(model, [slot.pick[key], model.at_least(later.start, slot.end)])
            for slot in model.slots
            if (key := ("place", line.before)) in slot.pick
        ]
        model.require_one(options, holds, lit)


def must_avoid(tables: TaskTables, model: SlotModel, holds: Any, line: MustAvoid) -> None:
    for slot in model.slots:
        for name, lit in slot.places():
            if name in line.places:
                model.forbid(holds, lit)


def no_repeat(tables: TaskTables, model: SlotModel, holds: Any, line: NoRepeat) -> None:
    for place in tables.task.places:
        if place.kind in line.kinds:
            key = ("place", place.id)
            model.when(sum(s.pick[key] for s in model.slots if key in s.pick) <= 1, holds)


def modes_banned(tables: TaskTables, model: SlotModel, holds: Any, line: ModesBanned) -> None:
    for slot in model.slots:
        for name, lit in slot.services():
            if tables.service[name].mode in line.modes:
                model.forbid(holds, lit)
        for mode, lit in slot.via.items():
            if mode in line.modes:
                model.forbid(holds, lit, slot.hop)


def closed_loop(tables: TaskTables, model: SlotModel, holds: Any, line: ClosedLoop) -> None:
    if not model.slots:
        return
    home = tables.index[tables.task.home]
    nowhere = len(tables.task.places)
    for slot in model.slots:
        for name, lit in (*slot.places(), *((tables.service[n].origin, x) for n, x in slot.services())):
            if tables.index[name] != home:  # so it must not be the first item
                model.when(slot.before != nowhere, holds, lit)
    model.when(model.slots[-1].after == home, holds)


def day_window(tables: TaskTables, model: SlotModel, holds: Any, line: DayWindow) -> None:
    lo, hi = (int(x[:2]) * 60 + int(x[3:]) for x in (line.earliest, line.latest))
    for slot in model.slots:
        for name, lit in slot.places():
            if tables.place[name].kind != "hotel":
                model.when(slot.start >= tables.at(slot.day, lo, name), holds, lit)
                model.when(slot.end <= tables.at(slot.day, hi, name), holds, lit)


ALWAYS_RULES: dict[str, Callable[..., None]] = {
    f.__name__: f for f in (overlap, continuity, transit, timetable, opening_hours, dwell, capacity)
}
RULES: dict[str, Callable[..., None]] = {
    f.__name__: f
    for f in (must_visit, nights, meals, min_stay, count, budget, claim, connections, time_window, precedence,
              must_avoid, no_repeat, modes_banned, closed_loop, day_window)
}  # fmt: skip
