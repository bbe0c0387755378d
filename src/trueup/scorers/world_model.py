"""A language model that predicts what running a program would return, without running it.

It reads task and completion, and is asked for one token: the outcome. Outcomes are shares of tests passed, in
quarters, a token each; the score is their expectation under the model's probabilities, not a sampled number. A sampled
number would carry the sampling's own noise into every advantage, and most of its draws are 0 or 1.

The model shares the policy's backbone, is fine-tuned on rollouts that were executed, calibrated on others (one
temperature), and then frozen: a proxy that moves during the run would make the calibration map stale at every step.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from trueup.errors import ConfigError, MissingExtraError
from trueup.types import FloatArray, Rollout

try:
    import torch
except ImportError as error:
    raise MissingExtraError("The world model", "train", error.name or "torch") from None

__all__ = ["JUDGE", "OUTCOMES", "FitConfig", "WorldModel", "fit_world_model"]

JUDGE = "<judge>"
OUTCOMES = ("<share-0>", "<share-1>", "<share-2>", "<share-3>", "<share-4>")
_VALUES = np.linspace(0.0, 1.0, len(OUTCOMES))


@dataclass(frozen=True, slots=True)
class FitConfig:
    """Fine-tuning on executed rollouts."""

    epochs: int = 6
    batch_size: int = 64
    learning_rate: float = 1e-3


class WorldModel:
    """A frozen model as a proxy scorer: expected gold in [0, 1] for every rollout.

    Args:
        model, tokenizer: a causal model of transformers whose tokenizer knows `JUDGE` and `OUTCOMES`.
        temperature: divides the outcome logits; fitted by `fit_world_model`.
        version: named in the score's epoch; a changed one makes the guard start anew.
        n_draws: 0 for the expectation; otherwise the mean of so many outcomes drawn from it, for comparison.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        temperature: float = 1.0,
        version: str = "world-model",
        n_draws: int = 0,
        batch_size: int = 256,
        seed: int = 0,
    ) -> None:
        known = tokenizer.get_vocab()
        if missing := [token for token in (JUDGE, *OUTCOMES) if token not in known]:
            raise ConfigError(
                f"The world model's tokenizer must know its outcome tokens, got none of {', '.join(missing)}. "
                "No outcome could be read. Make it with fit_world_model from a policy of this project."
            )
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.temperature = temperature
        self.version = version
        self.n_draws = n_draws
        self._batch_size = batch_size
        self._outcomes = [known[token] for token in OUTCOMES]
        self._rng = np.random.default_rng([seed, 13])

    def score(self, rollouts: Sequence[Rollout]) -> list[float | None]:
        """Expected gold per rollout; None for one that is longer than the model can read."""
        rows = [_encode(self.tokenizer, str(r.prompt), str(r.completion)) for r in rollouts]
        limit = self.model.config.max_position_embeddings
        fits = [i for i, row in enumerate(rows) if len(row) <= limit]
        probabilities = _softmax(self.logits([rows[i] for i in fits]) / self.temperature)
        scores: list[float | None] = [None] * len(rows)
        for i, p in zip(fits, probabilities, strict=True):
            values = _VALUES if self.n_draws == 0 else self._rng.choice(_VALUES, self.n_draws, p=p)
            scores[i] = float(p @ _VALUES) if self.n_draws == 0 else float(values.mean())
        return scores

    def logits(self, rows: Sequence[Sequence[int]]) -> FloatArray:
        """(rows, outcomes) logits, untempered. Sorted by length inside, so that little padding is computed."""
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        out = np.empty((len(rows), len(OUTCOMES)))
        for start in range(0, len(order), self._batch_size):
            part = order[start : start + self._batch_size]
            with torch.no_grad():
                found = _outcome_logits(self.model, [rows[i] for i in part], self._outcomes)
            out[part] = found.double().cpu().numpy()
        return out


def _encode(tokenizer: Any, prompt: str, completion: str) -> list[int]:
    # The two are encoded apart, as the policy saw them; a special token's text within them stays mere text.
    options = {"add_special_tokens": False, "split_special_tokens": True}
    head: list[int] = tokenizer(prompt, **options)["input_ids"]
    tail: list[int] = tokenizer(completion, **options)["input_ids"]
    return [*head, *tail, tokenizer.convert_tokens_to_ids(JUDGE)]


