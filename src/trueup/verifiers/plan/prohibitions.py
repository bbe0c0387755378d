"""What a task may forbid or bound. Doing nothing breaks none of these; see `obligations.py` for why that matters."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from itertools import pairwise
from typing import ClassVar, Literal

from pydantic import Field

from trueup.types import Verdict
from trueup.verifiers.base import Finding, VerifierSpec
from trueup.verifiers.plan.clock import DAY_MIN, parse_clock, parse_span
from trueup.verifiers.plan.compiled import CompiledTrip, ResolvedPlan
from trueup.verifiers.plan.constraint import Check, Constraint, Where, place_rows, smallest
from trueup.verifiers.plan.model import Clock, Id, Mode, PlaceKind, Span
from trueup.verifiers.plan.money import Amount

__all__ = [
    "Budget",
    "Claim",
    "ClosedLoop",
    "Connections",
    "DayWindow",
    "ModesBanned",
    "MustAvoid",
    "NoRepeat",
    "Precedence",
    "TimeWindow",
    "computed",
]


class Budget(Constraint):
    """The whole trip, at table prices, costs at most `limit` in the task's currency."""

    check: Literal["budget"]
    limit: Amount

    def spec(self, trip: CompiledTrip) -> VerifierSpec:
        return super().spec(trip).model_copy(update={"unit": trip.task.currency, "basis": trip.cost_basis})

    def compile(self, trip: CompiledTrip) -> Check:
        def run(plan: ResolvedPlan) -> Finding:
            total, unknown = plan.cost
            # Prices are never negative, so what is known to be too much stays too much.
            slack = self.limit - total
            if slack < 0:
                return Finding(Verdict.FAIL, float(slack), (f"{total} > {self.limit}",))
            if unknown:
                return Finding(Verdict.UNKNOWN, None, unknown, "no price in the table")
            return Finding(Verdict.PASS, float(slack))

        return run


class Connections(Constraint):
    """At least `minutes` between the arrival of one journey and the departure of the next."""

    check: Literal["connections"]
    minutes: int = Field(ge=0)
    unit: ClassVar[str] = "min"

    def compile(self, trip: CompiledTrip) -> Check:
        def run(plan: ResolvedPlan) -> Finding:
            moves = [s for s in plan.steps if s.kind == "move"]
            return smallest((b.start - a.end - self.minutes, f"{a.id}->{b.id}") for a, b in pairwise(moves))

        return run


class TimeWindow(Constraint):
    """Every visit to `place` lies inside [from, to), wall-clock times of that place."""

    check: Literal["time_window"]
    place: Id
    date: date
    span: Span
    unit: ClassVar[str] = "min"

    def compile(self, trip: CompiledTrip) -> Check:
        row = place_rows(trip, (self.place,))[0]
        lo, hi = (trip.zone_of(row).from_local(self.date, m) for m in parse_span(self.span))

        def run(plan: ResolvedPlan) -> Finding:
            return smallest((min(s.start - lo, hi - s.end), s.id) for s in plan.steps if s.place == row)

        return run


class Precedence(Constraint):
    """`before` ends before `after` begins, for every visit to `after`."""

    check: Literal["precedence"]
    before: Id
    after: Id
    unit: ClassVar[str] = "min"

    def compile(self, trip: CompiledTrip) -> Check:
        first, then = place_rows(trip, (self.before, self.after))

        def run(plan: ResolvedPlan) -> Finding:
            later = [s for s in plan.steps if s.place == then]
            ends = [s.end for s in plan.steps if s.place == first]
            if not later:
                return Finding(Verdict.NOT_APPLICABLE)
            if not ends:
                return Finding(
                    Verdict.FAIL, None, tuple(s.id for s in later), f"{self.before} is not visited"
                )
            return smallest((s.start - min(ends), s.id) for s in later)

        return run


class MustAvoid(Constraint):
    """None of the listed places, by id; an alias does not help."""

    check: Literal["must_avoid"]
    places: tuple[Id, ...] = Field(min_length=1)
    unit: ClassVar[str] = "visits"

    def compile(self, trip: CompiledTrip) -> Check:
        rows = frozenset(place_rows(trip, self.places))

        def run(plan: ResolvedPlan) -> Finding:
            bad = tuple(s.id for s in plan.steps if s.place in rows)
            return Finding.of_slack(-len(bad), bad)

        return run


