"""Scorers: whatever gives a rollout a number that may be wrong."""

from trueup.scorers.base import Scorer, ScorerLike, ScoringCall

__all__ = ["Scorer", "ScorerLike", "ScoringCall"]
