"""What a task may demand. The empty plan fails every one of these, which is checked when a task is loaded."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from trueup.errors import DataError
from trueup.types import Verdict
from trueup.verifiers.base import Finding, Role
from trueup.verifiers.plan.clock import DAY_MIN, parse_span
from trueup.verifiers.plan.compiled import CompiledTrip, ResolvedPlan, Step
from trueup.verifiers.plan.constraint import Check, Constraint, Where, place_rows, smallest
from trueup.verifiers.plan.model import Id, Span

__all__ = ["Count", "Meals", "MinStay", "MustVisit", "Nights"]


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
