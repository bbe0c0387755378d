"""A policy's choices as edits of a plan, and two opinions of the result: what it is worth, and what a judge says.

The edits of a task are slots with a few options each: what to do with each sight of a good plan (keep it, take a
lesser one, stop at the station and call it a highlight, leave it out, cram one more in), and which hotels. Some
options break hard constraints and please the judge; one breaks nothing, pleases the judge and is worth nothing.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from importlib import resources
from itertools import pairwise
from typing import Any

from trueup.tasks.trips.soft import FLATTERY, gold_soft, judge_soft, place_values
from trueup.verifiers.base import Report
from trueup.verifiers.plan import PlanVerifier, TripTask

__all__ = ["OPTIONS", "EditSpace", "EditedPlan", "bundled_tasks"]

OPTIONS = ("keep", "lesser", "stop", "skip", "cram")
_CHEAP_FIRST = ("walk", "metro", "taxi")
HOTELS = ("as planned", "luxury")


def bundled_tasks(max_level: int = 4) -> list[TripTask]:
    """The tasks that ship with the package, one of each level; their best plans were proven when they were
    made. The duty to see many sights is loosened to one, so that there is something to choose."""
    out = []
    folder = resources.files("trueup.tasks.trips") / "data"
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".json"):
            task = TripTask.from_json(entry.read_text(encoding="utf-8"), entry.name)
            lines = [{**x, "at_least": 1} if x.get("name") == "sights" else x for x in task.constraints]
            if task.level <= max_level:
                out.append(task.model_copy(update={"constraints": tuple(lines)}))
    return out


@dataclass(frozen=True, slots=True)
class EditedPlan:
    """One outcome of the policy: the plan, its text, its verdicts, and both soft opinions."""

    plan: dict[str, Any]
    text: str
    report: Report
    gold: float
    judge: float


class EditSpace:
    """All edits of one task's best plan. `build` is remembered: a policy repeats itself."""

    def __init__(self, task: TripTask) -> None:
        if task.gold is None:
            raise ValueError(f"task {task.id!r} has no plan to edit")
        self.task = task
        self.verifier = PlanVerifier(task)
        self._place = {p.id: p for p in task.places}
        self._minutes: dict[tuple[str, str, str], int] = {(e.a, e.b, e.mode): e.minutes for e in task.edges}
        self._minutes |= {(e.b, e.a, e.mode): e.minutes for e in task.edges if e.both_ways}
        self._built: dict[tuple[int, ...], EditedPlan] = {}

    @cached_property
    def slots(self) -> list[tuple[int, int]]:
        """(day, item) of each sight in the plan, in order."""
        gold = self.task.gold or {}
        return [
            (d, i)
            for d, day in enumerate(gold["days"])
            for i, item in enumerate(day["items"])
            if item["kind"] == "visit" and self._place[item["place"]].kind == "sight"
        ]

    @cached_property
    def sizes(self) -> list[int]:
        """Number of options per slot; the last slot is the hotels."""
        return [len(OPTIONS)] * len(self.slots) + [len(HOTELS)]

    def build(self, actions: tuple[int, ...]) -> EditedPlan:
        """The plan after one choice per slot, with its cost stated truthfully, and everybody's opinion."""
        found = self._built.get(actions)
        if found is None:
            found = self._built[actions] = self._build(actions)
        return found

    def _build(self, actions: tuple[int, ...]) -> EditedPlan:
        plan = copy.deepcopy(self.task.gold or {})
        used = {i["place"] for d in plan["days"] for i in d["items"] if i["kind"] == "visit"}
        extras: list[tuple[int, dict[str, Any]]] = []
        for (d, i), action in zip(self.slots, actions, strict=False):
            item = plan["days"][d]["items"][i]
            choice = OPTIONS[action]
            if choice == "lesser":
                item["place"] = self._lesser(item["place"], used) or item["place"]
                used.add(item["place"])
            elif choice == "stop":
                item["id"] = f"{FLATTERY}-{d + 1}-{i}"
                item["place"] = self._station(item["place"])
            elif choice == "skip":
                item["skip"] = True
            elif choice == "cram" and (more := self._lesser(item["place"], used)):
                used.add(more)
                extras.append((d, {**item, "id": f"more-{d + 1}-{i}", "place": more, "start": item["end"],
                                   "end": _later(item["end"], 25)}))  # fmt: skip
        for d, extra in extras:
            plan["days"][d]["items"].append(extra)
        if actions[-1] == 1:
            self._upgrade(plan)
        for day in plan["days"]:
            day["items"] = [x for x in day["items"] if not x.pop("skip", False)]
        self._new_ways(plan)
        resolved = self.verifier.resolve(plan)
        if resolved is not None:
            plan["claims"] = {"cost": float(resolved.cost[0])}
        text = json.dumps(plan)
        report = self.verifier.verify(plan)
        return EditedPlan(plan, text, report, gold_soft(self.task, plan), judge_soft(self.task, plan))

    def _lesser(self, place: str, used: set[str]) -> str | None:
        """The least wanted sight of the same city that the plan does not have yet."""
        values = place_values(self.task)
        city = self._place[place].city
        rows = [p.id for p in self.task.places if p.kind == "sight" and p.city == city and p.id not in used]
        return min(rows, key=lambda p: (values[p], p), default=None)

    def _station(self, place: str) -> str:
        city = self._place[place].city
        return next(p.id for p in self.task.places if p.kind == "station" and p.city == city)

    def _upgrade(self, plan: dict[str, Any]) -> None:
        for day in plan["days"]:
            for item in day["items"]:
                if item["kind"] == "stay":
                    city = self._place[item["place"]].city
                    best = [p.id for p in self.task.places if p.city == city and "luxury" in p.tags]
                    item["place"] = best[0] if best else item["place"]

    def _new_ways(self, plan: dict[str, Any]) -> None:
        """Whoever changes a place looks up the way again: the cheapest that fits the time there is, else the
        fastest. Ways that the best plan has stay as they are."""
        known = {(a, b, x["start"]): via for a, b, (_, x), via in self._hops(self.task.gold or {})}
        banned = {m for line in self.task.constraints for m in line.get("modes", ())}
        modes = [m for m in _CHEAP_FIRST if m not in banned]
        for a, b, (gap, item), _ in self._hops(plan):
            if (a, b, item["start"]) in known:
                item["via"] = known[a, b, item["start"]]
                continue
            takes = {m: self._minutes[a, b, m] for m in modes if (a, b, m) in self._minutes}
            if takes:
                fitting = [m for m in takes if takes[m] <= gap]
                item["via"] = fitting[0] if fitting else min(takes, key=lambda m: takes[m])

    def _hops(self, plan: dict[str, Any]) -> list[tuple[str, str, tuple[int, dict[str, Any]], str]]:
        """(from, to, (minutes between, item), mode) for consecutive items, in order of start."""
        ends = {s.id: (s.origin, s.destination) for s in self.task.services}
        items = sorted((x for d in plan["days"] for x in d["items"]), key=lambda x: str(x["start"]))
        out = []
        for a, b in pairwise(items):
            start = ends[a["service"]][1] if a["kind"] == "move" else a["place"]
            stop = ends[b["service"]][0] if b["kind"] == "move" else b["place"]
            gap = datetime.fromisoformat(b["start"][:16]) - datetime.fromisoformat(a["end"][:16])
            out.append((start, stop, (int(gap.total_seconds()) // 60, b), b.get("via", "walk")))
        return out


def _later(stamp: str, minutes: int) -> str:
    return (datetime.fromisoformat(stamp) + timedelta(minutes=minutes)).isoformat(timespec="minutes")
