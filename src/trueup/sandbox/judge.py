"""The verdict, reached outside the sandbox from what came out of it.

Only here do expected values meet returned ones. The candidate's process has ended by then, and all that is
left of it is bytes. These functions run in a process of their own (`judging`), because even comparing bytes
of a hostile candidate's choice may take long: a killed judge is replaced, a hung caller is not.

A request is plain data; the answer is one `[passed, reason, detail]` per test.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trueup.errors import ConfigError
from trueup.sandbox.asserts import record_asserts, replay_asserts
from trueup.sandbox.base import CallResult
from trueup.sandbox.compare import same
from trueup.sandbox.scripts import judge_files, judge_script
from trueup.sandbox.wire import read_calls_of

__all__ = ["JUDGES", "Tolerance"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far a float may be off: `rel` as a fraction of the larger value, `abs` in the value's own unit."""

    rel: float = 0.0
    abs: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.rel < 1 and 0 <= self.abs < float("inf")):
            raise ConfigError(
                f"Tolerance must have rel in [0, 1) and abs >= 0, got rel={self.rel}, abs={self.abs}. "
                "Any answer, or none, would pass. Use for example rel=1e-6."
            )


def judge_calls(request: Mapping[str, Any]) -> list[list[Any]]:
    """Returned against expected values, with exact types: `records`, `ended`, `expected`, `rel`, `abs`."""
    expected: Sequence[Any] = request["expected"]
    results = read_calls_of(request["records"], request["ended"], len(expected))
    return [
        _verdict(result, wanted, request["rel"], request["abs"])
        for result, wanted in zip(results, expected, strict=True)
    ]


def _verdict(result: CallResult, wanted: Any, rel: float, abs_: float) -> list[Any]:
    if result.reason is not None:
        return [False, result.reason, result.detail]
    if same(wanted, result.value, rel_tol=rel, abs_tol=abs_):
        return [True, None, ""]
    return [False, "wrong_value", _short(result.value)]


def _short(value: Any) -> str:
    """A few characters of a value, for people, at a cost that does not depend on its size."""
    try:
        return f"got {_REPR.repr(value)[:200]}"
    except ValueError:  # an integer of more digits than Python will print
        return f"got a {type(value).__name__} too long to print"


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80

JUDGES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "calls": judge_calls,
    "script": judge_script,
    "files": judge_files,
    "record_asserts": record_asserts,
    "replay_asserts": replay_asserts,
}
