"""A language model that predicts what running a program would return, without running it.

It reads task and completion, and is asked for one token: the outcome. Outcomes are shares of tests passed, in
quarters, a token each; the score is their expectation under the model's probabilities, not a sampled number. A sampled
number would carry the sampling's own noise into every advantage, and most of its draws are 0 or 1.

The model shares the policy's backbone, is fine-tuned on rollouts that were executed, calibrated on others, and then
frozen: a proxy that moves during the run would make the calibration map stale at every step.

The calibration is linear in the outcome logits and, where a `reference` is given, in how surprising it finds the
completion. The reference is the model that the rollouts were sampled from: it was trained on programs most of which
were right, so it is surprised where one goes wrong. A fine-tuned network this small cannot keep that knowledge: what a
layer expects of the next token is known in its last layer only, where nothing can compare it with that token any more.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize, minimize_scalar

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
        head: (features, outcomes) calibration, fitted by `fit_world_model`; None takes the logits as they are.
        reference: a frozen causal model with the same tokenizer, for the features of surprise.
        version: named in the score's epoch; a changed one makes the guard start anew.
        n_draws: 0 for the expectation; otherwise the mean of so many outcomes drawn from it, for comparison.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        head: FloatArray | None = None,
        reference: Any = None,
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
        self.reference = None if reference is None else reference.eval().requires_grad_(False)
        self.head = start_head(self.n_features) if head is None else head
        self.version = version
        self.n_draws = n_draws
        self._batch_size = batch_size
        self._outcomes = [known[token] for token in OUTCOMES]
        self._rng = np.random.default_rng([seed, 13])

    def score(self, rollouts: Sequence[Rollout]) -> list[float | None]:
        """Expected gold per rollout; None for one that is longer than the model can read."""
        rows = [_encode(self.tokenizer, str(r.prompt), str(r.completion)) for r in rollouts]
        limit = self.model.config.max_position_embeddings
        fits = [i for i, (row, _) in enumerate(rows) if len(row) <= limit]
        probabilities = _softmax(self.features([rows[i] for i in fits]) @ self.head)
        scores: list[float | None] = [None] * len(rows)
        for i, p in zip(fits, probabilities, strict=True):
            values = _VALUES if self.n_draws == 0 else self._rng.choice(_VALUES, self.n_draws, p=p)
            scores[i] = float(p @ _VALUES) if self.n_draws == 0 else float(values.mean())
        return scores

    def states(self, rollouts: Sequence[Rollout]) -> FloatArray:
        """(n, hidden) last hidden state at the judge's token: an embedding of the completion as seen in its task.

        Raises:
            ConfigError: a rollout is longer than the model can read. Features have to be there for all or none.
        """
        rows = [_encode(self.tokenizer, str(r.prompt), str(r.completion))[0] for r in rollouts]
        limit = self.model.config.max_position_embeddings
        if any(len(row) > limit for row in rows):
            raise ConfigError(
                f"Rollouts must be of at most {limit} tokens with their prompt, got {max(map(len, rows))}. Nothing was "
                "embedded. Shorten completions (max_completion_length)."
            )
        parts = [np.zeros((0, int(self.model.config.hidden_size)))]
        for start in range(0, len(rows), self._batch_size):
            with torch.no_grad():
                found = _last_states(self.model, rows[start : start + self._batch_size])
            parts.append(found.double().cpu().numpy())
        return np.concatenate(parts)

    @property
    def n_features(self) -> int:
        return len(OUTCOMES) + 1 + (0 if self.reference is None else N_SURPRISE)

    def features(self, rows: Sequence[tuple[Sequence[int], int]]) -> FloatArray:
        """(rows, features): outcome logits, surprise, and a constant. Rows are (token ids, length of the prompt)."""
        order = sorted(range(len(rows)), key=lambda i: len(rows[i][0]))  # little padding is computed so
        out = np.ones((len(rows), self.n_features))
        for start in range(0, len(order), self._batch_size):
            part = order[start : start + self._batch_size]
            batch = [rows[i] for i in part]
            with torch.no_grad():
                logits = _outcome_logits(self.model, [ids for ids, _ in batch], self._outcomes)
                out[part, : len(OUTCOMES)] = logits.double().cpu().numpy()
                if self.reference is not None:
                    out[part, len(OUTCOMES) : -1] = _surprise(self.reference, batch).double().cpu().numpy()
        return out


def _encode(tokenizer: Any, prompt: str, completion: str) -> tuple[list[int], int]:
    # The two are encoded apart, as the policy saw them; a special token's text within them stays mere text.
    options = {"add_special_tokens": False, "split_special_tokens": True}
    head: list[int] = tokenizer(prompt, **options)["input_ids"]
    tail: list[int] = tokenizer(completion, **options)["input_ids"]
    return [*head, *tail, tokenizer.convert_tokens_to_ids(JUDGE)], len(head)


def _outcome_logits(model: Any, rows: Sequence[Sequence[int]], outcomes: Sequence[int]) -> Any:
    """(rows, outcomes) logits at each row's last token."""
    return model.lm_head(_last_states(model, rows))[:, outcomes]


