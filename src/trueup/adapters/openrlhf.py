"""OpenRLHF: a subclass of its experience maker, which holds the whole batch when advantages are formed.

OpenRLHF's reward function sees one sample at a time, so it cannot score a step; `pending` stands in for it and the
rewards are put in place here, before OpenRLHF subtracts the group's mean (`--algo.advantage.estimator dr_grpo` or
`rloo`). Its trainer is a Ray actor that builds the experience maker itself; `install` puts ours in its place, in that
process, through Ray's own hook:

    ray.init(runtime_env={"worker_process_setup_hook": "my_run.setup"})   # my_run.setup calls install(anchored)
    --reward.remote_url .../trueup/adapters/openrlhf.py                   # exports reward_func

No verdict: OpenRLHF crashes on None, so the sample gets its group's mean, whose advantage is 0.
Tested against the released file of openrlhf 0.11.2; the whole package needs flash-attn and DeepSpeed to install.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trueup.adapters.reward_function import OnStep, default_rollout, needs_hook
from trueup.adapters.stream import neutral
from trueup.errors import ConfigError
from trueup.loop import AnchoredReward
from trueup.types import Group, Rollout

__all__ = ["anchored_experience_maker", "install", "reward_func"]


def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any]) -> dict[str, Any]:
    """OpenRLHF's reward function, saying "not yet": NaN until the experience maker has scored the batch."""
    pending = [float("nan")] * len(queries)
    return {"rewards": pending, "scores": pending, "extra_logs": {}}


def check_settings(anchored: AnchoredReward, args: Any) -> None:
    """Refuse settings of OpenRLHF under which a corrected reward loses its meaning."""
    config, estimator = anchored.config, args.algo.advantage.estimator
    if needs_hook(config) or config.advantage_scaling == "std":
        raise ConfigError(
            f"estimator must be 'corrected' with OpenRLHF, got {config.estimator!r} and scaling "
            f"{config.advantage_scaling!r}. Only rewards are put in place. Leave both out."
        )
    if estimator not in ("dr_grpo", "rloo"):
        raise ConfigError(
            f"--algo.advantage.estimator must be dr_grpo or rloo, got {estimator}. Others divide by a spread that "
            "depends on the draw of anchors, or know no groups. Set it to dr_grpo."
        )
    share = config.uniform_mix if config.is_active else 1.0
    least = config.width / max(share * config.anchor_fraction, 1e-9)  # the largest correction that can occur
    clip = args.reward.clip_range
    if clip is not None and config.anchor_fraction > 0 and (clip[0] > -least or clip[1] < least):
        raise ConfigError(
            f"--reward.clip_range must reach from -{least:.4g} to {least:.4g}, got {tuple(clip)}. A corrected reward "
            f"can be as large, and clipping it is a bias. Set --reward.clip_range -{least:.4g} {least:.4g}."
        )


def anchored_experience_maker(
    base: type[Any],
    anchored: AnchoredReward,
    to_rollout: Callable[..., Rollout] = default_rollout,
    on_step: OnStep | None = None,
) -> type[Any]:
    """A subclass of `base` (openrlhf's RemoteExperienceMaker) on anchored rewards."""

    class AnchoredExperienceMaker(base):  # type: ignore[misc]
        def compute_advantages_and_returns(self, experiences: list[Any]) -> list[Any]:
            args = self.strategy.args
            check_settings(anchored, args)
            n = args.rollout.n_samples_per_prompt
            rows = {
                place: (prompt, self._completion(experience, row), label)
                for experience in experiences
                for row, (place, prompt, label) in enumerate(
                    zip(experience.index, experience.prompts, experience.labels, strict=True)
                )
            }
            ordered = [to_rollout(p, c, {"label": label}) for _, (p, c, label) in sorted(rows.items())]
            groups = [Group(ordered[i : i + n]) for i in range(0, len(ordered), n)]
            result = anchored.step(groups)
            if on_step is not None:
                on_step(result, groups)
            filled = neutral(list(result.rewards), float(np.mean(anchored.config.gold_range)))
            flat = list(itertools.chain.from_iterable(filled))
            place_of = {place: i for i, place in enumerate(sorted(rows))}
            for experience in experiences:
                mine = [flat[place_of[place]] for place in experience.index]
                experience.rewards = experience.rewards.new_tensor(mine)
                experience.info["reward"] = experience.rewards
            finished: list[Any] = super().compute_advantages_and_returns(experiences)
            return finished

        def _completion(self, experience: Any, row: int) -> str:
            length = int(experience.response_length[row])
            total = int(experience.total_length[row])
            ids = experience.sequences[row][experience.attention_mask[row].bool()][:total]
            text: str = self.tokenizer.decode(ids[total - length :], skip_special_tokens=True)
            return text

    return AnchoredExperienceMaker


def install(anchored: AnchoredReward, **options: Any) -> None:
    """Let OpenRLHF's trainer, in this process, build the anchored experience maker."""
    module = importlib.import_module("openrlhf.trainer.ppo_trainer")
    theirs = vars(module)
    theirs["RemoteExperienceMaker"] = anchored_experience_maker(
        theirs["RemoteExperienceMaker"], anchored, **options
    )
