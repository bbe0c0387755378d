"""The verdict, reached outside the sandbox from what came out of it.

Only here do expected values meet returned ones. The candidate's process has ended by then, and all that is
left of it is bytes.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trueup.errors import ConfigError
from trueup.sandbox.base import CallResult, CallVerdict
from trueup.sandbox.compare import same

__all__ = ["Tolerance", "judge_calls"]


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


def judge_calls(
    results: Sequence[CallResult], expected: Sequence[Any], tolerance: Tolerance
) -> tuple[CallVerdict, ...]:
    """One verdict per call."""
    verdicts = []
    for result, wanted in zip(results, expected, strict=True):
        if result.reason is not None:
            verdicts.append(CallVerdict(False, result.reason, result.detail))
        elif same(wanted, result.value, rel_tol=tolerance.rel, abs_tol=tolerance.abs):
            verdicts.append(CallVerdict(True))
        else:
            verdicts.append(CallVerdict(False, "wrong_value", _short(result.value)))
    return tuple(verdicts)


def _short(value: Any) -> str:
    """A few characters of a value, for people, at a cost that does not depend on its size."""
    try:
        return f"got {_REPR.repr(value)[:200]}"
    except ValueError:  # an integer of more digits than Python will print
        return f"got a {type(value).__name__} too long to print"


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80
