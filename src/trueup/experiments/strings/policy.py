"""The policy: a byte-pair tokenizer and a causal transformer of about a million parameters, made from nothing.

Both are trained on the spot on the corpus of `tasks/strings`, so nothing is downloaded. A model of the hub takes their
place by name (`load_policy`); it then needs no warm start, or one on the same corpus.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trueup.errors import ConfigError, MissingExtraError

try:
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import (
        AutoModelForCausalLM,
        AutoTokenizer,
        PreTrainedTokenizerFast,
        Qwen2Config,
        Qwen2ForCausalLM,
    )
    from transformers.utils import logging as transformers_logging
except ImportError as error:
    raise MissingExtraError("The strings experiment", "train", error.name or "torch") from None

from trueup.scorers.world_model import JUDGE, OUTCOMES

__all__ = [
    "ModelConfig",
    "Policy",
    "WarmStartConfig",
    "load_policy",
    "new_policy",
    "sample",
    "use_threads",
    "warm_start",
]

Progress = Callable[[int, int], None]

transformers_logging.set_verbosity_error()
transformers_logging.disable_progress_bar()


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Size of a policy made from nothing."""

    vocabulary: int = 512
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    feed_forward: int = 384
    context: int = 192
    """Longest prompt and completion together, in tokens."""


@dataclass(frozen=True, slots=True)
class WarmStartConfig:
    """Supervised training on the corpus, before any reward."""

    examples: int = 12_000
    steps: int = 300
    batch_size: int = 64
    learning_rate: float = 2e-3


@dataclass(frozen=True)
class Policy:
    """A causal model and its tokenizer."""

    model: Any
    tokenizer: Any

    def save(self, folder: Path) -> None:
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def use_threads(n: int) -> None:
    """Threads of torch within one operation."""
    torch.set_num_threads(n)


def new_tokenizer(texts: Sequence[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Byte-pair encoding over words and digits; a line end and a digit are always tokens of their own."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d|\n| ?[^\s\d]+| "), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    raw.decoder = decoders.ByteLevel()
    special = ["<pad>", "<eos>", JUDGE, *OUTCOMES]
    raw.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=special,
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="<pad>",
        eos_token="<eos>",
        additional_special_tokens=[JUDGE, *OUTCOMES],
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def new_policy(texts: Sequence[str], config: ModelConfig, seed: int) -> Policy:
    """An untrained model with a tokenizer trained on `texts`."""
    tokenizer = new_tokenizer(texts, config.vocabulary)
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=config.hidden,
            intermediate_size=config.feed_forward,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.heads,
            max_position_embeddings=config.context,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=tokenizer.eos_token_id,
        )
    )
    return Policy(model, tokenizer)


def load_policy(name: str) -> Policy:
    """A model of the hub by its id, or a folder that `Policy.save` wrote.

    Raises:
        ConfigError: it cannot be loaded, for instance because there is no network.
    """
    try:
        reader = PreTrainedTokenizerFast if _is_ours(Path(name)) else AutoTokenizer
        tokenizer = reader.from_pretrained(name, padding_side="left")
        model = AutoModelForCausalLM.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"The policy must be the id of a model on the hub or a folder with one, got {name!r} "
            f"({str(error).splitlines()[0]}). Nothing could be trained. Check the name and the network."
        ) from None
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    missing = [t for t in (JUDGE, *OUTCOMES) if t not in tokenizer.get_vocab()]
    if missing:
        tokenizer.add_special_tokens({"additional_special_tokens": missing})
        model.resize_token_embeddings(len(tokenizer))
    return Policy(model, tokenizer)


def _is_ours(folder: Path) -> bool:
    """Whether a tokenizer of `new_tokenizer` lies there. AutoTokenizer goes by the model's type: it would read the
    vocabulary as Qwen's and cut words in other places, and the model would silently be several times worse."""
    path = folder / "tokenizer_config.json"
    return path.is_file() and '"tokenizer_class": "TokenizersBackend"' in path.read_text(encoding="utf-8")


def warm_start(
    policy: Policy,
    pairs: Sequence[tuple[str, str]],
    config: WarmStartConfig,
    seed: int,
    progress: Progress | None = None,
) -> list[float]:
    """Train on (prompt, completion) pairs, loss on the completion; returns the loss of every step."""
    rows = [_encode(policy.tokenizer, prompt, completion) for prompt, completion in pairs]
    rng = np.random.default_rng([seed, 3])
    model = policy.model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=0.01)
    losses: list[float] = []
    order: list[int] = []
    for step in range(config.steps):
        for group in optimiser.param_groups:
            group["lr"] = config.learning_rate * _rate(step, config.steps)
        if len(order) < config.batch_size:
            order = rng.permutation(len(rows)).tolist()
        chosen, order = order[: config.batch_size], order[config.batch_size :]
        ids, mask, labels = _collate([rows[i] for i in chosen], policy.tokenizer.pad_token_id)
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(float(loss.detach()))
        if progress is not None:
            progress(step + 1, config.steps)
    model.eval()
    return losses


def _rate(step: int, steps: int) -> float:
    """Linear warm-up over a twentieth, then a cosine to a tenth."""
    warm = max(1, steps // 20)
    if step < warm:
        return (step + 1) / warm
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def _encode(tokenizer: Any, prompt: str, completion: str) -> tuple[list[int], int]:
    head = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    tail = tokenizer(completion, add_special_tokens=False)["input_ids"]
    return [*head, *tail, tokenizer.eos_token_id], len(head)


def _collate(rows: Sequence[tuple[list[int], int]], pad: int) -> tuple[Any, Any, Any]:
    width = max(len(ids) for ids, _ in rows)
    ids = torch.full((len(rows), width), pad)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    labels = torch.full((len(rows), width), -100)
    for i, (row, head) in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = 1
        labels[i, head : len(row)] = torch.tensor(row[head:])
    return ids, mask, labels


def sample(
    policy: Policy,
    prompts: Sequence[str],
    n: int,
    max_new_tokens: int,
    seed: int,
    temperature: float = 1.0,
    batch_size: int = 256,
) -> list[list[str]]:
    """n completions per prompt. Leaves torch's own random state as it was."""
    repeated = [prompt for prompt in prompts for _ in range(n)]
    tokenizer, model = policy.tokenizer, policy.model
    texts: list[str] = []
    was_training = model.training
    model.eval()
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for start in range(0, len(repeated), batch_size):
            part = tokenizer(
                repeated[start : start + batch_size],
                return_tensors="pt",
                padding=True,
                padding_side="left",
                add_special_tokens=False,
                return_token_type_ids=False,
            ).to(model.device)
            out = model.generate(
                **part,
                do_sample=True,
                temperature=temperature,
                top_k=0,
                max_new_tokens=max_new_tokens,
                pad_token_id=tokenizer.pad_token_id,
            )
            texts += tokenizer.batch_decode(out[:, part["input_ids"].shape[1] :], skip_special_tokens=True)
    model.train(was_training)
    return [texts[i : i + n] for i in range(0, len(texts), n)]
