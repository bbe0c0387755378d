"""The base of every constraint, and those that a task file declares.

A constraint is a small frozen model with a `compile` method that returns the check: a function from a
resolved plan to a `Finding`. Names of places are looked up when the task is compiled, so a misspelt place in
a task file is an error at load time and never a constraint that always passes. `role` says whether the
constraint asks for something (obligation: an empty plan must fail it) or forbids something.

Your own constraint is the same few lines:

    class NoLateDinner(Constraint):
        check: Literal["no_late_dinner"]
        latest: Clock
        unit = "min"

        def compile(self, trip):
            limit = parse_clock(self.latest)
            def run(plan):
                slack = [(limit - s.start_minute, s.id) for s in plan.visits if trip.kind(s) == "restaurant"]
                return smallest(slack)
            return run
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date
from decimal import Decimal
from itertools import pairwise
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from trueup.errors import DataError
from trueup.types import Verdict
from trueup.verifiers.base import Finding, Frozen, Role, VerifierSpec
from trueup.verifiers.plan.clock import DAY_MIN, parse_clock, parse_span
from trueup.verifiers.plan.compiled import CompiledTrip, ResolvedPlan, Step
from trueup.verifiers.plan.model import Clock, Id, Mode, PlaceKind, Span
from trueup.verifiers.plan.money import Amount

__all__ = ["DECLARED", "Check", "Constraint", "Where", "parse_constraints", "smallest"]

Check: TypeAlias = Callable[[ResolvedPlan], Finding]


def smallest(slacks: Iterable[tuple[float, str]], unknown: Sequence[str] = ()) -> Finding:
    """Finding from (slack, item) pairs: the smallest slack is the margin, the negative ones the witness."""
    least: float | None = None
    witness: list[str] = []
    for slack, item in slacks:
        if least is None or slack < least:
            least = slack
        if slack < 0:
            witness.append(item)
    return Finding.of_slack(least, witness, unknown)


class Constraint(Frozen):
    """One line of a task file. Subclasses set `check: Literal[...]`, `role`, `unit` and `compile`."""

    check: str
    name: str | None = None  # shown in reports; the check's own name otherwise
    hard: bool = True
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)

    role: ClassVar[Role] = "prohibition"
    unit: ClassVar[str] = ""

    def role_of(self) -> Role:
        return self.role

    def spec(self, trip: CompiledTrip) -> VerifierSpec:
        return VerifierSpec(
            name=self.name or self.check,
            role=self.role_of(),
            hard=self.hard,
            weight=self.weight,
            unit=self.unit,
            basis=self.basis(trip),
        )

    def basis(self, trip: CompiledTrip) -> str:
        return ""

    def compile(self, trip: CompiledTrip) -> Check:
        raise NotImplementedError


class Where(Frozen):
    """Which visits and stays a count looks at; empty means all of them."""

    places: tuple[Id, ...] = ()
    kinds: tuple[PlaceKind, ...] = ()
    tags: tuple[str, ...] = ()
    cities: tuple[Id, ...] = ()

    def rows(self, trip: CompiledTrip) -> frozenset[int]:
        """Rows of the places that match every given key."""
        place_rows(trip, self.places)
        if bad := [c for c in self.cities if c not in trip.city_index]:
            raise DataError(
                f"A constraint must name cities of the task, got {', '.join(bad)}. Add or mend it."
            )
        return frozenset(
            p.index
            for p in trip.places
            if (not self.places or p.row.id in self.places)
            and (not self.kinds or p.row.kind in self.kinds)
            and (not self.tags or set(self.tags) & set(p.row.tags))
            and (not self.cities or p.row.city in self.cities)
        )


def place_rows(trip: CompiledTrip, ids: Sequence[str]) -> list[int]:
    """Rows of place ids; an unknown one is the task's mistake and raises."""
    if bad := [i for i in ids if i not in trip.place_index]:
        raise DataError(
            f"A constraint must name places of the task by id, got {', '.join(bad)}. "
            "The constraint could never fail. Add the place or mend the id."
        )
    return [trip.place_index[i] for i in ids]


# --- obligations ---------------------------------------------------------------------------------------


class MustVisit(Constraint):
    """Every listed place is visited (or slept at) at least once."""

    check: Literal["must_visit"]
    places: tuple[Id, ...] = Field(min_length=1)
    role: ClassVar[Role] = "obligation"
    unit: ClassVar[str] = "places"

    def compile(self, trip: CompiledTrip) -> Check:
        wanted = dict(zip(place_rows(trip, self.places), self.places, strict=True))

        def run(plan: ResolvedPlan) -> Finding:
            seen = {s.place for s in plan.steps}
            missing = tuple(name for row, name in wanted.items() if row not in seen)
            return Finding.of_slack(-len(missing), missing)

        return run


class Nights(Constraint):
    """A bed every night: a hotel stay or an overnight journey of at least `min_hours` covers midnight."""

    check: Literal["nights"]
    min_hours: int = Field(default=6, ge=1, le=24)
    role: ClassVar[Role] = "obligation"
    unit: ClassVar[str] = "nights"

    def compile(self, trip: CompiledTrip) -> Check:
        wanted = range(trip.task.days - 1)
        minutes = self.min_hours * 60

        def run(plan: ResolvedPlan) -> Finding:
            if not wanted:
                return Finding(Verdict.NOT_APPLICABLE)
            held = plan.nights
            missing = tuple(
                f"night {n + 1}" for n in wanted
                if not any(step.end - step.start >= minutes for step in held.get(n, ()))
            )  # fmt: skip
            return Finding.of_slack(-len(missing), missing)

        return run


