"""The policies that the bundled experiments train: softmax over given completions, exact where it matters.

They are the smallest policies for which every quantity can be computed and not estimated: the expected gold
reward is a dot product, the score function's squared norm is known per rollout (the loop may use it to choose
anchors), and one uniform number per rollout decides what is sampled, so that two arms which share their
uniforms share their luck.

Both are updated by the plain group-relative policy gradient, the mean over scored rollouts of
advantage · ∇ log π. A rollout without an advantage (NaN) takes no part; it is not a zero.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from trueup.types import FloatArray, IntArray

__all__ = ["LinearPolicy", "Policy", "TabularPolicy"]


class Policy(Protocol):
    """What a run needs of a policy. G groups of N rollouts, P prompts, K completions."""

    def probabilities(self) -> FloatArray:
        """(P, K)"""
        ...

    def sample(self, uniforms_GN: FloatArray) -> IntArray:
        """Completion indices, (G, N): the inverse distribution function at each uniform number."""
        ...

    def influence(self, completions_GN: IntArray) -> FloatArray:
        """‖∇ log π‖² of each rollout, (G, N)."""
        ...

    def update(self, completions_GN: IntArray, advantages_GN: FloatArray, learning_rate: float) -> None:
        """One step up the gradient, in place."""
        ...


class TabularPolicy:
    """One prompt, one logit per completion: the policy of the catalogue."""

    def __init__(self, n_completions: int) -> None:
        self._logits_K = np.zeros(n_completions)
        self._p_K = _softmax(self._logits_K)

    def probabilities(self) -> FloatArray:
        return self._p_K[None, :]

    def sample(self, uniforms_GN: FloatArray) -> IntArray:
        index = np.searchsorted(np.cumsum(self._p_K), uniforms_GN, side="right")
        return np.asarray(np.minimum(index, self._p_K.size - 1))

    def influence(self, completions_GN: IntArray) -> FloatArray:
        # ‖e_k − p‖² = 1 − 2 p_k + ‖p‖²
        return np.asarray(1.0 - 2.0 * self._p_K[completions_GN] + self._p_K @ self._p_K)

    def update(self, completions_GN: IntArray, advantages_GN: FloatArray, learning_rate: float) -> None:
        weight, n = _weights(advantages_GN)
        if n == 0:
            return
        pull = np.bincount(completions_GN.ravel(), weight.ravel(), minlength=self._p_K.size)
        self._logits_K += learning_rate * (pull - weight.sum() * self._p_K) / n
        self._p_K = _softmax(self._logits_K)


class LinearPolicy:
    """Logits linear in a completion's features, with weights of its own per family. One group per prompt."""

    def __init__(self, features_PKD: FloatArray, family_P: IntArray) -> None:
        self._x_PKD = features_PKD
        self._family_P = family_P
        n_families = int(family_P.max()) + 1
        self._member_FP = (family_P == np.arange(n_families)[:, None]).astype(np.float64)
        self._theta_FD = np.zeros((n_families, features_PKD.shape[2]))
        self._prompt_P1 = np.arange(features_PKD.shape[0])[:, None]
        self._refresh()

    def _refresh(self) -> None:
        logits_PK = (self._x_PKD @ self._theta_FD[self._family_P][:, :, None])[:, :, 0]
        self._p_PK = _softmax(logits_PK)
        self._mean_PD = (self._p_PK[:, None, :] @ self._x_PKD)[:, 0, :]

    def probabilities(self) -> FloatArray:
        return self._p_PK

    def sample(self, uniforms_GN: FloatArray) -> IntArray:
        below = np.cumsum(self._p_PK, axis=1)[:, None, :] <= uniforms_GN[:, :, None]
        return np.asarray(np.minimum(below.sum(axis=2), self._p_PK.shape[1] - 1))

    def _score_function(self, completions_GN: IntArray) -> FloatArray:
        return np.asarray(self._x_PKD[self._prompt_P1, completions_GN] - self._mean_PD[:, None, :])

    def influence(self, completions_GN: IntArray) -> FloatArray:
        grad_GND = self._score_function(completions_GN)
        return np.asarray(np.einsum("gnd,gnd->gn", grad_GND, grad_GND))

    def update(self, completions_GN: IntArray, advantages_GN: FloatArray, learning_rate: float) -> None:
        weight_GN, n = _weights(advantages_GN)
        if n == 0:
            return
        grad_GND = self._score_function(completions_GN)
        per_prompt_PD = (weight_GN[:, None, :] @ grad_GND)[:, 0, :]
        self._theta_FD += learning_rate * (self._member_FP @ per_prompt_PD) / n
        self._refresh()


def _softmax(logits: FloatArray) -> FloatArray:
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


def _weights(advantages: FloatArray) -> tuple[FloatArray, int]:
    """Advantages with the unscored ones left out of the sum, and how many are left."""
    scored = np.isfinite(advantages)
    return np.where(scored, advantages, 0.0), int(scored.sum())
