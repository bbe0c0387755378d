"""Synthetic tables for trips: cities with real time zones and invented places, prices and timetables.

Everything is drawn from one seeded generator, so a seed names a world. Ways inside a city come from points on
a plane, so a detour is never shorter than the direct way by the same mode.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import date
from itertools import combinations, permutations
from typing import Any, TypeAlias

__all__ = ["LEVELS", "Level", "draw_tables"]

Located: TypeAlias = tuple[dict[str, Any], tuple[float, float]]  # a place and where it lies, in km
_CITIES = {
    "berlin": ("Berlin", "Europe/Berlin", "EUR"),
    "prague": ("Prague", "Europe/Prague", "CZK"),
    "vienna": ("Vienna", "Europe/Vienna", "EUR"),
    "london": ("London", "Europe/London", "GBP"),
    "lisbon": ("Lisbon", "Europe/Lisbon", "EUR"),
    "zurich": ("Zurich", "Europe/Zurich", "CHF"),
    "athens": ("Athens", "Europe/Athens", "EUR"),
    "istanbul": ("Istanbul", "Europe/Istanbul", "TRY"),
}
_RATES = {"CZK": "25.12", "GBP": "0.8615", "CHF": "0.9387", "TRY": "38.40"}
_SIGHTS = (
    ("Old Town Hall", "history"),
    ("Art Museum", "art"),
    ("Castle", "history"),
    ("Botanical Garden", "nature"),
    ("Cathedral", "history"),
    ("Science Centre", "science"),
    ("Harbour", "view"),
    ("Sculpture Park", "nature"),
    ("Opera House", "music"),
    ("Night Market", "food"),
)
_RESTAURANTS = ("Corner Bistro", "Garden Grill", "Station Noodles", "River Tavern", "Green Table")
_HOTELS = (("Grand Hotel", "luxury", 160), ("City Inn", "central", 95), ("Park Hostel", "simple", 55))
_WEEK = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_FACTOR = {"EUR": 1.0, "CZK": 25.0, "GBP": 0.9, "CHF": 1.0, "TRY": 38.0}
_SPEED = {"walk": (0, 13), "metro": (6, 3), "taxi": (4, 2)}  # minutes: fixed, per km


@dataclass(frozen=True, slots=True)
class Level:
    """How large and how tight a task is; `budget` is a factor on what a good plan costs."""

    days: int
    n_cities: int
    n_sights: int
    modes: tuple[str, ...]
    budget: float


LEVELS = {
    1: Level(days=3, n_cities=1, n_sights=5, modes=("walk", "metro"), budget=1.30),
    2: Level(days=4, n_cities=1, n_sights=6, modes=("walk", "metro", "taxi"), budget=1.15),
    3: Level(days=7, n_cities=2, n_sights=6, modes=("walk", "metro", "taxi"), budget=1.10),
    4: Level(days=7, n_cities=3, n_sights=7, modes=("walk", "metro", "taxi"), budget=1.05),
}
_STARTS = (date(2026, 3, 27), date(2026, 5, 11), date(2026, 6, 19), date(2026, 9, 7), date(2026, 10, 22))


def draw_tables(rng: random.Random, level: Level) -> dict[str, Any]:
    """Cities, places, edges, services, rates, party and dates of one task, as plain data."""
    ids = rng.sample(sorted(_CITIES), level.n_cities + 1)
    adults, children = rng.randint(1, 4), rng.choice((0, 0, 1, 2))
    places: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []
    for n, city in enumerate(ids):
        rows = [_station(city)] if n == 0 else _city_places(rng, city, level)
        places += [row for row, _ in rows]
        edges += _city_edges(rows, city, level.modes)
    return {
        "start": rng.choice(_STARTS).isoformat(),
        "days": level.days,
        "home": f"{ids[0]}-station",
        "party": {"adults": adults, "children": children},
        "currency": "EUR",
        "rates": {"date": "2026-01-15", "base": "EUR", "rates": _RATES},
        "cities": [{"id": c, "name": _CITIES[c][0], "zone": _CITIES[c][1]} for c in ids],
        "places": places,
        "edges": edges,
        "services": _services(rng, ids),
    }


def _station(city: str) -> Located:
    name = _CITIES[city][0]
    row = {
        "id": f"{city}-station",
        "name": f"{name} Central Station",
        "aliases": [f"{name} station"],
        "city": city,
        "kind": "station",
        "hours": "always",
        "price": "free",
    }
    return row, (0.0, 0.0)


def _price(city: str, amount: float, **more: Any) -> dict[str, Any]:
    """A price in the city's own currency; `amount` is in euros or so."""
    currency = _CITIES[city][2]
    return {"amount": f"{amount * _FACTOR[currency]:.2f}", "currency": currency, **more}