class Meals(Constraint):
    """On each listed day, and for each window, a restaurant visit that begins inside the window."""

    check: Literal["meals"]
    windows: tuple[Span, ...] = Field(min_length=1)
    days: tuple[int, ...] | None = None  # from 1; None: every day
    role: ClassVar[Role] = "obligation"
    unit: ClassVar[str] = "meals"

    def compile(self, trip: CompiledTrip) -> Check:
        spans = [parse_span(w) for w in self.windows]
        if late := [w for w, (_, hi) in zip(self.windows, spans, strict=True) if hi > DAY_MIN]:
            raise DataError(f"A meal's window must end on its own day, got {', '.join(late)}. Split it.")
        days = [d - 1 for d in self.days] if self.days is not None else list(range(trip.task.days))
        eats = frozenset(p.index for p in trip.places if p.row.kind == "restaurant")

        def run(plan: ResolvedPlan) -> Finding:
            starts: dict[int, list[int]] = {}
            for step in plan.visits:
                if step.place in eats:
                    starts.setdefault(step.day, []).append(step.start_minute)
            missing = tuple(
                f"day {day + 1} {window}"
                for day in days
                for (lo, hi), window in zip(spans, self.windows, strict=True)
                if not any(lo <= t < hi for t in starts.get(day, ()))
            )
            return Finding.of_slack(-len(missing), missing)

        return run


class MinStay(Constraint):
    """At least `nights` nights in a city."""

    check: Literal["min_stay"]
    city: Id
    nights: int = Field(ge=1)
    role: ClassVar[Role] = "obligation"
    unit: ClassVar[str] = "nights"

    def compile(self, trip: CompiledTrip) -> Check:
        rows = Where(cities=(self.city,)).rows(trip)

        def run(plan: ResolvedPlan) -> Finding:
            slept = sum(1 for steps in plan.nights.values() if any(s.place in rows for s in steps))
            return Finding.of_slack(slept - self.nights, (self.city,))

        return run


class Count(Constraint):
    """Between `at_least` and `at_most` visits that match `where`, over the trip or on each day. With
    `at_least` it is an obligation; `distinct` counts places instead of visits."""

    check: Literal["count"]
    where: Where = Where()
    at_least: int = Field(default=0, ge=0)
    at_most: int | None = Field(default=None, ge=0)
    per: Literal["trip", "day"] = "trip"
    distinct: bool = False
    unit: ClassVar[str] = "visits"

    def role_of(self) -> Role:
        return "obligation" if self.at_least > 0 else "prohibition"

    def compile(self, trip: CompiledTrip) -> Check:
        rows = self.where.rows(trip)
        if self.at_least and not rows:
            raise DataError("An obligation must match at least one place, got a `where` that matches none.")
        n_bins = trip.task.days if self.per == "day" else 1
        daily = self.per == "day"

        def run(plan: ResolvedPlan) -> Finding:
            bins: list[list[Step]] = [[] for _ in range(n_bins)]
            for step in plan.steps:
                if step.place in rows:
                    bins[step.day if daily else 0].append(step)
            slacks: list[tuple[float, str]] = []
            for day, steps in enumerate(bins):
                n = len({s.place for s in steps}) if self.distinct else len(steps)
                label = f"day {day + 1}: {n}" if daily else f"{n} in all"
                if self.at_most is not None:
                    slacks.append((self.at_most - n, label))
                if self.at_least:
                    slacks.append((n - self.at_least, label))
            return smallest(slacks)

        return run


# --- prohibitions --------------------------------------------------------------------------------------


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


DECLARED: tuple[type[Constraint], ...] = (
    MustVisit, Nights, Meals, MinStay, Count, Budget, Connections, TimeWindow, Precedence, MustAvoid,
    NoRepeat, ModesBanned, ClosedLoop, DayWindow, Claim,
)  # fmt: skip


def parse_constraints(
    raw: Sequence[dict[str, Any]], extra: Sequence[type[Constraint]] = (), source: str = "task"
) -> list[Constraint]:
    """Read the constraint lines of a task. An unknown check or key raises `DataError`: a constraint that is
    skipped is one that the policy is paid for breaking."""
    known: dict[str, type[Constraint]] = {}
    for cls in (*DECLARED, *extra):
        (check,) = cls.model_fields["check"].annotation.__args__  # type: ignore[union-attr]
        known[check] = cls
    out = []
    for index, line in enumerate(raw):
        found = known.get(str(line.get("check")))
        if found is None:
            raise DataError(
                f"{source}, constraint {index}: check must be one of {', '.join(sorted(known))}, "
                f"got {line.get('check')!r}. It would never be enforced. Mend it, or pass your own class."
            )
        try:
            out.append(TypeAdapter(found).validate_python(line, strict=False))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(p) for p in first["loc"])
            raise DataError(
                f"{source}, constraint {index} ({line['check']}): {first['msg']} at {where!r}. "
                "It would not mean what was written. Mend the line."
            ) from None
    return out
