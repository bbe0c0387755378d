"""Rewards from hard verdicts and soft scores: `gate` holds, `weighted_sum` is there to be compared with."""

from trueup.rewards.gate import (
    SoftMap,
    fit_soft_map,
    gate,
    largest_partial_credit,
    soft_advantages,
    weighted_sum,
)

__all__ = ["SoftMap", "fit_soft_map", "gate", "largest_partial_credit", "soft_advantages", "weighted_sum"]
