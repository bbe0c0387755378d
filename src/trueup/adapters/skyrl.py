"""SkyRL: a generator around the generator. `GeneratorInterface.generate` sees the whole batch with the id of every
trajectory's group, so corrected rewards can be put in its output; nothing is patched.

    class Experiment(BasePPOExp):
        def get_generator(self, cfg, tokenizer, client):
            check_settings(anchored.config, cfg.trainer.algorithm)
            return AnchoredGenerator(super().get_generator(cfg, tokenizer, client), anchored, tokenizer.decode)

No verdict: SkyRL asserts that a reward is a number, so the trajectory gets its group's mean, whose advantage is 0, and
its tokens leave the loss. Tested against the recorded signature of skyrl 0.4.0; it needs Python 3.12 and a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from trueup.adapters.reward_function import OnStep, default_rollout, needs_hook
from trueup.adapters.stream import neutral
from trueup.errors import ConfigError
from trueup.loop import AnchorConfig, AnchoredReward
from trueup.types import Group, Rollout

__all__ = ["AnchoredGenerator", "check_settings"]


def check_settings(config: AnchorConfig, algorithm: Any) -> None:
    """Refuse settings under which a corrected reward loses its meaning. algorithm: `cfg.trainer.algorithm`."""
    if needs_hook(config) or config.advantage_scaling == "std":
        raise ConfigError(
            f"estimator must be 'corrected' with SkyRL, got {config.estimator!r} and scaling "
            f"{config.advantage_scaling!r}. Its generator can change rewards alone. Leave both out."
        )
    wanted = {"grpo_norm_by_std": False, "advantage_batch_normalize": False}
    for name, value in wanted.items():
        if getattr(algorithm, name) != value:
            raise ConfigError(
                f"trainer.algorithm.{name} must be {str(value).lower()}, got {getattr(algorithm, name)}. Dividing by "
                "a spread that depends on the draw of anchors makes corrected rewards biased. "
                f"Set trainer.algorithm.{name}={str(value).lower()}."
            )


class AnchoredGenerator:
    """Any generator of SkyRL with anchored rewards; evaluation passes through untouched.

    Args:
        generator: the one that makes the trajectories; everything but `generate` goes to it.
        anchored: the loop.
        decode: token ids of a response -> text.
        to_rollout: (prompt, completion, env_extras) -> Rollout.
    """

    def __init__(
        self,
        generator: Any,
        anchored: AnchoredReward,
        decode: Callable[[list[int]], str],
        to_rollout: Callable[..., Rollout] = default_rollout,
        on_step: OnStep | None = None,
    ) -> None:
        self._generator = generator
        self._anchored = anchored
        self._decode = decode
        self._to_rollout = to_rollout
        self._on_step = on_step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)

    async def generate(self, input_batch: Any) -> Any:
        """The generator's output with rewards corrected, in the form (per response or per token) they came in."""
        output = await self._generator.generate(input_batch)
        metadata = input_batch.get("batch_metadata")
        if metadata is not None and metadata.training_phase == "eval":
            return output
        if output.get("is_last_step") is not None:
            raise ConfigError(
                "step_wise_trajectories must be off, got on. One trajectory comes as several rows, and trueup scores "
                "rollouts. Leave it out."
            )
        members: dict[str, list[int]] = {}
        for i, identity in enumerate(input_batch["trajectory_ids"]):
            members.setdefault(identity.instance_id, []).append(i)
        extras = input_batch.get("env_extras") or [{}] * len(input_batch["prompts"])
        groups = [
            Group(
                [
                    self._to_rollout(
                        input_batch["prompts"][i], self._decode(output["response_ids"][i]), extras[i] or {}
                    )
                    for i in index
                ],
                id=group,
            )
            for group, index in members.items()
        ]
        result = await self._anchored.astep(groups)
        if self._on_step is not None:
            self._on_step(result, groups)
        filled = neutral(list(result.rewards), float(np.mean(self._anchored.config.gold_range)))
        for index, rewards_N, seen_N in zip(members.values(), filled, result.rewards, strict=True):
            for i, reward, seen in zip(index, rewards_N, seen_N.tolist(), strict=True):
                per_token = isinstance(output["rewards"][i], list)
                output["rewards"][i] = (
                    [0.0] * (len(output["rewards"][i]) - 1) + [reward] if per_token else reward
                )
                if np.isnan(seen):
                    output["loss_masks"][i] = [0] * len(output["loss_masks"][i])
        return output