def _outcome_logits(model: Any, rows: Sequence[Sequence[int]], outcomes: Sequence[int]) -> Any:
    """(rows, outcomes) logits at each row's last token."""
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.zeros((len(rows), int(lengths.max())), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = 1
    device = next(model.parameters()).device
    # The head is as wide as the vocabulary and is wanted at one token only, so the body is called without it.
    hidden = model.model(input_ids=ids.to(device), attention_mask=mask.to(device)).last_hidden_state
    last = hidden[torch.arange(len(rows), device=device), (lengths - 1).to(device)]
    return model.lm_head(last)[:, outcomes]


def _softmax(logits: FloatArray) -> FloatArray:
    if not logits.size:
        return logits
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    p: FloatArray = e / e.sum(axis=1, keepdims=True)
    return p


def soft_outcomes(scores: FloatArray) -> FloatArray:
    """(n, outcomes) targets: a share between two outcomes is split over them so that its expectation is kept."""
    place = np.clip(scores, 0.0, 1.0) * (len(OUTCOMES) - 1)
    low = np.minimum(place.astype(np.int64), len(OUTCOMES) - 2)
    target = np.zeros((scores.size, len(OUTCOMES)))
    rows = np.arange(scores.size)
    target[rows, low] = 1.0 - (place - low)
    target[rows, low + 1] = place - low
    return target


def fit_world_model(
    model: Any,
    tokenizer: Any,
    rollouts: Sequence[Rollout],
    gold: FloatArray,
    held_out: Sequence[Rollout],
    held_out_gold: FloatArray,
    config: FitConfig | None = None,
    *,
    seed: int = 0,
    version: str = "world-model",
    progress: Callable[[int, int], None] | None = None,
) -> WorldModel:
    """A world model from a copy of `model`; the temperature is fitted on the held-out rollouts.

    gold: (rollouts,) share of tests passed, found by execution.
    """
    config = config or FitConfig()
    network = copy.deepcopy(model).train()
    vocabulary = tokenizer.get_vocab()
    outcomes = [vocabulary[token] for token in OUTCOMES]
    rows = [_encode(tokenizer, str(r.prompt), str(r.completion)) for r in rollouts]
    targets = torch.tensor(soft_outcomes(gold), dtype=torch.float32)
    rng = np.random.default_rng([seed, 17])
    optimiser = torch.optim.AdamW(network.parameters(), lr=config.learning_rate, weight_decay=0.05)
    n_batches = (len(rows) + config.batch_size - 1) // config.batch_size
    total, done = config.epochs * n_batches, 0
    for _ in range(config.epochs):
        order = rng.permutation(len(rows))
        for part in np.array_split(order, n_batches):
            for group in optimiser.param_groups:
                group["lr"] = config.learning_rate * min(1.0, (done + 1) / 20) * (1 - done / total)
            logits = _outcome_logits(network, [rows[i] for i in part], outcomes)
            loss = torch.nn.functional.cross_entropy(logits, targets[part])
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            done += 1
            if progress is not None:
                progress(done, total)
    fitted = WorldModel(network, tokenizer, version=version)
    logits = fitted.logits([_encode(tokenizer, str(r.prompt), str(r.completion)) for r in held_out])
    fitted.temperature = fit_temperature(logits, soft_outcomes(held_out_gold))
    return fitted


def fit_temperature(logits: FloatArray, targets: FloatArray) -> float:
    """The temperature that minimises cross-entropy, within [1/4, 4] (Guo et al. 2017, arXiv 1706.04599)."""

    def loss(log_temperature: float) -> float:
        p = _softmax(logits / np.exp(log_temperature))
        return float(-(targets * np.log(np.maximum(p, 1e-12))).sum(axis=1).mean())

    bound = float(np.log(4.0))
    return float(np.exp(minimize_scalar(loss, bounds=(-bound, bound), method="bounded").x))