def _last_states(model: Any, rows: Sequence[Sequence[int]]) -> Any:
    """(rows, hidden) at each row's last token. The head is as wide as the vocabulary and is wanted at that token
    only, so the body is called without it."""
    ids, mask, lengths = _padded(rows)
    device = next(model.parameters()).device
    hidden = model.model(input_ids=ids.to(device), attention_mask=mask.to(device)).last_hidden_state
    return hidden[torch.arange(len(rows), device=device), (lengths - 1).to(device)]


def _padded(rows: Sequence[Sequence[int]]) -> tuple[Any, Any, Any]:
    """Token ids, mask and lengths of rows, padded on the right."""
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.zeros((len(rows), int(lengths.max())), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = 1
    return ids, mask, lengths


N_SURPRISE = 3


def _surprise(model: Any, rows: Sequence[tuple[Sequence[int], int]]) -> Any:
    """(rows, 3): log-probability of the completion's tokens: mean, least, and a tenth of the sum. In nats."""
    ids, mask, _ = _padded([row[:-1] for row, _ in rows])  # without the judge's token
    device = next(model.parameters()).device
    logits = model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits[:, :-1]
    found = torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None].to(device))[..., 0]
    heads = torch.tensor([head for _, head in rows])[:, None]
    place = torch.arange(1, ids.shape[1])[None, :]
    own = ((place >= heads) & (mask[:, 1:] == 1)).to(device)
    found = torch.where(own, found, torch.zeros_like(found)).clamp(min=-20.0)
    total = found.sum(1)
    return torch.stack([total / own.sum(1).clamp(min=1), found.min(1).values, total / 10], dim=1)


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
    """A world model from a copy of `model`, which is also its reference; calibrated on the held-out rollouts.

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
            logits = _outcome_logits(network, [rows[i][0] for i in part], outcomes)
            loss = torch.nn.functional.cross_entropy(logits, targets[part])
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            done += 1
            if progress is not None:
                progress(done, total)
    fitted = WorldModel(network, tokenizer, reference=copy.deepcopy(model), version=version)
    calibrate(fitted, held_out, held_out_gold)
    return fitted


def calibrate(world: WorldModel, rollouts: Sequence[Rollout], gold: FloatArray) -> None:
    """Fit the head on rollouts that the network was not trained on."""
    rows = [_encode(world.tokenizer, str(r.prompt), str(r.completion)) for r in rollouts]
    world.head = fit_head(world.features(rows), soft_outcomes(gold))


def start_head(n_features: int) -> FloatArray:
    """The head that leaves the outcome logits as they are."""
    return np.eye(n_features, len(OUTCOMES))


def fit_head(features: FloatArray, targets: FloatArray, penalty: float = 1e-2) -> FloatArray:
    """(features, outcomes) weights of a multinomial logistic regression, drawn toward a multiple of `start_head`.

    penalty: on squared distance from it, per row. That multiple (one over a temperature, Guo et al. 2017, arXiv
    1706.04599) is fitted first and alone, so that with little data temperature scaling is what is left.
    """
    start = start_head(features.shape[1])

    def loss(weights: FloatArray, around: FloatArray) -> tuple[float, FloatArray]:
        head = weights.reshape(start.shape)
        p = _softmax(features @ head)
        value = -(targets * np.log(np.maximum(p, 1e-12))).sum(axis=1).mean()
        gradient = features.T @ (p - targets) / len(targets) + 2 * penalty * (head - around)
        return float(value + penalty * ((head - around) ** 2).sum()), gradient.reshape(-1)

    scale = minimize_scalar(lambda k: loss(k * start, k * start)[0], bounds=(0.05, 4.0), method="bounded").x
    around = float(scale) * start
    found = minimize(loss, around.reshape(-1), args=(around,), jac=True, method="L-BFGS-B")
    head: FloatArray = found.x.reshape(start.shape)
    return head
