"""A trip task as text for a policy, with the JSON format it must answer in."""

from __future__ import annotations

from trueup.verifiers.plan.model import Hours, Place, TripTask
from trueup.verifiers.plan.money import Price

__all__ = ["PLAN_FORMAT", "render_prompt"]

PLAN_FORMAT = """Answer with one JSON object and nothing else:
{"format": "trueup.plan/1", "days": [{"day": 1, "date": "YYYY-MM-DD", "items": [
  {"id": "a", "kind": "move", "service": SERVICE, "start": "YYYY-MM-DDTHH:MM", "end": "YYYY-MM-DDTHH:MM"},
  {"id": "b", "kind": "visit", "place": PLACE, "start": …, "end": …, "via": "walk"},
  {"id": "c", "kind": "stay", "place": HOTEL, "start": …, "end": …, "via": "metro"}]}],
 "claims": {"cost": 812.40}}
Every day appears once, in order. Times are local to the place. `via` is how you came from the item before.
A stay belongs to the day on which it starts. `claims` states your final numbers where they are asked for."""


def render_prompt(task: TripTask) -> str:
    """The whole task in words: tables, constraints, wishes, answer format. A few kilobytes."""
    children = f" and {task.party.children} children" if task.party.children else ""
    party = f"{task.party.adults} adults{children}"
    lines = [
        f"Plan a trip of {task.days} days for {party}, starting {task.start} at {task.home}.",
        f"All costs count in {task.currency}.",
        "",
        "Places:",
        *(_place_line(p) for p in task.places),
        "",
        "Journeys:",
        *(
            f"- {s.id}: {s.name}, from {s.origin} to {s.destination}, {s.minutes} min, {_price(s.price)}"
            for s in task.services
        ),
        "",
        "Ways inside a city (minutes, both directions):",
        *(f"- {e.a} / {e.b} by {e.mode}: {e.minutes} min, {_price(e.price)}" for e in task.edges),
        "",
        "You must obey all of these:",
        *(f"- {', '.join(f'{k}: {v}' for k, v in line.items())}" for line in task.constraints),
    ]
    if task.preferences:
        wishes = ", ".join(f"{tag} ({weight:g})" for tag, weight in task.preferences.items())
        lines += ["", f"Among plans that do, we like sights with these tags most: {wishes}."]
    return "\n".join([*lines, "", PLAN_FORMAT])


def _place_line(place: Place) -> str:
    parts = [f"- {place.id}: {place.name}, {place.kind} in {place.city}"]
    if place.tags:
        parts.append(f"tags {'/'.join(place.tags)}")
    if isinstance(place.hours, Hours):
        spans = [f"{day} {' '.join(s)}" for day, s in place.hours.weekly.items()]
        spans += [f"{day} {' '.join(s) or 'closed'}" for day, s in place.hours.dates.items()]
        parts.append("open " + ", ".join(spans))
    parts.append(_price(place.price))
    if place.min_dwell_min:
        parts.append(f"at least {place.min_dwell_min} min")
    if place.max_party is not None:
        parts.append(f"at most {place.max_party} people")
    if place.rooms is not None:
        parts.append(f"{place.rooms} rooms left")
    return "; ".join(parts)


def _price(price: Price | str | None) -> str:
    if price is None:
        return "price unknown"
    if isinstance(price, str):
        return "free"
    child = f" (child {price.child_amount})" if price.child_amount is not None else ""
    holds = f" for {price.holds}" if price.holds else ""
    night = " and night" if price.per_night else ""
    return f"{price.amount}{child} {price.currency} per {price.per}{holds}{night}"
