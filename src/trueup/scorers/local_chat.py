"""A causal language model of transformers as a chat model: one request at a time, with token log-probabilities.

Log-probabilities are those of the model itself, before temperature and nucleus, as an expected grade needs them; and
what a model's folder says about sampling (its top-k, its repetition penalty) is not applied, since the protocol's
defaults are what a caller counts on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trueup.errors import ConfigError, MissingExtraError

try:
    import torch
    import transformers
except ImportError as error:
    raise MissingExtraError("A local model", "train", error.name or "torch") from None

__all__ = ["ChatReply", "LocalChat", "PromptTooLong", "TokenChoice"]


class PromptTooLong(ValueError):
    """The prompt leaves no room for an answer in the model's context."""


@dataclass(frozen=True, slots=True)
class TokenChoice:
    """A token that was said, and the likeliest ones in its place; log-probabilities are of the model itself."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class ChatReply:
    """One answer."""

    text: str
    finish_reason: str  # "stop" or "length"
    tokens: tuple[TokenChoice, ...]
    n_prompt_tokens: int


class LocalChat:
    """A model from a local folder or GGUF file, or from the hub where there is one.

    Args:
        path: folder, file that ends in .gguf (needs the package gguf; weights are expanded to float32), or name.
        device: as torch names it.
    """

    def __init__(self, path: str | os.PathLike[str], device: str = "cpu") -> None:
        name, more = str(path), {}
        if name.endswith(".gguf"):
            name, more = str(Path(name).parent), {"gguf_file": Path(name).name}
        try:
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(name, **more)
            self._model = transformers.AutoModelForCausalLM.from_pretrained(name, **more).to(device).eval()
        except (ImportError, OSError, ValueError) as error:
            raise ConfigError(
                f"The model must be one that transformers can load, got {os.fspath(path)!r}: {error}. Nothing is "
                "served. Give a folder with config.json, weights and tokenizer, or a .gguf file and pip install gguf."
            ) from None
        self._device = device
        self._lock = threading.Lock()

    def prompt(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The text that the model sees: by the tokenizer's chat template, else the messages one after another."""
        if self._tokenizer.chat_template is not None:
            text: str = self._tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=True
            )
            return text
        return "\n\n".join(message["content"] for message in messages) + "\n"

    def answer(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_logprobs: int = 0,
        stop: Sequence[str] = (),
        seed: int | None = None,
    ) -> ChatReply:
        """Answer a conversation. Temperature 0 takes the likeliest token each time.

        Raises:
            PromptTooLong: no room is left in the model's context.
        """
        with self._lock, torch.inference_mode():
            return self._answer(
                self.prompt(messages), max_tokens, temperature, top_p, top_logprobs, tuple(stop), seed
            )

    def _answer(
        self,
        prompt: str,
        max_tokens: int,
        temperature: float,
        top_p: float,
        top_logprobs: int,
        stop: tuple[str, ...],
        seed: int | None,
    ) -> ChatReply:
        ids = self._tokenizer(prompt, return_tensors="pt").input_ids.to(self._device)
        room = getattr(self._model.config, "max_position_embeddings", 10**9) - ids.shape[1]
        if room < 1:
            raise PromptTooLong(f"the prompt has {ids.shape[1]} tokens, which leaves no room for an answer")
        with torch.random.fork_rng(enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(seed)
            output = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=min(max_tokens, room),
                do_sample=temperature > 0,
                temperature=temperature if temperature > 0 else None,
                top_p=top_p if temperature > 0 else None,
                top_k=0,
                repetition_penalty=1.0,
                stop_strings=list(stop) or None,
                tokenizer=self._tokenizer if stop else None,
                pad_token_id=self._tokenizer.pad_token_id or self._tokenizer.eos_token_id,
                output_logits=True,
                return_dict_in_generate=True,
            )
        said: list[int] = output.sequences[0, ids.shape[1] :].tolist()
        ended = bool(said) and said[-1] == self._tokenizer.eos_token_id
        said = said[:-1] if ended else said
        rows = [torch.log_softmax(logits[0].float(), dim=-1) for logits in output.logits[: len(said)]]
        tokens = tuple(self._choice(row, token, top_logprobs) for row, token in zip(rows, said, strict=True))
        text = self._tokenizer.decode(said, skip_special_tokens=True)
        cuts = [at for at in (text.find(s) for s in stop) if at >= 0]
        text = text[: min(cuts)] if cuts else text
        return ChatReply(text, "stop" if ended or cuts else "length", tokens, ids.shape[1])

    def _choice(self, logprobs: Any, token: int, n: int) -> TokenChoice:
        best = torch.topk(logprobs, min(n, logprobs.numel())) if n else None
        pairs = [] if best is None else zip(best.indices.tolist(), best.values.tolist(), strict=True)
        top = tuple((self._tokenizer.decode([i]), value) for i, value in pairs)
        return TokenChoice(self._tokenizer.decode([token]), float(logprobs[token]), top)
