"""A task with context: 64 prompts of four families, 20 completions each, and a proxy that is wrong in places.

The catalogue is one prompt asked again and again. That flatters whole-group anchors, because every group is
like every other. Here prompts differ, families differ, and the policy (a softmax over eight features of a
completion, with weights of its own per family) has to generalise from a few anchors to prompts it has
no gold for.

Two proxies. The *benign* one is gold through an S-shaped distortion, with an error that belongs to the
completion and noise that belongs to the reading: miscalibrated, but in about the right order everywhere. The
*exploit* one differs twice: in the last family it ranks in reverse, and in every second prompt of a family one
completion carries a trick that it loves and that is worth almost nothing. The ninth feature tells the policy which
completion carries the trick, so that it can learn to use it, and to avoid it.

The task is drawn once from a fixed seed: it is a data set, not a source of chance. Left out on purpose: long
episodes, a policy that can invent completions, gold that is itself noisy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from trueup.types import BoolArray, FloatArray, IntArray

__all__ = ["FAMILIES", "REVERSED_FAMILY", "ContextualTask", "make_contextual_task", "read_proxy"]

FAMILIES = ("parsing", "formatting", "arithmetic", "search")
REVERSED_FAMILY = 3  # index into FAMILIES; only the exploit proxy reverses it

_TASK_SEED = 20_240
_EMBEDDING = 8
_GOLD_SLOPE = 1.5  # steepness of gold in its linear predictor
_GOLD_SCATTER = 0.8  # part of gold that no feature explains, in units of the predictor
_PROXY_SLOPE = 5.0  # steepness of the proxy's distortion
_PROXY_ERROR = 0.6  # standing error of the proxy per completion, in logits
_PROXY_NOISE = 0.06  # noise of one reading
_TRICK_GOLD = 0.05
_TRICK_PROXY = 0.9


@dataclass(frozen=True, slots=True)
class ContextualTask:
    """Arrays over prompts P and completions K; `features` has a last axis of size 9, the last one the trick."""

    family: IntArray  # (P,) index into FAMILIES
    features: FloatArray  # (P, K, 9)
    gold: FloatArray  # (P, K) in [0, 1]
    benign: FloatArray  # (P, K) the benign proxy before noise
    exploit: FloatArray  # (P, K) the exploit proxy before noise
    trick: BoolArray  # (P, K)

    @property
    def n_prompts(self) -> int:
        return int(self.gold.shape[0])

    @property
    def n_completions(self) -> int:
        return int(self.gold.shape[1])


def make_contextual_task(
    n_prompts: int = 64, n_completions: int = 20, seed: int = _TASK_SEED
) -> ContextualTask:
    """The task, the same on every machine for one `seed`."""
    rng = np.random.default_rng(seed)
    family = np.arange(n_prompts) % len(FAMILIES)
    embedding = rng.standard_normal((n_prompts, n_completions, _EMBEDDING))
    shared = rng.standard_normal(_EMBEDDING)
    taste = shared + rng.standard_normal((len(FAMILIES), _EMBEDDING))
    taste /= np.linalg.norm(taste, axis=1, keepdims=True)
    predictor = np.einsum("pkd,pd->pk", embedding, taste[family])
    predictor += _GOLD_SCATTER * rng.standard_normal(predictor.shape)
    prompt = np.arange(n_prompts)
    trick = (np.arange(n_completions) == 0) & (prompt // len(FAMILIES) % 2 == 0)[:, None]
    gold = np.where(trick, _TRICK_GOLD, expit(_GOLD_SLOPE * predictor))
    error = _PROXY_ERROR * rng.standard_normal(gold.shape)
    benign = expit(_PROXY_SLOPE * (gold - 0.5) + error)
    exploit = np.where((family == REVERSED_FAMILY)[:, None], 1.0 - benign, benign)
    exploit = np.where(trick, _TRICK_PROXY, exploit)
    features = np.concatenate([embedding / np.sqrt(_EMBEDDING), trick[..., None]], axis=2)
    return ContextualTask(family, features, gold, benign, exploit, trick)


def read_proxy(mean: FloatArray, normals: FloatArray) -> FloatArray:
    """One noisy reading per rollout, clipped to [0, 1]; both arguments have one shape."""
    return np.clip(mean + _PROXY_NOISE * normals, 0.0, 1.0)
