"""Verifying plans: see docs/plans.md for the task format, the plan format and every check."""

from trueup.verifiers.plan.constraint import Constraint, Where, smallest
from trueup.verifiers.plan.model import Plan, TripTask
from trueup.verifiers.plan.verifier import PlanVerifier, RolloutVerifier, load_task

__all__ = [
    "Constraint",
    "Plan",
    "PlanVerifier",
    "RolloutVerifier",
    "TripTask",
    "Where",
    "load_task",
    "smallest",
]
