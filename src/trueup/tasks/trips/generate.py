"""Travel-planning tasks with a solver's word for it: each is feasible, with its best plan and soft value.

A task is drawn, solved without a budget to learn what a good plan costs, and given a budget near that; then
it is solved again with the budget. What the solver cannot decide in time is drawn anew, so every task that
comes out carries a plan that the imperative checks accept as well: the task validates itself before it is
returned.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from trueup.errors import ConfigError, DataError
from trueup.tasks.trips.soft import place_values
from trueup.tasks.trips.text import render_prompt
from trueup.tasks.trips.world import LEVELS, draw_tables
from trueup.verifiers.plan import PlanVerifier, TripTask
from trueup.verifiers.plan.oracle import Oracle, Solution
from trueup.verifiers.plan.prohibitions import computed

__all__ = ["GeneratedTask", "draw_task"]

_TAGS = ("history", "art", "nature", "science", "view", "music", "food")
_ATTEMPTS = 12


@dataclass(frozen=True, slots=True)
class GeneratedTask:
    """A task and how its best plan was found: `proven` when the solver closed the gap."""

    task: TripTask
    proven: bool
    bound: float
    solve_s: float


def draw_task(seed: int, level: int, effort: float = 20.0) -> GeneratedTask:
    """One task; the same seed, level and effort (deterministic solver seconds per order of cities) give the
    same task.

    Raises `DataError` when no draw could be solved, `ConfigError` for an unknown level.
    """
    if level not in LEVELS:
        raise ConfigError(
            f"level must be one of {', '.join(map(str, LEVELS))}, got {level}. No task was drawn. Choose one."
        )
    for attempt in range(_ATTEMPTS):
        rng = random.Random(f"trips/{level}/{seed}/{attempt}")
        made = _try(rng, f"trip-l{level}-s{seed}", level, seed, effort)
        if made is not None:
            return made
    raise DataError(
        f"A trip of level {level}, seed {seed} must be solvable, got no solution in {_ATTEMPTS} draws of "
        f"effort {effort}. Nothing was written. Allow more effort or take another seed."
    )


def _try(rng: random.Random, task_id: str, level: int, seed: int, effort: float) -> GeneratedTask | None:
    tables = draw_tables(rng, LEVELS[level])
    wants = rng.sample(_TAGS, 4)
    preferences = {tag: float(w) for tag, w in zip(wants, (4, 3, 2, 1), strict=True)}
    constraints = _draw_constraints(rng, tables, level)
    raw = {"id": task_id, "level": level, "preferences": preferences, "constraints": constraints, **tables}
    rich = TripTask.from_dict(raw)
    free = Oracle(rich).solve(value=place_values(rich), effort=effort, seed=seed, relative_gap=0.25)
    if free.plan is None:
        return None
    resolved = PlanVerifier(rich).resolve(free.plan)
    if resolved is None:
        raise DataError(f"{task_id}: the solver's plan does not resolve. This is a fault of the oracle.")
    limit = (resolved.cost[0] * Decimal(str(LEVELS[level].budget)) * Decimal("0.9")).quantize(Decimal(1))
    raw["constraints"] = [*constraints, {"check": "budget", "limit": str(limit)}]
    poor = TripTask.from_dict(raw)
    best = Oracle(poor).solve(value=place_values(poor), effort=effort, seed=seed)
    if best.plan is None or best.value is None or best.value <= 0:
        return None
    return _finish(raw, poor, best)


def _finish(raw: dict[str, Any], task: TripTask, best: Solution) -> GeneratedTask:
    """State the claims, write the prompt, and let the imperative checks confirm the plan."""
    plan = dict(best.plan or {})
    resolved = PlanVerifier(task).resolve(plan)
    if resolved is None:
        raise DataError(f"{task.id}: the solver's plan does not resolve. This is a fault of the oracle.")
    plan["claims"] = {"cost": float(computed(resolved, "cost")[0])}
    final = TripTask.from_dict(
        {**raw, "gold": plan, "gold_value": best.value, "prompt": render_prompt(task)},
        task.id,
    )
    PlanVerifier(final).require_valid()
    return GeneratedTask(final, best.status == "optimal", best.bound or 0.0, best.wall_s)


def _draw_constraints(rng: random.Random, tables: dict[str, Any], level: int) -> list[dict[str, Any]]:
    """Obligations first, then prohibitions; higher levels have more and tighter ones."""
    days, party = tables["days"], sum(tables["party"].values())
    visited = [c["id"] for c in tables["cities"][1:]]
    sights = [p for p in tables["places"] if p["kind"] == "sight"]
    open_to_us = [p for p in sights if (p["max_party"] or 99) >= party]
    rng.shuffle(open_to_us)
    seen = {"kinds": ["sight"]}
    must, rest = open_to_us[:1], open_to_us[1:]
    out: list[dict[str, Any]] = [
        {"check": "nights", "min_hours": 6},
        {"check": "meals", "windows": ["11:30-14:30", "18:00-21:00"], "days": list(range(2, days))},
        {
            "check": "count",
            "name": "sights",
            "where": seen,
            "at_least": days,
            "distinct": True,
        },
        {
            "check": "count",
            "name": "sights_per_day",
            "where": seen,
            "at_most": 3,
            "per": "day",
        },
        {"check": "no_repeat", "kinds": ["sight"]},
        {"check": "closed_loop"},
        {"check": "day_window", "earliest": "07:30", "latest": "23:00"},
        {"check": "claim", "quantity": "cost", "tolerance": "1"},
    ]
    if must:
        out.insert(0, {"check": "must_visit", "places": [must[0]["id"]]})
    if level >= 2:
        out.append({"check": "connections", "minutes": 60})
        if rest:
            out.append({"check": "must_avoid", "places": [rest.pop()["id"]]})
    if level >= 3:
        nights = (days - 1) // len(visited)
        out += [{"check": "min_stay", "name": f"min_stay_{c}", "city": c, "nights": nights} for c in visited]
        out.append({"check": "modes_banned", "modes": ["flight" if level == 3 else "taxi"]})
    if level >= 4 and len(rest) >= 2:
        out.append({"check": "precedence", "before": rest[0]["id"], "after": rest[1]["id"]})
    return out
