"""TRL trains a tiny language model on our pairs, for real, on CPU."""

from __future__ import annotations

import numpy as np
import pytest

from trueup.rewardmodel import Labelled, auroc_within
from trueup.types import Rollout

pytest.importorskip("trl")
pytest.importorskip("torch")
# The trainer's libraries warn about each other; what is ours is still an error elsewhere.
pytestmark = [pytest.mark.filterwarnings("ignore")]


def data_of(n, seed):
    rng = np.random.default_rng(seed)
    texts = [" ".join(rng.choice(["castle", "garden", "walk", "sleep"], 5)) for _ in range(n)]
    gold = np.array([t.count("castle") / 5 for t in texts])
    return Labelled(tuple(texts), gold, tuple(i % 4 for i in range(n)))


@pytest.fixture
def tiny():
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2ForSequenceClassification, PreTrainedTokenizerFast

    torch.manual_seed(0)
    torch.set_num_threads(1)
    vocabulary = {
        w: i for i, w in enumerate(["<pad>", "<eos>", "<unk>", "castle", "garden", "walk", "sleep"])
    }
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    config = GPT2Config(
        vocab_size=len(vocabulary), n_positions=32, n_embd=32, n_layer=1, n_head=2, num_labels=1,
        pad_token_id=0, bos_token_id=1, eos_token_id=1,
    )  # fmt: skip
    return GPT2ForSequenceClassification(config), tokenizer


def test_a_language_model_learns_the_order_and_scores_rollouts(tiny, tmp_path):
    from trueup.rewardmodel.large import train_with_trl

    model, tokenizer = tiny
    scorer = train_with_trl(
        model, tokenizer, data_of(80, 0), tmp_path, version="tiny/r0", max_length=16, max_steps=40,
        per_device_train_batch_size=16, learning_rate=5e-3, use_cpu=True, bf16=False,
    )  # fmt: skip
    fresh = data_of(60, 1)
    assert auroc_within(scorer.raw(fresh.texts), fresh) > 0.85
    scores = scorer.score([Rollout("q", t) for t in fresh.texts[:3]])
    assert all(s.is_scored for s in scores)
    assert scorer.version == "tiny/r0"