class NoRepeat(Constraint):
    """No place of these kinds is visited twice; places are compared by row, so no alias counts as new."""

    check: Literal["no_repeat"]
    kinds: tuple[PlaceKind, ...] = ("sight", "restaurant")
    unit: ClassVar[str] = "visits"

    def compile(self, trip: CompiledTrip) -> Check:
        rows = Where(kinds=self.kinds).rows(trip)

        def run(plan: ResolvedPlan) -> Finding:
            seen: set[int] = set()
            again = []
            for step in plan.steps:
                if step.place in rows:
                    if step.place in seen:
                        again.append(step.id)
                    seen.add(step.place)
            return Finding.of_slack(-len(again), again)

        return run


class ModesBanned(Constraint):
    """Neither a journey nor a way inside a city by one of these modes."""

    check: Literal["modes_banned"]
    modes: tuple[Mode, ...] = Field(min_length=1)
    unit: ClassVar[str] = "uses"

    def compile(self, trip: CompiledTrip) -> Check:
        banned = frozenset(self.modes)
        services = frozenset(s.index for s in trip.services if s.row.mode in banned)

        def run(plan: ResolvedPlan) -> Finding:
            bad = [s.id for s in plan.steps if s.service in services]
            bad += [f"{a.id}->{b.id}" for a, b in plan.hops if b.via in banned]
            return Finding.of_slack(-len(bad), bad)

        return run


class ClosedLoop(Constraint):
    """The trip begins and ends at home."""

    check: Literal["closed_loop"]
    unit: ClassVar[str] = "ends"

    def compile(self, trip: CompiledTrip) -> Check:
        def run(plan: ResolvedPlan) -> Finding:
            if not plan.steps:
                return Finding(Verdict.NOT_APPLICABLE)
            first, last = plan.steps[0], plan.steps[-1]
            bad = [s.id for s, at in ((first, first.origin), (last, last.destination)) if at != trip.home]
            return Finding.of_slack(-len(bad), bad)

        return run


class DayWindow(Constraint):
    """Visits begin no earlier than `earliest` and end no later than `latest`, local time of each day."""

    check: Literal["day_window"]
    earliest: Clock = "00:00"
    latest: Clock = "24:00"
    unit: ClassVar[str] = "min"

    def compile(self, trip: CompiledTrip) -> Check:
        lo, hi = parse_clock(self.earliest), parse_clock(self.latest)

        def run(plan: ResolvedPlan) -> Finding:
            return smallest(
                (
                    min(
                        s.start_minute - lo,
                        hi - s.end_minute - DAY_MIN * (s.end_day - s.start_day),
                    ),
                    s.id,
                )
                for s in plan.visits
            )

        return run


class Claim(Constraint):
    """The plan must state a final number, and it must agree with the computed one within `tolerance` (in the
    quantity's unit: money, visits, minutes on the way)."""

    check: Literal["claim"]
    quantity: Literal["cost", "visits", "travel_minutes"]
    tolerance: Amount = Decimal(0)

    def compile(self, trip: CompiledTrip) -> Check:
        def run(plan: ResolvedPlan) -> Finding:
            stated = plan.claims.get(self.quantity)
            if stated is None:
                return Finding(Verdict.FAIL, None, (self.quantity,), "the plan does not state it")
            truth, unknown = computed(plan, self.quantity)
            if unknown:
                return Finding(Verdict.UNKNOWN, None, unknown)
            off = abs(Decimal(repr(stated)) - truth)
            return Finding.of_slack(float(self.tolerance - off), (f"{stated} instead of {truth}",))

        return run


def computed(plan: ResolvedPlan, quantity: str) -> tuple[Decimal, tuple[str, ...]]:
    """The true value of a claimable quantity, and the items that leave it open."""
    if quantity == "cost":
        return plan.cost
    if quantity == "visits":
        return Decimal(len(plan.visits)), ()
    total, unknown = sum(s.end - s.start for s in plan.steps if s.kind == "move"), []
    for a, b in plan.hops:
        edge = plan.trip.edges.get((a.destination, b.origin, b.via))
        if edge is None:
            unknown.append(f"{a.id}->{b.id}")
        else:
            total += edge[0]
    return Decimal(total), tuple(unknown)
