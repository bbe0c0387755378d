"""A reward model as a proxy scorer: a linear head over text features, with a calibrated output.

The head is small on purpose. It trains in a second on a CPU, so it can be refreshed while a policy trains, and
its mistakes can be read off its weights. `version` changes with every refresh; a guard takes a new version for
a new proxy and asks for fresh evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from trueup.scorers.features import Features
from trueup.stats.monotone import MonotoneMap
from trueup.types import Rollout, Score

__all__ = ["RewardModel", "rollout_text"]

FloatArray: TypeAlias = NDArray[np.float64]


def rollout_text(rollout: Rollout) -> str:
    """What the model reads of a rollout: its completion."""
    return rollout.completion if isinstance(rollout.completion, str) else str(rollout.completion)


@dataclass(frozen=True)
class RewardModel:
    """score = map(features(text) · weights + bias), in gold's unit once a map is fitted (raw before)."""

    features: Features
    weights: FloatArray = field(repr=False)
    bias: float
    calibration: MonotoneMap | None = None
    round: int = 0  # how many refreshes went before

    @property
    def version(self) -> str:
        return f"{self.features.name}/r{self.round}"

    def raw(self, texts: Sequence[str]) -> FloatArray:
        """Uncalibrated scores of n texts, shape (n,)."""
        out: FloatArray = self.features(texts) @ self.weights + self.bias
        return out

    def predict(self, texts: Sequence[str]) -> FloatArray:
        """Calibrated scores of n texts, shape (n,)."""
        raw = self.raw(texts)
        return raw if self.calibration is None else self.calibration.apply(raw)

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """The scorer's interface."""
        return [Score(float(s)) for s in self.predict([rollout_text(r) for r in rollouts])]
