"""When does a returned value count as the expected one? Plain data only, exact types, no method of theirs.

Both sides come out of the codec, so every object here is a builtin and `==` runs no foreign code. `1`, `1.0`
and `True` differ. NaN equals NaN, because a task that expects it means it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

__all__ = ["same"]


def same(expected: Any, got: Any, *, rel_tol: float = 0.0, abs_tol: float = 0.0) -> bool:
    """Whether `got` is `expected`, in value and type, all the way down.

    Floats may differ by `rel_tol` of the larger or by `abs_tol`; inside sets and as dict keys they may not.
    """
    if type(expected) is not type(got):
        return False
    if isinstance(expected, float):
        return _same_float(expected, got, rel_tol, abs_tol)
    if isinstance(expected, complex):
        return _same_float(expected.real, got.real, rel_tol, abs_tol) and _same_float(
            expected.imag, got.imag, rel_tol, abs_tol
        )
    if isinstance(expected, (list, tuple)):
        return len(expected) == len(got) and all(
            same(e, g, rel_tol=rel_tol, abs_tol=abs_tol) for e, g in zip(expected, got, strict=True)
        )
    if isinstance(expected, dict):
        if len(expected) != len(got):
            return False
        wanted = {canonical(key): value for key, value in expected.items()}
        missing = object()
        return all(
            (value := wanted.get(canonical(key), missing)) is not missing
            and same(value, item, rel_tol=rel_tol, abs_tol=abs_tol)
            for key, item in got.items()
        )
    if isinstance(expected, (set, frozenset)):
        return len(expected) == len(got) and {canonical(x) for x in expected} == {canonical(x) for x in got}
    return bool(expected == got)


def _same_float(a: float, b: float, rel_tol: float, abs_tol: float) -> bool:
    if a == b or (math.isnan(a) and math.isnan(b)):
        return True
    return (rel_tol > 0 or abs_tol > 0) and math.isclose(a, b, rel_tol=rel_tol, abs_tol=abs_tol)


def canonical(value: Any) -> Hashable:
    """A stand-in for a hashable plain value, equal only to stand-ins of equal values of equal types."""
    if isinstance(value, tuple):
        return ("tuple", *map(canonical, value))
    if isinstance(value, frozenset):
        return ("frozenset", frozenset(map(canonical, value)))
    if isinstance(value, float) and math.isnan(value):
        return ("float", "nan")
    return (type(value).__name__, value)
