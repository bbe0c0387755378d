"""From a chat completion to a score, strictly.

A judge that says "2 of the 5 criteria hold, score 0.4" has not said 2. Nothing is searched for inside a text: the whole
message is one verdict in the agreed form, or the rollout is unscored with the reason why.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from trueup.scorers.judge.config import JudgeConfig
from trueup.types import Score

__all__ = ["expected_grade", "read_reply"]

_FENCE = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n\s*```\s*", re.DOTALL)


def read_reply(config: JudgeConfig, reply: Any, ticket: str) -> Score:
    """The score in [0, 1] that a server's JSON reply carries, or why there is none."""
    try:
        choice = reply["choices"][0]
        message = choice["message"]
        text = message.get("content")
    except (KeyError, IndexError, TypeError, AttributeError):
        return Score.unscored("unparsable_verdict", f"not a chat completion: {str(reply)[:200]}")
    if message.get("refusal") or choice.get("finish_reason") == "content_filter":
        return Score.unscored("abstained", f"refused: {message.get('refusal') or 'content filter'}")
    if not isinstance(text, str) or not text.strip():
        return Score.unscored("unparsable_verdict", "empty reply")
    if config.read == "logprobs":
        return _from_logprobs(config, choice, text)
    if choice.get("finish_reason") == "length":
        return Score.unscored("unparsable_verdict", f"cut off after {config.max_tokens} tokens")
    return _from_json(config, text, ticket)


def _from_json(config: JudgeConfig, text: str, ticket: str) -> Score:
    fenced = _FENCE.fullmatch(text)
    try:
        verdict = json.loads(fenced.group(1) if fenced else text, object_pairs_hook=_once)
    except ValueError as error:
        return Score.unscored("unparsable_verdict", f"not one JSON object ({error}): {text[:200]!r}")
    if not isinstance(verdict, dict) or set(verdict) != {"reason", "grade", "ticket"}:
        return Score.unscored("unparsable_verdict", f"not reason, grade and ticket: {text[:200]!r}")
    if verdict["ticket"] != ticket:
        return Score.unscored(
            "unparsable_verdict", "a verdict with another ticket, as if copied from the answer"
        )
    grade = verdict["grade"]
    low, high = config.scale
    if isinstance(grade, bool) or not isinstance(grade, int) or not low <= grade <= high:
        return Score.unscored(
            "unparsable_verdict", f"grade {grade!r} is not a whole number from {low} to {high}"
        )
    return Score((grade - low) / (high - low))


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def _from_logprobs(config: JudgeConfig, choice: Mapping[str, Any], text: str) -> Score:
    low, high = config.scale
    try:
        candidates = choice["logprobs"]["content"][0]["top_logprobs"]
        pairs = [(str(c["token"]), float(c["logprob"])) for c in candidates]
    except (KeyError, IndexError, TypeError, ValueError):
        return Score.unscored("unparsable_verdict", "the reply has no token probabilities")
    grade, mass = expected_grade(pairs, low, high)
    if mass < config.min_label_mass or grade is None:
        return Score.unscored(
            "unparsable_verdict", f"only {mass:.2f} of the probability lies on a grade; said {text[:40]!r}"
        )
    return Score(min(max((grade - low) / (high - low), 0.0), 1.0))


def expected_grade(pairs: Sequence[tuple[str, float]], low: int, high: int) -> tuple[float | None, float]:
    """(Σ p·g / Σ p over the tokens that are exactly a grade g, that Σ p), from (token, log-probability) pairs.

    The expectation keeps what an argmax throws away: .6 on 7 and .4 on 3 is 5.4 (arXiv 2303.16634, section 2).
    " 7" and "7" are the same grade. None where no token is a grade.
    """
    mass = total = 0.0
    for token, logprob in pairs:
        label = token.strip().lstrip("▁Ġ")
        if (
            len(label) == 1
            and label in "0123456789"
            and low <= int(label) <= high
            and not math.isnan(logprob)
        ):
            p = math.exp(min(logprob, 0.0))
            mass += p
            total += p * int(label)
    return (total / mass if mass > 0 else None), mass
