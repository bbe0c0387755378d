"""What a task file and a plan look like. Both are strict: an unknown key, kind or mode is an error.

A plan names things and times and nothing else. Prices, durations of services and opening hours come from the
task's tables, so a plan cannot state its own. The only numbers that it may state are `claims`, which exist to
be compared with the computed ones.
"""

from __future__ import annotations

import json
import re
from datetime import date
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from trueup.errors import DataError
from trueup.verifiers.base import Frozen
from trueup.verifiers.plan.clock import parse_clock, parse_span
from trueup.verifiers.plan.money import Currency, Party, Price, Rates

__all__ = [
    "City",
    "Day",
    "Edge",
    "Hours",
    "Mode",
    "Move",
    "Place",
    "Plan",
    "Service",
    "Stay",
    "TripTask",
    "Visit",
]

Mode: TypeAlias = Literal["walk", "bike", "metro", "bus", "taxi", "car", "train", "flight", "ferry"]
PlaceKind: TypeAlias = Literal["sight", "restaurant", "hotel", "station", "home"]
Id = Annotated[str, Field(min_length=1, max_length=80)]
Weekday: TypeAlias = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
_WEEKDAYS: tuple[Weekday, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def _is_span(text: str) -> str:
    try:
        parse_span(text)
    except DataError as error:
        raise ValueError(str(error)) from None
    return text


def _is_clock(text: str) -> str:
    try:
        parse_clock(text)
    except DataError as error:
        raise ValueError(str(error)) from None
    return text


Span = Annotated[str, AfterValidator(_is_span)]
Clock = Annotated[str, AfterValidator(_is_clock)]


# --- the task's tables ---------------------------------------------------------------------------------


class City(Frozen):
    id: Id
    name: str
    zone: str  # IANA, e.g. Europe/Berlin
    aliases: tuple[str, ...] = ()


class Hours(Frozen):
    """Opening spans by weekday, and by local date where a date differs. A missing weekday is closed."""

    weekly: dict[Weekday, tuple[Span, ...]] = Field(default={})
    dates: dict[date, tuple[Span, ...]] = Field(default={})

    def spans_on(self, day: date) -> tuple[str, ...]:
        """The spans that start on a local date; one over midnight belongs to the date it starts on."""
        if day in self.dates:
            return self.dates[day]
        return self.weekly.get(_WEEKDAYS[day.weekday()], ())


class Place(Frozen):
    """Somewhere to be. None for hours or price means that the table does not know, which is not "always"
    and not "free"."""

    id: Id
    name: str
    city: Id
    kind: PlaceKind
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    hours: Hours | Literal["always"] | None = None
    price: Price | Literal["free"] | None = None
    min_dwell_min: int = Field(default=0, ge=0)
    max_party: int | None = Field(default=None, ge=1)  # people let in at once
    rooms: int | None = Field(default=None, ge=0)  # hotels: rooms left


class Edge(Frozen):
    """Travel inside a city, by mode, in minutes of real time. `both_ways` false for one direction only."""

    a: Id
    b: Id
    mode: Mode
    minutes: int = Field(ge=0)
    price: Price | Literal["free"] | None = None
    both_ways: bool = True


class Service(Frozen):
    """A journey between two places, leaving at a posted local time, or at any time when `departs` is None.
    `minutes` is real elapsed time; the arrival's wall clock follows from the zones."""

    id: Id
    name: str
    mode: Mode
    origin: Id
    destination: Id
    departs: Clock | None
    minutes: int = Field(ge=1)
    dates: tuple[date, ...] | None = None  # None: every day
    price: Price | Literal["free"] | None = None
    seats: int | None = Field(default=None, ge=0)
    aliases: tuple[str, ...] = ()


# --- the plan ------------------------------------------------------------------------------------------


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


ItemId = Annotated[str, Field(min_length=1, max_length=64)]
Word = Annotated[str, Field(min_length=1, max_length=200)]
Stamp = Annotated[str, Field(min_length=16, max_length=25)]


class Visit(_Strict):
    """Time at a sight or restaurant; `via` is how the party came from the item before, inside a city."""

    id: ItemId
    kind: Literal["visit"]
    place: Word
    start: Stamp
    end: Stamp
    via: Mode = "walk"


class Stay(_Strict):
    """A night (or several) at a hotel; belongs to the day on which it starts."""

    id: ItemId
    kind: Literal["stay"]
    place: Word
    start: Stamp
    end: Stamp
    via: Mode = "walk"


class Move(_Strict):
    """A journey by a service of the table. Times are local to where they happen. `via` is how the party came
    to the service's place of departure."""

    id: ItemId
    kind: Literal["move"]
    service: Word
    start: Stamp
    end: Stamp
    via: Mode = "walk"


class Day(_Strict):
    day: int = Field(ge=1, le=366)
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    items: list[Annotated[Visit | Stay | Move, Field(discriminator="kind")]] = Field(max_length=200)


class Plan(_Strict):
    format: Literal["trueup.plan/1"] = "trueup.plan/1"
    days: list[Day] = Field(max_length=366)
    claims: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = Field(default={}, max_length=20)


# --- the task ------------------------------------------------------------------------------------------


class KnownBad(Frozen):
    """A plan that must fail, and the one check that must fail it."""

    breaks: str
    plan: dict[str, Any]


class TripTask(Frozen):
    """A whole task: who, when, the tables, the constraints, and examples that prove the constraints.

    `constraints` stay raw here: each is `{check: NAME, …}`, and which names exist depends on the checks that
    the verifier was given (`trueup.verifiers.plan.PlanVerifier`).
    """

    format: Literal["trueup.trip/1"] = "trueup.trip/1"
    id: Id
    start: date
    days: int = Field(ge=1, le=60)
    home: Id
    party: Party
    currency: Currency
    cities: tuple[City, ...] = Field(min_length=1)
    places: tuple[Place, ...] = Field(min_length=1)
    edges: tuple[Edge, ...] = ()
    services: tuple[Service, ...] = ()
    rates: Rates | None = None
    constraints: tuple[dict[str, Any], ...]
    prompt: str = ""
    level: int = 0
    # Tag -> value of one visit with it: soft, never a constraint.
    preferences: dict[str, float] = Field(default={})
    gold: dict[str, Any] | None = None
    gold_value: float | None = None  # what an exact solver proved to be the best soft score
    known_bad: tuple[KnownBad, ...] = ()

    @model_validator(mode="after")
    def _ids_agree(self) -> TripTask:
        for what, rows in (("city", self.cities), ("place", self.places), ("service", self.services)):
            ids = [row.id for row in rows]
            if len(set(ids)) != len(ids):
                raise ValueError(
                    f"{what} ids must be unique, got {sorted({i for i in ids if ids.count(i) > 1})}"
                )
        places = {p.id for p in self.places}
        cities = {c.id for c in self.cities}
        named = [("place", p.city, cities) for p in self.places]
        named += [("edge", e, places) for edge in self.edges for e in (edge.a, edge.b)]
        named += [("service", s, places) for svc in self.services for s in (svc.origin, svc.destination)]
        named.append(("home", self.home, places))
        if unknown := sorted({f"{what} -> {name}" for what, name, known in named if name not in known}):
            raise ValueError(f"every reference must name a row of a table, got {', '.join(unknown)}")
        return self

    @classmethod
    def from_json(cls, text: str | bytes, source: str = "task") -> TripTask:
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise DataError(_explain(source, error)) from None

    @classmethod
    def from_dict(cls, data: Any, source: str = "task") -> TripTask:
        """From plain data, e.g. parsed YAML. Goes through JSON so that both forms obey the same rules."""
        try:
            return cls.from_json(json.dumps(data, default=str, allow_nan=False), source)
        except (TypeError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{source} must be plain data, got {error}. Nothing was read.") from None


def _explain(source: str, error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "top level"
    more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return (
        f"{source} must follow the task format, got {first['msg']} at {where}{more}. "
        "No plan was judged. Mend the file; docs/plans.md describes every key."
    )


_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)\n?```", re.DOTALL)


def parse_plan(answer: Any) -> Plan:
    """A plan from text, bytes or a dict. Text may be bare JSON, or prose with exactly one fenced block.

    Raises pydantic's `ValidationError` or `ValueError`; the verifier turns both into a failed shape check.
    """
    if isinstance(answer, Plan):
        return answer
    if isinstance(answer, (bytes, bytearray)):
        return Plan.model_validate_json(bytes(answer))
    if isinstance(answer, str):
        text = answer.strip()
        if not text.startswith("{"):
            blocks = _FENCE.findall(text)
            if len(blocks) != 1:
                raise ValueError(
                    f"the answer must be JSON or hold exactly one fenced block, got {len(blocks)}"
                )
            text = blocks[0]
        return Plan.model_validate_json(text)
    return Plan.model_validate(answer)
