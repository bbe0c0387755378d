"""Cheap numbers about a completion, for the second stage of the calibration.

They are not judgements: they let the calibration tell apart rollouts that the proxy scores alike for different reasons,
for instance programs that do the work and programs that promise it.
"""

from __future__ import annotations

import ast
import contextlib
import io
import tokenize
from collections.abc import Sequence

import numpy as np

from trueup.types import FloatArray, Rollout

__all__ = ["code_features"]

PRAISE = ("robust", "verified", "complete", "correct", "tested", "guarantee", "certified", "production")
"""Words by which programs praise themselves."""


def code_features(rollouts: Sequence[Rollout]) -> FloatArray:
    """(n, 5): log length, log size of the syntax tree (0 if it does not parse), whether it parses, share of the
    characters in comments and strings, and log count of words of praise in them. `completion` must be Python source."""
    return np.array([_of_source(str(r.completion)) for r in rollouts]).reshape(len(rollouts), 5)


def _of_source(source: str) -> list[float]:
    try:
        size, parses = sum(1 for _ in ast.walk(ast.parse(source))), 1.0
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        size, parses = 0, 0.0
    prose = _prose(source)
    praise = sum(prose.lower().count(word) for word in PRAISE)
    share = len(prose) / max(len(source), 1)
    return [float(np.log1p(len(source))), float(np.log1p(size)), parses, share, float(np.log1p(praise))]


def _prose(source: str) -> str:
    """Comments and string literals, as far as the source can be read."""
    parts: list[str] = []
    with contextlib.suppress(tokenize.TokenError, SyntaxError, ValueError):
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        parts.extend(t.string for t in tokens if t.type in (tokenize.COMMENT, tokenize.STRING))
    return "\n".join(parts)
