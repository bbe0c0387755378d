"""Local times to instants and back, with daylight saving time.

Everything below works on whole UTC minutes since 1970. A wall-clock time alone is not an instant: in the
spring gap it never happens (a plan that names it is wrong), in the autumn hour it happens twice (a plan that
names it without an offset cannot be judged, so it is unknown). Durations are differences of instants, which
is why Berlin 2026-03-29 01:30 → 03:30 is one hour and 2026-10-25 01:30 → 03:30 is three.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trueup.errors import DataError

__all__ = ["Instant", "Zone", "merge_windows", "parse_clock", "parse_span", "utc_minute"]

DAY_MIN = 24 * 60
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STAMP = re.compile(
    r"((?:19|20|21)\d{2}-\d{2}-\d{2})T([01]\d|2[0-3]):([0-5]\d)(?::00)?(Z|[+-](?:0\d|1[0-4]):[0-5]\d)?",
    re.ASCII,
)
_CLOCK = re.compile(r"([01]\d|2[0-4]):([0-5]\d)", re.ASCII)
_CACHE_LIMIT = 50_000


@dataclass(frozen=True, slots=True)
class Instant:
    """A parsed time. `utc` is None when `problem` says why: "unreadable", "gap", "ambiguous", "offset"."""

    utc: int | None  # minutes since 1970
    day: int = 0  # local date as a proleptic ordinal
    minute: int = 0  # local minutes after midnight
    problem: str = ""


def utc_minute(moment: datetime) -> int:
    """Minutes since 1970 of an aware datetime."""
    return (moment - _EPOCH) // timedelta(minutes=1)


def parse_clock(text: str) -> int:
    """Minutes after midnight of "HH:MM", up to "24:00"."""
    match = _CLOCK.fullmatch(text)
    minutes = int(match[1]) * 60 + int(match[2]) if match else DAY_MIN + 1
    if minutes > DAY_MIN:
        raise DataError(f"A clock time must be HH:MM up to 24:00, got {text!r}. Write 09:30.")
    return minutes


def parse_span(text: str) -> tuple[int, int]:
    """Start and end of "HH:MM-HH:MM" in minutes after midnight; an end not after the start lies on the
    next day, so "22:00-02:00" is (1320, 1560)."""
    left, dash, right = text.partition("-")
    if not dash:
        raise DataError(f"A span must be HH:MM-HH:MM, got {text!r}. Write 09:30-17:00.")
    start, end = parse_clock(left), parse_clock(right)
    return start, end if end > start else end + DAY_MIN


def merge_windows(windows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted union of half-open intervals; touching ones become one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(w for w in windows if w[1] > w[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


@dataclass(frozen=True, slots=True)
class Zone:
    """One IANA zone with memory: rollouts of one task repeat the same few hundred times."""

    name: str
    info: ZoneInfo
    cache: dict[str, Instant] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def load(cls, name: str) -> Zone:
        try:
            return cls(name, ZoneInfo(name))
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise DataError(
                f"A zone must be an IANA name that this machine knows, got {name!r}. No time in it can be "
                "placed. Write Europe/Berlin, or install the package tzdata."
            ) from None

    def from_local(self, day: date, minute: int) -> int:
        """UTC minute of a wall-clock time that may be 24:00 or later (counted from `day`). In the gap the
        clock's own jump is taken, in the doubled hour the first pass: fit for opening hours, which are
        posted as wall-clock times, and not for a plan's claims."""
        moment = datetime(day.year, day.month, day.day) + timedelta(minutes=minute)
        return utc_minute(moment.replace(tzinfo=self.info))

    def parse(self, text: str) -> Instant:
        """Read "2026-03-29T10:00", with an optional offset or Z; only whole minutes exist."""
        found = self.cache.get(text)
        if found is None:
            found = self._parse(text)
            if len(self.cache) >= _CACHE_LIMIT:
                self.cache.clear()
            self.cache[text] = found
        return found

    def _parse(self, text: str) -> Instant:
        match = _STAMP.fullmatch(text)
        if match is None:
            return Instant(None, problem="unreadable")
        try:
            parsed = datetime.fromisoformat(text)
        except ValueError:
            return Instant(None, problem="unreadable")
        if parsed.tzinfo is not None:
            return self._from_offset(parsed, is_utc=match[4] == "Z")
        local = parsed.replace(tzinfo=self.info)
        first = local.utcoffset()
        second = local.replace(fold=1).utcoffset()
        if first != second:
            # Both the gap and the doubled hour have two offsets; only in the gap does no instant map back.
            exists = local.astimezone(UTC).astimezone(self.info).replace(tzinfo=None) == parsed
            return Instant(None, parsed.toordinal(), problem="ambiguous" if exists else "gap")
        return Instant(utc_minute(local), parsed.toordinal(), parsed.hour * 60 + parsed.minute)

    def _from_offset(self, moment: datetime, is_utc: bool) -> Instant:
        """An explicit offset must be one that the zone really has then; Z is always an instant."""
        local = moment.astimezone(self.info)
        if not is_utc and local.utcoffset() != moment.utcoffset():
            return Instant(None, moment.toordinal(), problem="offset")
        return Instant(utc_minute(moment), local.toordinal(), local.hour * 60 + local.minute)
