"""What the oracle's rules talk about: tables worked out from the task file a second time, slots, and a thin
wrapper around CP-SAT that lets known facts stay plain Python.

Deliberately shares no code with the compiled tables of the imperative checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

from trueup.verifiers.plan.model import Place, TripTask
from trueup.verifiers.plan.money import Price, minor_unit

__all__ = ["EMPTY", "EPOCH", "Slot", "SlotModel", "TaskTables"]

Var: TypeAlias = Any  # an IntVar or BoolVar of OR-Tools, or an int where the value is known
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EMPTY = ("none", "")  # the key of a slot's literal "nothing here"


@dataclass(slots=True)
class Slot:
    """One item of the plan to be. `pick` maps (kind, id) to the literal "this is what the slot holds"."""

    day: int
    pick: dict[tuple[str, str], Var]
    start: Var
    end: Var
    via: dict[str, Var]
    label: str = ""
    before: Var = 0  # place index before the slot; n_places means "nowhere yet"
    after: Var = 0
    free_from: Var = 0  # end of the last item before the slot
    hop: Var = 0  # literal: a way inside one city is needed
    way: Var = 0  # its minutes
    way_cost: Var = 0  # its cost in minor units

    def places(self) -> list[tuple[str, Var]]:
        return [(i, lit) for (kind, i), lit in self.pick.items() if kind == "place"]

    def services(self) -> list[tuple[str, Var]]:
        return [(i, lit) for (kind, i), lit in self.pick.items() if kind == "service"]


@dataclass(slots=True)
class SlotModel:
    """A model under construction, with one literal per check."""

    cp: Any
    slots: list[Slot]
    holds: dict[str, Var] = field(default_factory=dict)
    fixed: bool = False
    claims: Mapping[str, float] = field(default_factory=dict)

    def literal(self) -> Var:
        return self.cp.new_bool_var("")

    def any_of(self, literals: Sequence[Var]) -> Var:
        """A literal that is true exactly when one of `literals` is."""
        known = [x for x in literals if not (isinstance(x, int) and x == 0)]
        if any(isinstance(x, int) for x in known):
            return 1
        if not known:
            return 0
        out = self.literal()
        self.cp.add_max_equality(out, known)
        return out

    def when(self, constraint: Any, *conditions: Var) -> None:
        """Post a comparison under conditions; one that is already decided is posted as what it is."""
        conditions = tuple(c for c in conditions if not (isinstance(c, int) and c == 1))
        if any(isinstance(c, int) for c in conditions):
            return
        if isinstance(constraint, bool):
            if not constraint:
                self.forbid(*conditions)
            return
        posted = self.cp.add(constraint)
        if conditions:
            posted.only_enforce_if(list(conditions))

    def forbid(self, *conditions: Var) -> None:
        """Not all of the conditions at once."""
        open_ = [c for c in conditions if not (isinstance(c, int) and c == 1)]
        if any(isinstance(c, int) for c in open_):
            return
        self.cp.add_bool_or([c.negated() for c in open_])

    def require_one(self, literals: Sequence[Var], *conditions: Var) -> None:
        """At least one of the literals, under conditions."""
        if any(isinstance(x, int) and x == 1 for x in literals):
            return
        open_ = [x for x in literals if not isinstance(x, int)]
        if not open_:
            self.forbid(*conditions)
            return
        conditions = tuple(c for c in conditions if not (isinstance(c, int) and c == 1))
        if any(isinstance(c, int) for c in conditions):
            return
        posted = self.cp.add_bool_or(open_)
        if conditions:
            posted.only_enforce_if(list(conditions))

    def at_least(self, left: Any, right: Any) -> Var:
        """A literal with: true implies left >= right; and false implies left < right."""
        if isinstance(left, int) and isinstance(right, int):
            return int(left >= right)
        out = self.literal()
        self.cp.add(left >= right).only_enforce_if(out)
        self.cp.add(left < right).only_enforce_if(out.negated())
        return out


class TaskTables:
    """Times, windows, prices and ways of one task, straight from its rows."""

    def __init__(self, task: TripTask) -> None:
        self.task = task
        self.place = {p.id: p for p in task.places}
        self.index = {p.id: i for i, p in enumerate(task.places)}
        self.service = {s.id: s for s in task.services}
        zone = {c.id: ZoneInfo(c.zone) for c in task.cities}
        self.zone = {p.id: zone[p.city] for p in task.places}
        self.modes = sorted({e.mode for e in task.edges} | {"walk"})
        self.t0 = self._instant(0, 0, self.zone[task.home]) - 2 * 1440
        self.horizon = (task.days + 5) * 1440
        self.minor = Fraction(minor_unit(task.currency))
        self._windows_of: dict[tuple[str, int], list[tuple[int, int]] | None] = {}
        self._edge_tables()

    def _instant(self, day: int, minute: int, zone: ZoneInfo) -> int:
        """UTC minute of wall-clock `minute` on trip day `day` (from 0) in `zone`."""
        wall = datetime.combine(self.task.start, datetime.min.time()) + timedelta(days=day, minutes=minute)
        return int((wall.replace(tzinfo=zone).astimezone(UTC) - EPOCH).total_seconds()) // 60

    def at(self, day: int, minute: int, place: str) -> int:
        return self._instant(day, minute, self.zone[place]) - self.t0

    def on(self, day: date, minute: int, place: str) -> int:
        return self.at((day - self.task.start).days, minute, place)

    def cost(self, price: Price | str | None) -> int | None:
        """Minor units for the party, exact and rounded half to even; None when unknown."""
        if price is None:
            return None
        if isinstance(price, str):
            return 0
        party = self.task.party
        amount = Fraction(price.amount)
        if price.per == "person":
            child = amount if price.child_amount is None else Fraction(price.child_amount)
            total = amount * party.adults + child * party.children
        elif price.per == "group":
            total = amount
        else:
            if price.holds is None:
                return None
            total = amount * (-(-(party.adults + party.children) // price.holds))
        if price.currency != self.task.currency:
            rates = self.task.rates
            if rates is None:
                return None
            table = {**{c: Fraction(r) for c, r in rates.rates.items()}, rates.base: Fraction(1)}
            if price.currency not in table or self.task.currency not in table:
                return None
            total = total * table[self.task.currency] / table[price.currency]
        return round(total / self.minor)  # Python rounds a Fraction half to even

    def _edge_tables(self) -> None:
        """Way and cost by flat index (from, to, mode); the last row and column mean "nowhere yet" and
        "no item". -1 marks a way or price that no table gives."""
        places = self.task.places
        n, m = len(places), len(self.modes)
        by_key: dict[tuple[str, str, str], tuple[int, int | None]] = {}
        for edge in self.task.edges:
            by_key[edge.a, edge.b, edge.mode] = (edge.minutes, self.cost(edge.price))
        for edge in self.task.edges:
            if edge.both_ways and (edge.b, edge.a, edge.mode) not in by_key:
                by_key[edge.b, edge.a, edge.mode] = by_key[edge.a, edge.b, edge.mode]
        size = (n + 1) * (n + 1) * m
        self.ways, self.way_costs, self.is_hop = [0] * size, [0] * size, [0] * size
        for a, pa in enumerate(places):
            for b, pb in enumerate(places):
                if a == b or pa.city != pb.city:
                    continue
                for j, mode in enumerate(self.modes):
                    minutes, cost = by_key.get((pa.id, pb.id, mode), (-1, None))
                    flat = (a * (n + 1) + b) * m + j
                    self.is_hop[flat] = 1
                    self.ways[flat] = minutes
                    self.way_costs[flat] = -1 if cost is None else cost

    def windows(self, place: Place, day: int) -> list[tuple[int, int]] | None:
        """Openings around a trip day; None when the table is silent. Consecutive ones are joined."""
        key = place.id, day
        if key not in self._windows_of:
            if place.hours is None:
                self._windows_of[key] = None
            elif place.hours == "always":
                self._windows_of[key] = [(0, self.horizon)]
            else:
                spans = []
                for d in range(day - 2, day + 4):
                    for text in place.hours.spans_on(self.task.start + timedelta(days=d)):
                        lo, hi = (int(x[:2]) * 60 + int(x[3:]) for x in text.split("-"))
                        hi += 1440 if hi <= lo else 0
                        spans.append([self.at(d, lo, place.id), self.at(d, hi, place.id)])
                joined: list[list[int]] = []
                for span in sorted(spans):
                    if joined and span[0] <= joined[-1][1]:
                        joined[-1][1] = max(joined[-1][1], span[1])
                    elif span[1] > span[0]:
                        joined.append(span)
                self._windows_of[key] = [(a, b) for a, b in joined]
        return self._windows_of[key]
