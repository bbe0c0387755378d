"""A weekend small enough to check by hand."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from trueup.verifiers.plan import PlanVerifier, TripTask

TASK: dict[str, Any] = {
    "id": "weekend",
    "start": "2026-06-05",  # a Friday
    "days": 2,
    "home": "berlin-hbf",
    "party": {"adults": 2, "children": 1},
    "currency": "EUR",
    "rates": {"date": "2026-01-15", "base": "EUR", "rates": {"CZK": "25", "GBP": "0.8"}},
    "cities": [
        {"id": "berlin", "name": "Berlin", "zone": "Europe/Berlin"},
        {"id": "london", "name": "London", "zone": "Europe/London"},
    ],
    "places": [
        {"id": "berlin-hbf", "name": "Berlin Hbf", "city": "berlin", "kind": "station", "hours": "always",
         "price": "free"},
        {"id": "st-pancras", "name": "St Pancras", "city": "london", "kind": "station", "hours": "always",
         "price": "free", "aliases": ["Saint  Pancras"]},
        {"id": "museum", "name": "The Museum", "city": "london", "kind": "sight", "tags": ["art"],
         "hours": {"weekly": {"fri": ["10:00-18:00"], "sat": ["10:00-18:00"]}},
         "price": {"amount": "20", "currency": "GBP", "child_amount": "10"}, "min_dwell_min": 60},
        {"id": "club", "name": "Cellar Club", "city": "london", "kind": "sight", "tags": ["music"],
         "hours": {"weekly": {"fri": ["22:00-02:00"]}, "dates": {"2026-06-06": []}},
         "price": "free", "max_party": 10},
        {"id": "inn", "name": "Green Inn", "city": "london", "kind": "hotel", "hours": "always", "rooms": 2,
         "price": {"amount": "80", "currency": "GBP", "per": "room", "holds": 2, "per_night": True}},
        {"id": "cafe", "name": "Cafe\u0301 Ole", "city": "london", "kind": "restaurant", "hours": "always",
         "price": {"amount": "8", "currency": "GBP"}},
        {"id": "cafe2", "name": "Twin", "city": "london", "kind": "restaurant", "hours": "always",
         "price": "free", "aliases": ["The Other"]},
        {"id": "cafe3", "name": "twin ", "city": "london", "kind": "restaurant", "hours": "always",
         "price": "free"},
    ],
    "edges": [
        {"a": a, "b": b, "mode": "walk", "minutes": 20, "price": "free"}
        for a, b in [("st-pancras", "museum"), ("museum", "cafe"), ("cafe", "inn"), ("inn", "cafe"),
                     ("inn", "st-pancras"), ("cafe", "club"), ("club", "inn"), ("museum", "inn"),
                     ("cafe", "st-pancras"), ("museum", "club")]
    ] + [{"a": "museum", "b": "cafe", "mode": "taxi", "minutes": 5,
          "price": {"amount": "12", "currency": "GBP", "per": "vehicle", "holds": 2}}],
    "services": [
        {"id": "out", "name": "Morning train", "mode": "train", "origin": "berlin-hbf",
         "destination": "st-pancras", "departs": "06:00", "minutes": 300, "seats": 3,
         "price": {"amount": "100", "currency": "EUR"}},
        {"id": "back", "name": "Evening train", "mode": "train", "origin": "st-pancras",
         "destination": "berlin-hbf", "departs": "16:00", "minutes": 300, "dates": ["2026-06-06"],
         "price": {"amount": "50", "currency": "EUR"}},
    ],
    "constraints": [
        {"check": "must_visit", "places": ["museum"]},
        {"check": "nights"},
        {"check": "meals", "windows": ["13:00-15:00"], "days": [1]},
        {"check": "budget", "limit": "1000"},
        {"check": "closed_loop"},
    ],
}  # fmt: skip

PLAN: dict[str, Any] = {
    "days": [
        {"day": 1, "date": "2026-06-05", "items": [
            {"id": "a", "kind": "move", "service": "out", "start": "2026-06-05T06:00",
             "end": "2026-06-05T10:00"},
            {"id": "b", "kind": "visit", "place": "museum", "start": "2026-06-05T10:20",
             "end": "2026-06-05T12:40"},
            {"id": "c", "kind": "visit", "place": "cafe", "start": "2026-06-05T13:00",
             "end": "2026-06-05T14:00"},
            {"id": "d", "kind": "stay", "place": "inn", "start": "2026-06-05T20:00",
             "end": "2026-06-06T09:00"}]},
        {"day": 2, "date": "2026-06-06", "items": [
            {"id": "e", "kind": "move", "service": "back", "start": "2026-06-06T16:00",
             "end": "2026-06-06T22:00"}]},
    ],
}  # fmt: skip


@pytest.fixture
def task() -> dict[str, Any]:
    """The task as plain data, to be changed at will."""
    return copy.deepcopy(TASK)


@pytest.fixture
def plan() -> dict[str, Any]:
    return copy.deepcopy(PLAN)


@pytest.fixture(scope="session")
def weekend() -> PlanVerifier:
    return PlanVerifier(TripTask.from_dict(TASK))
