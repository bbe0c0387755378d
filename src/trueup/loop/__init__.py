"""The anchored loop: choose anchors, score, calibrate, correct, learn."""

from trueup.loop.anchored import AnchoredReward
from trueup.loop.config import AnchorConfig, CalibrationConfig
from trueup.loop.guard import GuardConfig

__all__ = ["AnchorConfig", "AnchoredReward", "CalibrationConfig", "GuardConfig"]
