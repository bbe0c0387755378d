"""The constraints that hold for every trip, whatever the task file says: physics and the timetable.

They need no parameters; the tables decide. Where a table is silent (no hours, no travel time, no capacity)
the answer is unknown: a gap in our data is neither the plan's merit nor its fault.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from trueup.types import Verdict
from trueup.verifiers.base import Finding
from trueup.verifiers.plan.clock import DAY_MIN
from trueup.verifiers.plan.compiled import CompiledTrip, ResolvedPlan
from trueup.verifiers.plan.constraint import Check, Constraint, smallest

__all__ = ["ALWAYS"]


class Overlap(Constraint):
    """No two items share a moment; intervals are half-open, so one may begin when another ends."""

    check: Literal["overlap"] = "overlap"
    unit: ClassVar[str] = "min"

    def compile(self, trip: CompiledTrip) -> Check:
        def run(plan: ResolvedPlan) -> Finding:
            least: int | None = None
            witness: list[str] = []
            latest, holder = None, ""
            for step in plan.steps:
                if latest is not None:
                    slack = step.start - latest
                    if least is None or slack < least:
                        least = slack
                    if slack < 0:
                        witness.append(f"{holder}/{step.id}")
                if latest is None or step.end > latest:
                    latest, holder = step.end, step.id
            return Finding.of_slack(least, witness)

        return run


class Continuity(Constraint):
    """One is where the last item ended: a change of city needs a journey, and the trip begins in the home
    city. No teleport."""

    check: Literal["continuity"] = "continuity"
    unit: ClassVar[str] = "jumps"

    def compile(self, trip: CompiledTrip) -> Check:
        city = trip.city_of
        home = city[trip.home]

        def run(plan: ResolvedPlan) -> Finding:
            if not plan.steps:
                return Finding(Verdict.NOT_APPLICABLE)
            at, jumps = home, []
            for step in plan.steps:
                if city[step.origin] != at:
                    jumps.append(step.id)
                at = city[step.destination]
            return Finding.of_slack(-len(jumps), jumps)

        return run


class Transit(Constraint):
    """Between two places of one city there is time for the way by the mode that the plan names."""

    check: Literal["transit"] = "transit"
    unit: ClassVar[str] = "min"

    def compile(self, trip: CompiledTrip) -> Check:
        edges = trip.edges

        def run(plan: ResolvedPlan) -> Finding:
            least: int | None = None
            witness: list[str] = []
            unknown: list[str] = []
            for a, b in plan.hops:
                edge = edges.get((a.destination, b.origin, b.via))
                if edge is None:
                    unknown.append(f"{a.id}->{b.id} by {b.via}")
                    continue
                gap = b.start - a.end
                slack = gap - edge[0]
                # Two items that overlap have no gap at all; that is the overlap check's finding, not ours.
                if gap >= 0 and (least is None or slack < least):
                    least = slack
                if gap >= 0 and slack < 0:
                    witness.append(f"{a.id}->{b.id} by {b.via}")
            return Finding.of_slack(least, witness, unknown)

        return run


class Timetable(Constraint):
    """A journey leaves when its service leaves, on a day it runs, and takes as long as it takes."""

    check: Literal["timetable"] = "timetable"
    unit: ClassVar[str] = "min"

    def compile(self, trip: CompiledTrip) -> Check:
        def run(plan: ResolvedPlan) -> Finding:
            off: list[tuple[float, str]] = []
            for step in plan.steps:
                if step.kind != "move":
                    continue
                service = trip.services[step.service]
                wrong = abs(step.end - step.start - service.row.minutes)
                if service.departs is not None:
                    wrong += abs(step.start_minute - service.departs % DAY_MIN)
                if service.dates is not None and step.start_day not in service.dates:
                    wrong += DAY_MIN
                off.append((-wrong, step.id))
            return smallest(off)

        return run


class OpeningHours(Constraint):
    """A visit lies inside one opening, by the local date on which the opening starts."""

    check: Literal["opening_hours"] = "opening_hours"
    unit: ClassVar[str] = "min"

    def compile(self, trip: CompiledTrip) -> Check:
        places = trip.places

        def run(plan: ResolvedPlan) -> Finding:
            least: int | None = None
            witness: list[str] = []
            unknown: list[str] = []
            for step in plan.visits:
                place = places[step.place]
                if place.always_open:
                    slack = DAY_MIN
                elif place.windows is None:
                    unknown.append(step.id)
                    continue
                else:
                    slack = place.slack_inside(step.start, step.end)
                if least is None or slack < least:
                    least = slack
                if slack < 0:
                    witness.append(step.id)
            return Finding.of_slack(least, witness, unknown)

        return run


class Dwell(Constraint):
    """A visit lasts at least the place's minimum."""

    check: Literal["dwell"] = "dwell"
    unit: ClassVar[str] = "min"

    def compile(self, trip: CompiledTrip) -> Check:
        needed = [p.row.min_dwell_min for p in trip.places]

        def run(plan: ResolvedPlan) -> Finding:
            return smallest((s.end - s.start - needed[s.place], s.id) for s in plan.visits)

        return run


class Capacity(Constraint):
    """The whole party fits: people at a place, seats on a service, rooms in a hotel."""

    check: Literal["capacity"] = "capacity"
    unit: ClassVar[str] = "people or rooms"

    def compile(self, trip: CompiledTrip) -> Check:
        size = trip.party.size
        place_slack: list[float | None] = []
        for place in trip.places:
            limits: list[float] = []
            if place.row.max_party is not None:
                limits.append(place.row.max_party - size)
            if place.row.rooms is not None and place.rooms_needed is not None:
                limits.append(place.row.rooms - place.rooms_needed)
            place_slack.append(min(limits) if limits else None)
        service_slack = [None if s.row.seats is None else s.row.seats - size for s in trip.services]
        unsure = {p.index for p in trip.places if p.row.rooms is not None and p.rooms_needed is None}

        def run(plan: ResolvedPlan) -> Finding:
            slacks: list[tuple[float, str]] = []
            unknown = []
            for step in plan.steps:
                slack = place_slack[step.place] if step.service < 0 else service_slack[step.service]
                if step.place in unsure:
                    unknown.append(step.id)
                if slack is not None:
                    slacks.append((slack, step.id))
            return smallest(slacks, unknown)

        return run


ALWAYS: tuple[type[Constraint], ...] = (
    Overlap, Continuity, Transit, Timetable, OpeningHours, Dwell, Capacity,
)  # fmt: skip