def _city_places(rng: random.Random, city: str, level: Level) -> list[Located]:
    chosen = rng.sample(range(len(_SIGHTS)), level.n_sights)
    n_hotels = 2 if level.n_cities < 3 else 3
    return [
        _station(city),
        *((_sight(rng, city, i), _point(rng)) for i in chosen),
        *((_restaurant(rng, city, i), _point(rng)) for i in range(4)),
        *((_hotel(rng, city, i), _point(rng)) for i in range(n_hotels)),
    ]


def _sight(rng: random.Random, city: str, i: int) -> dict[str, Any]:
    label, tag = _SIGHTS[i]
    adult = rng.choice((0, 8, 12, 15, 18, 24))
    child = _price(city, adult / 2)["amount"]
    closed = rng.choice((None, "mon", "tue"))
    span = "16:00-02:00" if tag == "food" else rng.choice(("09:00-17:00", "10:00-18:00", "08:30-20:00"))
    return {
        "id": f"{city}-s{i}",
        "name": f"{_CITIES[city][0]} {label}",
        "city": city,
        "kind": "sight",
        "tags": [tag, "outdoors"] if tag in ("nature", "view") else [tag],
        "hours": {"weekly": {d: [span] for d in _WEEK if d != closed}},
        "price": _price(city, adult, child_amount=child) if adult else "free",
        "min_dwell_min": rng.choice((45, 60, 90, 120)),
        "max_party": rng.choice((None, 4, 8, 12)),
    }


def _restaurant(rng: random.Random, city: str, i: int) -> dict[str, Any]:
    return {
        "id": f"{city}-r{i}",
        "name": f"{_CITIES[city][0]} {_RESTAURANTS[i]}",
        "city": city,
        "kind": "restaurant",
        "tags": ["food"],
        "hours": {"weekly": {d: ["11:00-15:00", "17:30-23:30"] for d in _WEEK}},
        "price": _price(city, rng.choice((12, 16, 22, 35))),
        "min_dwell_min": 45,
    }


def _hotel(rng: random.Random, city: str, i: int) -> dict[str, Any]:
    label, tag, base = _HOTELS[i]
    return {
        "id": f"{city}-h{i}",
        "name": f"{_CITIES[city][0]} {label}",
        "city": city,
        "kind": "hotel",
        "tags": [tag],
        "hours": "always",
        "rooms": rng.randint(2, 9),
        "price": _price(city, base + rng.randint(0, 20), per="room", holds=2, per_night=True),
    }


def _point(rng: random.Random) -> tuple[float, float]:
    return rng.uniform(-2, 2), rng.uniform(-2, 2)


def _city_edges(rows: list[Located], city: str, modes: tuple[str, ...]) -> list[dict[str, Any]]:
    """Ways between all pairs of places, by every mode."""
    out = []
    for (a, pa), (b, pb) in combinations(rows, 2):
        km = math.dist(pa, pb)
        for mode in modes:
            fixed, per_km = _SPEED[mode]
            price: Any = "free"
            if mode == "metro":
                price = _price(city, 2.4)
            elif mode == "taxi":
                price = _price(city, 5 + 2 * km, per="vehicle", holds=4)
            minutes = fixed + math.ceil(per_km * km)
            out.append({"a": a["id"], "b": b["id"], "mode": mode, "minutes": minutes, "price": price})
    return out


def _services(rng: random.Random, ids: list[str]) -> list[dict[str, Any]]:
    """Between every two cities two trains and a flight a day, each way."""
    out = []
    for a, b in permutations(ids, 2):
        length = rng.randint(120, 260)
        for mode, departs, minutes, price, seats in (
            ("train", "08:10", length, 60, 40),
            ("train", "15:20", length, 45, 40),
            ("flight", "12:30", 75 + length // 4, 110, 12),
        ):
            out.append(
                {
                    "id": f"{a}-{b}-{departs.replace(':', '')}",
                    "name": f"{_CITIES[a][0]} to {_CITIES[b][0]}, {mode} at {departs}",
                    "mode": mode,
                    "departs": departs,
                    "origin": f"{a}-station",
                    "destination": f"{b}-station",
                    "minutes": minutes,
                    "price": {"amount": f"{price + rng.randint(0, 25)}.00", "currency": "EUR"},
                    "seats": seats,
                }
            )
    return out
