"""The base of every constraint, declared or built in.

A constraint is a small frozen model with a `compile` method that returns the check: a function from a
resolved plan to a `Finding`. Names of places are looked up when the task is compiled, so a misspelt place in
a task file is an error at load time and never a constraint that always passes. `role` says whether the
constraint asks for something (obligation: an empty plan must fail it) or forbids something.

Your own constraint is the same few lines:

    class NoLateDinner(Constraint):
        check: Literal["no_late_dinner"]
        latest: Clock
        unit: ClassVar[str] = "min"

        def compile(self, trip):
            limit = parse_clock(self.latest)
            def run(plan):
                return smallest((limit - s.start_minute, s.id) for s in plan.visits)
            return run
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, TypeAlias

from pydantic import Field

from trueup.errors import DataError
from trueup.verifiers.base import Finding, Frozen, Role, VerifierSpec
from trueup.verifiers.plan.compiled import CompiledTrip, ResolvedPlan
from trueup.verifiers.plan.model import Id, PlaceKind

__all__ = ["Check", "Constraint", "Where", "place_rows", "smallest"]

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
