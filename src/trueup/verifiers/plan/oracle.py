"""A second opinion on every check, and the answer to "can this task be solved at all, and how well?".

The same constraints as in `always.py` and `constraints.py`, written once more as a CP-SAT model over *slots*:
slot k holds one item (or nothing), with an action, a start, an end and a way of getting there. Nothing here
uses the compiled tables: times, windows and prices are worked out from the task file by other means
(`zoneinfo` arithmetic, exact fractions), so a mistake would have to be made twice to go unseen.

`judge` fixes every slot to a given plan and asks which checks can hold: one solve, one literal per check.
`solve` leaves the slots open and maximises the soft value. Its proofs (optimal, infeasible) hold for plans
whose days follow `pattern`, that sleep in each city once in a row, and that change cities by one direct
journey; a plan that it finds is a plan, whatever the proof's scope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import combinations, pairwise, permutations
from typing import Any, Literal, TypeAlias

from trueup.errors import DataError, MissingExtraError
from trueup.verifiers.plan.constraint import Constraint
from trueup.verifiers.plan.constraints import parse_constraints
from trueup.verifiers.plan.model import TripTask
from trueup.verifiers.plan.obligations import MinStay
from trueup.verifiers.plan.oracle_model import EMPTY, EPOCH, Slot, SlotModel, TaskTables
from trueup.verifiers.plan.oracle_rules import ALWAYS_RULES, RULES

try:
    from ortools.sat.python import cp_model
except ImportError:  # the class below says so when it is used
    cp_model = None  # type: ignore[assignment]

__all__ = ["DEFAULT_PATTERN", "Oracle", "Solution"]

SlotKind: TypeAlias = Literal["move", "sight", "restaurant", "stay"]
DEFAULT_PATTERN: tuple[SlotKind, ...] = (
    "move", "sight", "restaurant", "sight", "move", "restaurant", "stay",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Solution:
    """What `solve` found. `value` and `bound` are soft values; `plan` is None unless one was found."""

    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    plan: dict[str, Any] | None = None
    value: float | None = None
    bound: float | None = None
    wall_s: float = 0.0


class Oracle:
    """CP-SAT twin of one task, for the built-in checks. Needs the extra `plans`. A constraint of your own has no
    rule here: `judge` leaves it out, and `solve` refuses a task with a hard one, as its plan might break it."""

    def __init__(self, task: TripTask, extra: Sequence[type[Constraint]] = ()) -> None:
        if cp_model is None:
            raise MissingExtraError("The feasibility oracle", "plans", "ortools")
        self.task = task
        self.declared = parse_constraints(task.constraints, extra, f"task {task.id!r}")
        self.tables = TaskTables(task)

    # --- two ways to make the slots --------------------------------------------------------------------

    def _fixed_model(self, plan: Mapping[str, Any]) -> SlotModel:
        """Slots that hold exactly the items of a plan that names things by id and times without offset."""
        slots = []
        for day in plan["days"]:
            for item in day["items"]:
                if item["kind"] == "move":
                    service = self.tables.service[item["service"]]
                    key, ends = ("service", service.id), (service.origin, service.destination)
                else:
                    key, ends = ("place", item["place"]), (item["place"], item["place"])
                start, end = (
                    int((self._utc(item[t], p) - EPOCH).total_seconds()) // 60 - self.tables.t0
                    for t, p in zip(("start", "end"), ends, strict=True)
                )
                via = {m: int(m == item.get("via", "walk")) for m in self.tables.modes}
                slots.append(Slot(day["day"] - 1, {key: 1}, start, end, via, item["id"]))
        slots.sort(key=lambda s: s.start)
        model = SlotModel(cp_model.CpModel(), slots, fixed=True, claims=plan.get("claims", {}))
        return model

    def _utc(self, text: str, place: str) -> datetime:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return (moment if moment.tzinfo else moment.replace(tzinfo=self.tables.zone[place])).astimezone(UTC)

    def _routes(self) -> Iterator[tuple[str, ...]]:
        """The cities of the nights, in every order and split that the `min_stay` lines allow."""
        nights = self.task.days - 1
        least = {x.city: x.nights for x in self.declared if isinstance(x, MinStay)}
        beds = sorted({p.city for p in self.task.places if p.kind == "hotel"})
        if nights == 0:
            yield ()
            return
        for n in range(1, min(len(beds), nights) + 1):
            for order in permutations(beds, n):
                if not least.keys() <= set(order):
                    continue
                for cuts in combinations(range(1, nights), n - 1):
                    split = [b - a for a, b in pairwise((0, *cuts, nights))]
                    if all(k >= least.get(c, 0) for c, k in zip(order, split, strict=True)):
                        yield tuple(c for c, k in zip(order, split, strict=True) for _ in range(k))

    def _open_model(self, pattern: Sequence[SlotKind], route: tuple[str, ...]) -> SlotModel:
        """Slots whose content is to be chosen: per day those of the pattern, each may stay empty. A day
        plays in the cities of the nights around it."""
        cp = cp_model.CpModel()
        home = self.tables.place[self.task.home].city
        stops = (home, *route, home)
        slots: list[Slot] = []
        for day in range(self.task.days):
            for kind in pattern:
                if kind == "stay" and day == self.task.days - 1:
                    continue
                if kind == "move" and stops[day] == stops[day + 1]:
                    continue
                slots.append(self._open_slot(cp, day, kind, stops[day], stops[day + 1]))
        return SlotModel(cp, slots)

    def _open_slot(self, cp: Any, day: int, kind: SlotKind, morning: str, evening: str) -> Slot:
        keys: list[tuple[str, str]] = [EMPTY]
        place = self.tables.place
        if kind == "move":
            on = self.task.start + timedelta(days=day)
            keys += [
                ("service", s.id)
                for s in self.task.services
                if (s.dates is None or on in s.dates)
                and (place[s.origin].city, place[s.destination].city) == (morning, evening)
            ]
        elif kind == "stay":
            keys += [("place", p.id) for p in self.task.places if p.kind == "hotel" and p.city == evening]
        else:
            here = (morning, evening)
            keys += [("place", p.id) for p in self.task.places if p.kind == kind and p.city in here]
        pick = {key: cp.new_bool_var("") for key in keys}
        cp.add_exactly_one(pick.values())
        via = {m: cp.new_bool_var("") for m in self.tables.modes}
        cp.add_exactly_one(via.values())
        start = cp.new_int_var(0, self.tables.horizon, "")
        end = cp.new_int_var(0, self.tables.horizon, "")
        cp.add(end > start)
        slot = Slot(day, pick, start, end, via)
        for (what, name), lit in pick.items():
            if what == EMPTY[0]:
                continue
            at = self.tables.service[name].origin if what == "service" else name
            # An item begins on its own local day; a stay ends on the next one.
            cp.add(start >= self.tables.at(day, 0, at)).only_enforce_if(lit)
            cp.add(start < self.tables.at(day + 1, 0, at)).only_enforce_if(lit)
            if kind == "stay":
                cp.add(end >= self.tables.at(day + 1, 0, at)).only_enforce_if(lit)
            last = 2 if kind in ("stay", "move") else 1
            cp.add(end < self.tables.at(day + last, 0, at)).only_enforce_if(lit)
        return slot

    def _link(self, model: SlotModel) -> None:
        """Where one is before and after each slot, since when one is free, and the way between."""
        cp, n, m = model.cp, len(self.task.places), len(self.tables.modes)
        at: Any = n
        free: Any = 0
        for slot in model.slots:
            slot.before, slot.free_from = at, free
            origin, destination, used = self._ends(model, slot, at)
            if model.fixed:
                mode = next(j for j, k in enumerate(self.tables.modes) if slot.via[k])
                flat = (at * (n + 1) + origin) * m + mode
                slot.hop, slot.way, slot.way_cost = (
                    self.tables.is_hop[flat],
                    self.tables.ways[flat],
                    self.tables.way_costs[flat],
                )
                at, free = destination, slot.end
            else:
                index = cp.new_int_var(0, len(self.tables.ways) - 1, "")
                mode = sum(j * slot.via[k] for j, k in enumerate(self.tables.modes))
                cp.add(index == (at * (n + 1) + origin) * m + mode)
                slot.hop, slot.way = cp.new_bool_var(""), cp.new_int_var(-1, max(self.tables.ways), "")
                slot.way_cost = cp.new_int_var(-1, max(self.tables.way_costs), "")
                for table, var in (
                    (self.tables.is_hop, slot.hop),
                    (self.tables.ways, slot.way),
                    (self.tables.way_costs, slot.way_cost),
                ):
                    cp.add_element(index, table, var)
                cp.add(slot.way >= 0)  # what the table does not know cannot be planned
                cp.add(slot.way_cost >= 0)
                after_free = cp.new_int_var(0, self.tables.horizon, "")
                cp.add(after_free == slot.end).only_enforce_if(used)
                cp.add(after_free == free).only_enforce_if(used.negated())
                at, free = destination, after_free
            slot.after = at

    def _ends(self, model: SlotModel, slot: Slot, at: Any) -> tuple[Any, Any, Any]:
        """Origin and destination of a slot as place indices, and the literal "something is in it"."""
        n = len(self.task.places)
        ends = {
            key: (
                self.tables.index[self.tables.service[key[1]].origin],
                self.tables.index[self.tables.service[key[1]].destination],
            )
            if key[0] == "service"
            else (self.tables.index[key[1]],) * 2
            for key in slot.pick
            if key != EMPTY
        }
        if model.fixed:
            return *next(iter(ends.values())), 1
        cp = model.cp
        origin = cp.new_int_var(0, n, "")
        destination = cp.new_int_var(0, n, "")
        for key, lit in slot.pick.items():
            if key == EMPTY:
                cp.add(origin == n).only_enforce_if(lit)
                cp.add(destination == at).only_enforce_if(lit)
            else:
                cp.add(origin == ends[key][0]).only_enforce_if(lit)
                cp.add(destination == ends[key][1]).only_enforce_if(lit)
        return origin, destination, slot.pick[EMPTY].negated()

    # --- posting the checks ----------------------------------------------------------------------------

    def _post_all(self, model: SlotModel) -> None:
        self._link(model)
        for name, rule in ALWAYS_RULES.items():
            self._post(model, name, rule, None)
        for line in self.declared:
            if line.check in RULES:
                self._post(model, line.name or line.check, RULES[line.check], line)

    def _post(self, model: SlotModel, name: str, rule: Callable[..., None], line: Constraint | None) -> None:
        holds = model.literal() if model.fixed else 1
        rule(self.tables, model, holds, line)
        model.holds[name] = holds

    # --- the two questions -----------------------------------------------------------------------------

    def judge(self, plan: Mapping[str, Any]) -> dict[str, bool]:
        """Which checks hold for a plan that passed the three stages (ids, unambiguous times). Tables must
        be complete: the model has no notion of unknown, so a missing way or price raises `DataError`."""
        model = self._fixed_model(plan)
        self._post_all(model)
        if any(s.hop and (s.way < 0 or s.way_cost < 0) for s in model.slots):
            raise DataError("The oracle needs complete tables, got a way without minutes or price. Add it.")
        model.cp.maximize(sum(model.holds.values()))
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        if solver.solve(model.cp) != cp_model.OPTIMAL:
            raise DataError("The oracle could not decide a fixed plan, which cannot be. Report this.")
        return {name: bool(solver.value(lit)) for name, lit in model.holds.items()}

    def solve(
        self,
        pattern: Sequence[SlotKind] = DEFAULT_PATTERN,
        value: Mapping[str, float] | None = None,
        effort: float = 30.0,
        seed: int = 0,
        relative_gap: float = 0.0,
    ) -> Solution:
        """Find the best plan. `value` is the soft value of visiting each place once (place id -> value).

        `effort` is CP-SAT's deterministic time per order of cities, about a second of one quiet core, so
        that the same seed gives the same answer on a busy machine. `relative_gap` > 0 stops early.
        """
        if own := [x.check for x in self.declared if x.hard and x.check not in RULES]:
            raise DataError(
                f"The oracle can solve for its own checks only, got {', '.join(own)}. Its plan might break "
                "them. Verify plans instead, or declare them soft."
            )
        best = Solution("infeasible")
        proven, bound, wall = True, 0.0, 0.0
        for route in self._routes():
            found = self._solve_route(pattern, route, value or {}, effort, seed, relative_gap, best.value)
            wall += found.wall_s
            proven = proven and found.status in ("optimal", "infeasible")
            bound = max(bound, found.bound or 0.0)
            if found.plan is not None:
                best = found
                if relative_gap > 0:
                    break
        if best.plan is None:
            return Solution("infeasible" if proven else "unknown", wall_s=wall)
        status: Literal["optimal", "feasible"] = "optimal" if proven and not relative_gap else "feasible"
        return Solution(status, best.plan, best.value, max(bound, best.value or 0.0), wall)

    def _solve_route(
        self,
        pattern: Sequence[SlotKind],
        route: tuple[str, ...],
        value: Mapping[str, float],
        effort: float,
        seed: int,
        relative_gap: float,
        beat: float | None,
    ) -> Solution:
        """One order of cities; with `beat` only plans that are better than it."""
        model = self._open_model(pattern, route)
        self._post_all(model)
        gains = []
        for name in value:
            key = ("place", name)
            if value[name] and (options := [s.pick[key] for s in model.slots if key in s.pick]):
                gains.append(round(1000 * value[name]) * model.any_of(options))
        total = sum(gains)
        if beat is not None:
            model.when(total >= round(1000 * beat) + 1, 1)
        model.cp.maximize(total)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = seed
        solver.parameters.max_deterministic_time = effort
        solver.parameters.relative_gap_limit = relative_gap
        status = solver.solve(model.cp)
        wall = solver.wall_time
        if status == cp_model.INFEASIBLE:
            return Solution("infeasible", wall_s=wall)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            bound = solver.best_objective_bound / 1000 if gains else 0.0
            return Solution("unknown", bound=bound, wall_s=wall)
        return Solution(
            "optimal" if status == cp_model.OPTIMAL else "feasible",
            self._read_plan(model, solver),
            solver.objective_value / 1000 if gains else 0.0,
            solver.best_objective_bound / 1000 if gains else 0.0,
            wall,
        )

    def _read_plan(self, model: SlotModel, solver: Any) -> dict[str, Any]:
        task = self.task
        days: list[dict[str, Any]] = [
            {"day": d + 1, "date": (task.start + timedelta(days=d)).isoformat(), "items": []}
            for d in range(task.days)
        ]
        for slot in model.slots:
            (what, name) = next(key for key, lit in slot.pick.items() if solver.value(lit))
            if what == EMPTY[0]:
                continue
            items = days[slot.day]["items"]
            ends = (
                (self.tables.service[name].origin, self.tables.service[name].destination)
                if what == "service"
                else (name, name)
            )
            start, end = (
                self._wall(solver.value(t), p) for t, p in zip((slot.start, slot.end), ends, strict=True)
            )
            kind = (
                "move"
                if what == "service"
                else "stay"
                if self.tables.place[name].kind == "hotel"
                else "visit"
            )
            via = (
                next(k for k, lit in slot.via.items() if solver.value(lit))
                if solver.value(slot.hop)
                else "walk"
            )
            items.append(
                {"id": f"d{slot.day + 1}-{len(items) + 1}", "kind": kind,
                 "service" if kind == "move" else "place": name, "start": start, "end": end, "via": via}
            )  # fmt: skip
        return {"format": "trueup.plan/1", "days": days}

    def _wall(self, minute: int, place: str) -> str:
        moment = (EPOCH + timedelta(minutes=minute + self.tables.t0)).astimezone(self.tables.zone[place])
        ambiguous = moment.replace(fold=0).utcoffset() != moment.replace(fold=1).utcoffset()
        return moment.isoformat(timespec="minutes") if ambiguous else moment.strftime("%Y-%m-%dT%H:%M")
