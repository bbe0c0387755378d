"""A task compiled once, so that each of thousands of plans costs table lookups only.

Compiling turns names into row numbers, opening hours into merged UTC windows, and prices into what one use
costs this party in the task's currency. Resolving a plan against it is the second stage of verification,
after shape: words become rows, wall-clock times become instants, and the items are put in order of time.
A word or time that cannot be resolved ends verification there, because what follows would judge a guess.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

from trueup.types import Verdict
from trueup.verifiers.base import Finding
from trueup.verifiers.plan.clock import Zone, merge_windows, parse_clock, parse_span
from trueup.verifiers.plan.model import Place, Plan, Service, TripTask
from trueup.verifiers.plan.money import check_currencies, line_cost, minor_unit
from trueup.verifiers.plan.names import AMBIGUOUS, MISSING, NameTable

__all__ = ["CompiledPlace", "CompiledService", "CompiledTrip", "ResolvedPlan", "Step"]

Windows: TypeAlias = tuple[tuple[int, int], ...]
ItemKind: TypeAlias = Literal["visit", "stay", "move"]


@dataclass(frozen=True, slots=True)
class CompiledPlace:
    """One place, ready for lookups. `windows` is None when the table gives no hours."""

    row: Place
    index: int
    city: int
    zone: Zone
    windows: Windows | None
    opens: tuple[int, ...]  # starts of the windows, for bisection
    always_open: bool
    cost: Decimal | None  # one use, or one night when `per_night`
    per_night: bool
    rooms_needed: int | None

    def slack_inside(self, start: int, end: int) -> int:
        """Minutes by which [start, end) stays inside one opening; negative: minutes outside the best one."""
        i = bisect_right(self.opens, start) - 1
        best = -(end - start)
        for window in (self.windows or ())[max(i, 0) : i + 2]:
            best = max(best, min(start - window[0], window[1] - end))
        return best


@dataclass(frozen=True, slots=True)
class CompiledService:
    row: Service
    index: int
    origin: int
    destination: int
    departs: int | None  # local minute of day
    dates: frozenset[int] | None  # ordinals
    cost: Decimal | None


class Step(NamedTuple):
    """One resolved item. Times are UTC minutes; `day` counts from 0; local days are ordinals."""

    id: str
    kind: ItemKind
    place: int  # row of the place; -1 for a move
    service: int  # row of the service; -1 otherwise
    via: str
    start: int
    end: int
    day: int
    origin: int  # place where it begins
    destination: int  # place where it ends
    start_day: int
    start_minute: int
    end_day: int
    end_minute: int


@dataclass(frozen=True)
class ResolvedPlan:
    """A plan whose words and times are all known, in order of start."""

    trip: CompiledTrip
    steps: tuple[Step, ...]
    claims: Mapping[str, float]

    @cached_property
    def visits(self) -> tuple[Step, ...]:
        return tuple(s for s in self.steps if s.kind == "visit")

    @cached_property
    def hops(self) -> tuple[tuple[Step, Step], ...]:
        """Consecutive items between which the party must get from one place to another in one city."""
        city = self.trip.city_of
        return tuple(
            (a, b) for a, b in pairwise(self.steps)
            if a.destination != b.origin and city[a.destination] == city[b.origin]
        )  # fmt: skip

    @cached_property
    def nights(self) -> dict[int, list[Step]]:
        """Night d (local day d to d+1, from 0) -> the stays and overnight journeys that cover it."""
        first = self.trip.first_ordinal
        out: dict[int, list[Step]] = {}
        for step in self.steps:
            if step.end_day > step.start_day and step.kind != "visit":
                for night in range(step.start_day - first, step.end_day - first):
                    out.setdefault(night, []).append(step)
        return out

    @cached_property
    def cost(self) -> tuple[Decimal, tuple[str, ...]]:
        """Total in the task's currency from table prices, and the items whose price is unknown."""
        trip = self.trip
        total = Decimal(0)
        unknown: list[str] = []
        for step in self.steps:
            if step.kind == "move":
                line = trip.services[step.service].cost
            else:
                place = trip.places[step.place]
                line = place.cost
                if line is not None and place.per_night:
                    line = line * max(step.end_day - step.start_day, 1)
            if line is None:
                unknown.append(step.id)
            else:
                total += line
        for before, after in self.hops:
            edge = trip.edges.get((before.destination, after.origin, after.via))
            if edge is None or edge[1] is None:
                unknown.append(f"{before.id}->{after.id}")
            else:
                total += edge[1]
        return total, tuple(unknown)


