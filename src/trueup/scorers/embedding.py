"""Learned features of a completion, for the second stage of the calibration: what the world model made of it.

A completion's hidden state at the judge's token holds what the model noticed, also where the score does not show it.
The state is far wider than a run has anchors, so it is reduced by a fixed random projection, which keeps distances
about as they are (Johnson and Lindenstrauss) and, unlike a fitted one, has seen no gold.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trueup.scorers.world_model import WorldModel
from trueup.types import FloatArray, Rollout

__all__ = ["WorldModelFeatures"]


class WorldModelFeatures:
    """`AnchoredReward(features=WorldModelFeatures(world))`: (n, dim) numbers per rollout.

    dim: columns after the projection. seed: of the projection.
    """

    def __init__(self, world: WorldModel, dim: int = 8, seed: int = 0) -> None:
        self._world = world
        width = int(world.model.config.hidden_size)
        self._projection = np.random.default_rng([seed, 29]).normal(size=(width, dim)) / np.sqrt(width)

    def __call__(self, rollouts: Sequence[Rollout]) -> FloatArray:
        projected: FloatArray = self._world.states(rollouts) @ self._projection
        return projected
