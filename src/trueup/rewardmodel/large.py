"""Reward models that are language models: TRL's RewardTrainer on pairs, and the result as a scorer.

Needs the extra `rm-large` (torch, transformers, trl, datasets). The same pairs that train the small head train
these, and the same refresh can gate them: what a `Refresher` asks of a model is `predict` and `raw`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConfigError, MissingExtraError
from trueup.rewardmodel.fit import Labelled, pairs_within
from trueup.scorers.reward_model import rollout_text
from trueup.types import Rollout, Score

__all__ = ["LanguageModelReward", "train_with_trl"]

FloatArray: TypeAlias = NDArray[np.float64]


class LanguageModelReward:
    """A sequence-classification model with one output as a proxy scorer. `model` and `tokenizer` are
    transformers objects; the tokenizer needs a padding token. Texts past `max_length` tokens are cut."""

    def __init__(
        self, model: Any, tokenizer: Any, version: str, max_length: int = 512, batch_size: int = 16
    ) -> None:
        if model.config.num_labels != 1 or tokenizer.pad_token_id is None:
            raise ConfigError(
                f"A reward model must have one output and a padding token, got {model.config.num_labels} and "
                f"{tokenizer.pad_token_id}. Load it with num_labels=1 and set tokenizer.pad_token."
            )
        self.version = version
        self._model, self._tokenizer = model.eval(), tokenizer
        self._max_length, self._batch_size = max_length, batch_size

    def raw(self, texts: Sequence[str]) -> FloatArray:
        """Scores of n texts, shape (n,)."""
        import torch

        out: list[float] = []
        for i in range(0, len(texts), self._batch_size):
            batch = self._tokenizer(
                list(texts[i : i + self._batch_size]),
                padding=True,
                truncation=True,
                max_length=self._max_length,
                return_tensors="pt",
            ).to(self._model.device)
            with torch.no_grad():
                out += self._model(**batch).logits[:, 0].float().cpu().tolist()
        return np.array(out, np.float64)

    predict = raw

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """The scorer's interface; a score that is not finite is unscored."""
        scores = self.raw([rollout_text(r) for r in rollouts])
        return [Score(s) if np.isfinite(s) else Score.unscored("non_finite") for s in scores.tolist()]


def train_with_trl(
    model: Any,
    tokenizer: Any,
    data: Labelled,
    out: str | Path,
    *,
    version: str,
    max_length: int = 512,
    max_pairs_per_question: int = 200,
    seed: int = 0,
    **settings: Any,
) -> LanguageModelReward:
    """Train `model` (one output) on the pairs within questions of `data`; Bradley–Terry loss, by TRL.

    `settings` go to `trl.RewardConfig` (learning_rate, num_train_epochs, per_device_train_batch_size, …).
    Nothing is reported anywhere and no checkpoint is kept unless they say so.
    """
    try:
        import trl
        from datasets import Dataset
    except ImportError as error:
        raise MissingExtraError("Training a large reward model", "rm-large", str(error.name)) from None
    better, worse = pairs_within(data, max_pairs_per_question, seed)
    if not better.size:
        raise ConfigError("Training needs two answers to one question with different gold, got none.")
    library: Any = trl
    pairs = Dataset.from_dict(
        {"chosen": [data.texts[i] for i in better], "rejected": [data.texts[i] for i in worse]}
    )
    defaults: dict[str, Any] = {
        "report_to": [],
        "save_strategy": "no",
        "logging_strategy": "no",
        "gradient_checkpointing": False,
        "disable_tqdm": True,
    }
    config = library.RewardConfig(
        output_dir=str(out), max_length=max_length, seed=seed, **{**defaults, **settings}
    )
    library.RewardTrainer(model=model, args=config, processing_class=tokenizer, train_dataset=pairs).train()
    return LanguageModelReward(model, tokenizer, version, max_length)