class CompiledTrip:
    """The tables of one task as lookups. Build once, verify many."""

    def __init__(self, task: TripTask) -> None:
        check_currencies(task.currency, task.rates)
        self.task = task
        self.first_ordinal = task.start.toordinal()
        self.party = task.party
        zones: dict[str, Zone] = {}
        self.zones = [zones.setdefault(c.zone, Zone.load(c.zone)) for c in task.cities]
        self.city_index = {c.id: i for i, c in enumerate(task.cities)}
        self.place_index = {p.id: i for i, p in enumerate(task.places)}
        self.places = [self._compile_place(i, p) for i, p in enumerate(task.places)]
        self.city_of = [p.city for p in self.places]
        self.services = [self._compile_service(i, s) for i, s in enumerate(task.services)]
        self.edges = self._compile_edges()
        self.home = self.place_index[task.home]
        self.place_names = NameTable.build((p.id, (p.name, *p.aliases)) for p in task.places)
        self.service_names = NameTable.build((s.id, (s.name, *s.aliases)) for s in task.services)
        self.dates = [(task.start + timedelta(days=d)).isoformat() for d in range(task.days)]
        self.minor_unit = minor_unit(task.currency)
        snapshot = f", exchange snapshot {task.rates.date}" if task.rates is not None else ""
        self.cost_basis = f"table prices for {task.party.size} people in {task.currency}{snapshot}"

    def _compile_place(self, index: int, row: Place) -> CompiledPlace:
        city = self.city_index[row.city]
        zone = self.zones[city]
        windows: Windows | None = None
        if row.hours is not None and row.hours != "always":
            spans: list[tuple[int, int]] = []
            for offset in range(-2, self.task.days + 3):
                day = self.task.start + timedelta(days=offset)
                for text in row.hours.spans_on(day):
                    start, end = parse_span(text)
                    spans.append((zone.from_local(day, start), zone.from_local(day, end)))
            windows = tuple(merge_windows(spans))
        price = row.price
        holds = price.holds if price is not None and price != "free" and price.per == "room" else None
        return CompiledPlace(
            row=row,
            index=index,
            city=city,
            zone=zone,
            windows=windows,
            opens=tuple(w[0] for w in windows or ()),
            always_open=row.hours == "always",
            cost=line_cost(price, self.party, self.task.rates, self.task.currency),
            per_night=price is not None and price != "free" and price.per_night,
            rooms_needed=math.ceil(self.party.size / holds) if holds else None,
        )

    def _compile_service(self, index: int, row: Service) -> CompiledService:
        return CompiledService(
            row=row,
            index=index,
            origin=self.place_index[row.origin],
            destination=self.place_index[row.destination],
            departs=None if row.departs is None else parse_clock(row.departs),
            dates=None if row.dates is None else frozenset(d.toordinal() for d in row.dates),
            cost=line_cost(row.price, self.party, self.task.rates, self.task.currency),
        )

    def _compile_edges(self) -> dict[tuple[int, int, str], tuple[int, Decimal | None]]:
        edges: dict[tuple[int, int, str], tuple[int, Decimal | None]] = {}
        for edge in self.task.edges:
            a, b = self.place_index[edge.a], self.place_index[edge.b]
            value = (edge.minutes, line_cost(edge.price, self.party, self.task.rates, self.task.currency))
            edges[a, b, edge.mode] = value
            if edge.both_ways:
                edges.setdefault((b, a, edge.mode), value)
        return edges

    def zone_of(self, place: int) -> Zone:
        return self.places[place].zone

    # --- the stages before any constraint --------------------------------------------------------------

    def check_days(self, plan: Plan) -> Finding:
        """Part of the shape: every day of the trip once, in order, with its date; item ids unique."""
        wrong = []
        if len(plan.days) != len(self.dates):
            wrong.append(f"{len(plan.days)} days instead of {len(self.dates)}")
        for want, (day, text) in enumerate(zip(plan.days, self.dates, strict=False), start=1):
            if day.day != want or day.date != text:
                wrong.append(f"day {day.day} {day.date} instead of {want} {text}")
        seen: set[str] = set()
        for day in plan.days:
            for item in day.items:
                if item.id in seen:
                    wrong.append(f"id {item.id} twice")
                seen.add(item.id)
        return (
            Finding(Verdict.FAIL, -float(len(wrong)), tuple(wrong[:20])) if wrong else Finding(Verdict.PASS)
        )

    def resolve_names(self, plan: Plan) -> tuple[Finding, list[tuple[int, Any, int]]]:
        """Each item with its day and the row of its word; and what could not be named."""
        found: list[tuple[int, Any, int]] = []
        missing: list[str] = []
        ambiguous: list[str] = []
        for day in plan.days:
            for item in day.items:
                if item.kind == "move":
                    word, row = item.service, self.service_names.find(item.service)
                else:
                    word, row = item.place, self.place_names.find(item.place)
                if row == MISSING:
                    missing.append(f"{item.id}: {word}")
                elif row == AMBIGUOUS:
                    ambiguous.append(f"{item.id}: {word}")
                elif item.kind != "move" and (self.places[row].row.kind == "hotel") != (item.kind == "stay"):
                    missing.append(f"{item.id}: {word} is no place for a {item.kind}")
                found.append((day.day - 1, item, row))
        slack = -len(missing) if missing else 0
        return Finding.of_slack(slack, missing, ambiguous), found

    def resolve_times(self, found: list[tuple[int, Any, int]]) -> tuple[Finding, list[Step]]:
        """Instants for all items. Fails on times that do not exist, on an end not after its start, and on
        an item filed under another day than it starts on; a time that happens twice is unknown."""
        bad: list[str] = []
        unsure: list[str] = []
        steps: list[Step] = []
        first, n_days = self.first_ordinal, len(self.dates)
        for day, item, row in found:
            if item.kind == "move":
                service = self.services[row]
                place, index, origin, destination = -1, row, service.origin, service.destination
                start = self.places[origin].zone.parse(item.start)
                end = self.places[destination].zone.parse(item.end)
            else:
                place, index, origin, destination = row, -1, row, row
                zone = self.places[row].zone
                start, end = zone.parse(item.start), zone.parse(item.end)
            if start.utc is None or end.utc is None:
                problem = start.problem if start.utc is None else end.problem
                (unsure if {start.problem, end.problem} <= {"", "ambiguous"} else bad).append(
                    f"{item.id}: {problem}"
                )
            elif end.utc <= start.utc:
                bad.append(f"{item.id}: ends before it begins")
            elif start.day != first + day:
                bad.append(f"{item.id}: does not begin on day {day + 1}")
            elif end.day > first + n_days:
                bad.append(f"{item.id}: ends after the trip")
            else:
                steps.append(
                    Step(item.id, item.kind, place, index, item.via, start.utc, end.utc, day, origin,
                         destination, start.day, start.minute, end.day, end.minute)
                )  # fmt: skip
        steps.sort(key=_start_of)
        return Finding.of_slack(-len(bad) if bad else 0, bad, unsure), steps


def _start_of(step: Step) -> int:
    return step.start
