"""The experiment at a size of seconds."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from trueup.experiments.strings.config import Evaluation, Model, Rl, StringsConfig, Tasks, WarmStart, World


def tiny_config(**changes) -> StringsConfig:
    settings = {
        "seeds": 1,
        "arms": ("gold", "corrected"),
        "hackable_arms": ("guarded",),
        "sandbox_slots": 1,
        "tasks": Tasks(train=12, validation=4, held_out=4, held_out_families=2, depths=(1,)),
        "model": Model(vocabulary=400, hidden=32, layers=1, heads=2, feed_forward=64),
        "warm_start": WarmStart(examples=200, steps=20, batch_size=16),
        "world": World(rollouts_per_task=2, epochs=1),
        "rl": Rl(
            steps=4,
            groups_per_step=2,
            group_size=4,
            checkpoint_every=1,
            max_completion_tokens=16,
            anchor_fraction=0.25,
            spread_only=False,
        ),
        "evaluation": Evaluation(every=2, samples=1),
    }
    return StringsConfig(**(settings | changes))
