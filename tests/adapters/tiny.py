"""A causal model and a tokenizer small enough to train on a CPU in seconds, made from nothing."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, RLOOConfig

torch.set_num_threads(1)

WORDS = ["<pad>", "<eos>", "a", "b", "c", "d", "yes", "no", "one", "two", "three", "four"]


def tokenizer() -> PreTrainedTokenizerFast:
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )


def model(seed: int = 0) -> Qwen2ForCausalLM:
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(WORDS),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=64,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=1,
        )
    )


def dataset(n: int = 24) -> Dataset:
    prompts = [f"{WORDS[2 + i % 4]} {WORDS[8 + i // 4 % 4]}" for i in range(n)]
    return Dataset.from_dict(
        {
            "prompt": prompts,
            "answer": ["yes" if i % 2 else "no" for i in range(n)],
            "family": ["odd" if i % 2 else "even" for i in range(n)],
        }
    )


def _common(folder: object) -> dict[str, object]:
    return {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 6,
        "max_steps": 2,
        "learning_rate": 1e-2,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": [],
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "seed": 3,
    }


def grpo(folder: object, **settings: object) -> GRPOConfig:
    return GRPOConfig(**(_common(folder) | {"scale_rewards": "none"} | settings))


def rloo(folder: object, **settings: object) -> RLOOConfig:
    return RLOOConfig(**(_common(folder) | {"beta": 0.0} | settings))
