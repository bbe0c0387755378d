"""trueup: train on a cheap reward, keep it honest with a little gold, know when it lies."""

from trueup import errors
from trueup.loop import AnchorConfig, AnchoredReward, CalibrationConfig, GuardConfig
from trueup.types import Group, Rollout, Score, StepRecord, StepResult, Verdict, VerifierResult

__version__ = "0.1.0"

__all__ = [
    "AnchorConfig",
    "AnchoredReward",
    "CalibrationConfig",
    "Group",
    "GuardConfig",
    "Rollout",
    "Score",
    "StepRecord",
    "StepResult",
    "Verdict",
    "VerifierResult",
    "__version__",
    "errors",
]
