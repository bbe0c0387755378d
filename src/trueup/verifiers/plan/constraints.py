"""The constraints that a task file may declare, and how its lines are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from trueup.errors import DataError
from trueup.verifiers.plan.constraint import Constraint
from trueup.verifiers.plan.obligations import Count, Meals, MinStay, MustVisit, Nights
from trueup.verifiers.plan.prohibitions import (
    Budget,
    Claim,
    ClosedLoop,
    Connections,
    DayWindow,
    ModesBanned,
    MustAvoid,
    NoRepeat,
    Precedence,
    TimeWindow,
)

__all__ = ["DECLARED", "parse_constraints"]

DECLARED: tuple[type[Constraint], ...] = (
    MustVisit, Nights, Meals, MinStay, Count, Budget, Connections, TimeWindow, Precedence, MustAvoid,
    NoRepeat, ModesBanned, ClosedLoop, DayWindow, Claim,
)  # fmt: skip


def parse_constraints(
    raw: Sequence[dict[str, Any]], extra: Sequence[type[Constraint]] = (), source: str = "task"
) -> list[Constraint]:
    """Read the constraint lines of a task. An unknown check or key raises `DataError`: a constraint that is
    skipped is one that the policy is paid for breaking."""
    known: dict[str, type[Constraint]] = {}
    for cls in (*DECLARED, *extra):
        (check,) = cls.model_fields["check"].annotation.__args__  # type: ignore[union-attr]
        known[check] = cls
    out = []
    for index, line in enumerate(raw):
        found = known.get(str(line.get("check")))
        if found is None:
            raise DataError(
                f"{source}, constraint {index}: check must be one of {', '.join(sorted(known))}, "
                f"got {line.get('check')!r}. It would never be enforced. Mend it, or pass your own class."
            )
        try:
            out.append(TypeAdapter(found).validate_python(line, strict=False))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(p) for p in first["loc"])
            raise DataError(
                f"{source}, constraint {index} ({line['check']}): {first['msg']} at {where!r}. "
                "It would not mean what was written. Mend the line."
            ) from None
    return out
