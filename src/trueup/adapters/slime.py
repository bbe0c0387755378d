"""slime: the hook that is the step. `--custom-reward-post-process-path` gets all samples of a rollout and returns what
slime trains on, so trueup's advantages go in directly; nothing is patched.

    # my_run.py
    post_process = trueup.adapters.slime.reward_post_process(AnchoredReward(proxy, gold))

    --custom-rm-path trueup.adapters.slime.pending --custom-reward-post-process-path my_run.post_process

No verdict: the sample is removed from the loss and has advantage 0; its logged raw reward is its group's mean.
Tested against the recorded signature (`tests/data/trainer_seams.json`); slime needs Megatron and SGLang.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trueup.adapters.reward_function import OnStep, default_rollout
from trueup.adapters.stream import neutral
from trueup.errors import ConfigError
from trueup.loop import AnchoredReward
from trueup.types import Group, Rollout

__all__ = ["pending", "reward_post_process"]


async def pending(args: Any, samples: Any, **_: Any) -> Any:
    """A reward that says "not yet": NaN until the post-process hook has scored the whole rollout."""
    return [float("nan")] * len(samples) if isinstance(samples, list) else float("nan")


def _default(sample: Any) -> Rollout:
    columns = dict(sample.metadata or {}) | {"label": sample.label}
    return default_rollout(sample.prompt, sample.response, columns)


def reward_post_process(
    anchored: AnchoredReward,
    to_rollout: Callable[[Any], Rollout] = _default,
    on_step: OnStep | None = None,
) -> Callable[[Any, Sequence[Any]], tuple[list[float], list[float]]]:
    """The function for `--custom-reward-post-process-path`: (args, samples) -> (raw rewards, rewards)."""

    def post_process(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
        if args.normalize_advantages:
            raise ConfigError(
                "--normalize-advantages must be off, got on. It divides by the spread of the batch, which depends on "
                "the draw of anchors and makes corrected rewards biased. Leave it out."
            )
        members: dict[Any, list[int]] = {}
        for i, sample in enumerate(samples):
            members.setdefault(sample.group_index, []).append(i)
        groups = [
            Group([to_rollout(samples[i]) for i in index], id=group) for group, index in members.items()
        ]
        result = anchored.step(groups)
        if on_step is not None:
            on_step(result, groups)
        raw, rewards = np.empty(len(samples)), np.empty(len(samples))
        filled = neutral(list(result.rewards), float(np.mean(anchored.config.gold_range)))
        for index, rewards_N, advantages_N in zip(members.values(), filled, result.advantages, strict=True):
            raw[index], rewards[index] = rewards_N, np.nan_to_num(advantages_N, nan=0.0)
            for i in np.array(index)[np.isnan(advantages_N)].tolist():
                samples[i].remove_sample = True
        return raw.tolist(), rewards.tolist()

    return post_process
