"""The anchored loop: choose anchors, score, calibrate, correct, learn."""

from trueup.loop.anchored import AnchoredReward
from trueup.loop.config import AnchorConfig, CalibrationConfig

__all__ = ["AnchorConfig", "AnchoredReward", "CalibrationConfig"]
