"""Hard constraints of a step: what the verifiers say comes before any score.

A rollout that fails a hard constraint has the lowest gold reward, known exactly and without asking gold, whatever a
scorer thinks of it: no soft score can buy it back. One whose constraints could not be decided is unscored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from trueup.errors import ConfigError, ProgrammerError, ScorerContractError
from trueup.types import BoolArray, Rollout, Verdict, VerifierResult

__all__ = ["VerifierLike", "check_constraints"]

logger = logging.getLogger("trueup.verifiers")

VerifierLike: TypeAlias = Callable[[Sequence[Rollout]], Sequence[Any]]
"""A function of rollouts that answers one `Verdict`, its name, or a `VerifierResult` for each; or an object with
such a `verify` method."""


def check_constraints(
    verifiers: Sequence[VerifierLike], rollouts: Sequence[Rollout]
) -> tuple[BoolArray, BoolArray]:
    """(failed, undecided) per rollout over all hard verifiers. Undecided wins: an unknown is never a zero."""
    n = len(rollouts)
    failed, undecided = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    for verifier in verifiers:
        verdicts = _ask(verifier, rollouts)
        failed |= np.array([v == Verdict.FAIL for v in verdicts], np.bool_)
        undecided |= np.array([v in (Verdict.UNKNOWN, Verdict.ERROR) for v in verdicts], np.bool_)
    return failed & ~undecided, undecided


def _ask(verifier: VerifierLike, rollouts: Sequence[Rollout]) -> list[Verdict]:
    function = getattr(verifier, "verify", verifier)
    name = getattr(verifier, "__name__", type(verifier).__name__)
    if not callable(function):
        raise ConfigError(
            f"A verifier must be a function of rollouts or have a verify method, got {name}. "
            "Nothing was checked. Pass the function itself."
        )
    try:
        answers = function(rollouts)
    except ProgrammerError:
        raise
    except Exception:
        logger.exception("verifier %s failed; its %d rollouts are undecided", name, len(rollouts))
        return [Verdict.ERROR] * len(rollouts)
    if len(answers) != len(rollouts):
        raise ScorerContractError(
            f"Verifier {name} must return one verdict per rollout ({len(rollouts)}), got {len(answers)}. "
            "No rollout could be paired with its verdict. Return 'not_applicable' where it has no say."
        )
    return [_verdict(answer, name) for answer in answers]


def _verdict(answer: Any, name: str) -> Verdict:
    if isinstance(answer, VerifierResult):
        return answer.verdict if answer.hard else Verdict.NOT_APPLICABLE
    try:
        return Verdict(answer)
    except ValueError:
        raise ScorerContractError(
            f"Verifier {name} must answer one of {', '.join(Verdict)}, got {answer!r}. "
            "A bare bool cannot say 'could not tell'. Return a Verdict."
        ) from None
