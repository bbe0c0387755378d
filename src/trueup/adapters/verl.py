"""verl: a trainer of its own kind, registered beside verl's, that scores the whole batch where advantages are formed.

verl's reward functions run in workers chosen at random and see one sample each, so a step cannot be scored there; and
an estimator of `register_adv_est` is given no data of ours and loses verl's handling of sessions with several outputs.
`_compute_advantage` has the whole batch, in TransferQueue:

    trainer.v1.trainer_mode=trueup_sync            # or trueup_colocate_async, trueup_separate_async
    +trueup.factory=my_run:make                    # () -> AnchoredReward
    reward.custom_reward_function.path=.../trueup/adapters/verl_pending.py
    reward.custom_reward_function.name=compute_score
    algorithm.adv_estimator=grpo algorithm.norm_adv_by_std_in_grpo=False

The entry point `verl.plugins` imports this module in every process of verl; `VERL_USE_EXTERNAL_PLUGINS=none` turns it
off. Filters that verl applies while sampling (`algorithm.filter_groups`) run before, on the pending reward: leave off.

No verdict: the reward is the group's mean, the advantage 0; verl never sees a NaN, which would spread over the group.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trueup.adapters.reward_function import default_rollout, needs_hook
from trueup.adapters.state import load_state, save_state
from trueup.adapters.stream import neutral
from trueup.errors import ConfigError
from trueup.loop import AnchoredReward
from trueup.runlog.names import step_metrics
from trueup.types import Group

try:
    import torch
    import transfer_queue as tq
    from tensordict import TensorDict
    from verl.trainer.ppo.v1 import (
        PPOTrainerColocateAsync,
        PPOTrainerSeparateAsync,
        PPOTrainerSync,
        register_trainer,
    )
except ImportError:
    # verl reports a plug-in that cannot be imported at DEBUG alone, and then knows no such trainer.
    logging.getLogger("trueup.adapters").warning("the verl plug-in could not be imported", exc_info=True)
    raise

__all__ = ["AnchoredTrainer", "check_settings"]

_FIELDS = ("uid", "response_mask", "responses", "raw_prompt", "data_source", "reward_model", "extra_info")


def check_settings(anchored: AnchoredReward, algorithm: Any) -> None:
    """Refuse settings of verl that would change what the estimator means. algorithm: `config.algorithm`."""
    config = anchored.config
    if algorithm.adv_estimator != "grpo":
        raise ConfigError(
            f"algorithm.adv_estimator must be grpo, got {algorithm.adv_estimator}. trueup's advantages would be "
            "centred in another way than verl's. Set algorithm.adv_estimator=grpo."
        )
    by_std = config.advantage_scaling == "std"
    if bool(algorithm.get("norm_adv_by_std_in_grpo", True)) != by_std:
        raise ConfigError(
            f"algorithm.norm_adv_by_std_in_grpo must be {by_std} with estimator {config.estimator!r} and scaling "
            f"{config.advantage_scaling!r}, got {not by_std}. The configuration would say one thing and train another. "
            f"Set algorithm.norm_adv_by_std_in_grpo={by_std}."
        )
    if algorithm.use_kl_in_reward and (needs_hook(config) or by_std):
        raise ConfigError(
            "algorithm.use_kl_in_reward must be False with this estimator, got True. The penalty is a part of verl's "
            "reward, and trueup's advantages replace what comes of it. Use the KL loss, or estimator 'corrected'."
        )


class AnchoredTrainer:
    """Before one of verl's v1 trainers. `base_mode` is the mode that verl's own code is to take it for."""

    base_mode = "sync"

    def __init__(self, config: Any) -> None:
        self._anchored = _make(config)
        check_settings(self._anchored, config.algorithm)
        config.trainer.v1.trainer_mode = self.base_mode  # replay buffer and checkpoints go by this name
        super().__init__(config)  # type: ignore[call-arg]

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        sessions = _last_outputs(batch.keys)
        data = tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=self._fields(batch)
        )
        names = [name for name in list(data.keys()) if name not in ("responses", "response_mask")]
        columns = {name: _listed(data[name]) for name in names}
        members: dict[str, list[str]] = {}
        for session, row in sessions.items():
            members.setdefault(str(columns["uid"][row]), []).append(session)
        groups = [
            Group([self._rollout(data, columns, sessions[s]) for s in group], id=uid)
            for uid, group in members.items()
        ]
        result = self._anchored.step(groups)
        metrics.update(step_metrics(result.record))
        order = [session for group in members.values() for session in group]
        filled = neutral(list(result.rewards), float(np.mean(self._anchored.config.gold_range)))
        rewards = dict(zip(order, (r for group in filled for r in group), strict=True))
        self._put(batch, data, rm_scores=(rewards, False))
        batch = super()._compute_advantage(batch, metrics)  # type: ignore[misc]  # KL, rollout correction, metrics
        if not self.config.algorithm.use_kl_in_reward:  # type: ignore[attr-defined]
            flat = np.nan_to_num(result.record.advantage, nan=0.0).tolist()
            ours = dict(zip(order, flat, strict=True))
            self._put(batch, data, advantages=(ours, True), returns=(ours, True))
        return batch

    def _fields(self, batch: Any) -> list[str]:
        """The fields that this batch has; a dataset need not have every column of verl's examples."""
        known = batch.fields
        return [name for name in _FIELDS if known is None or name in known]

    def _rollout(self, data: Any, columns: Mapping[str, list[Any]], row: int) -> Any:
        text = self.tokenizer.decode(data["responses"][row], skip_special_tokens=True)  # type: ignore[attr-defined]
        task = {name: values[row] for name, values in columns.items() if name != "uid"}
        family = task.get("data_source")
        if isinstance(family, str):
            task["family"] = family
        return default_rollout(task.pop("raw_prompt", None), text, task)

    def _put(self, batch: Any, data: Any, **fields: tuple[Mapping[str, float], bool]) -> None:
        """Write one number per session into per-token fields: on every token of the response, or on its last."""
        masks = data["response_mask"]
        written = {}
        for name, (values, everywhere) in fields.items():
            rows = []
            for i, key in enumerate(batch.keys):
                mask = masks[i].to(torch.float32)
                row = mask * values[_session(key)] if everywhere else torch.zeros_like(mask)
                if not everywhere:
                    row[-1] = values[_session(key)]
                rows.append(row)
            written[name] = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
        tensors = TensorDict(written, batch_size=len(batch.keys))
        tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=tensors)

    def _save_checkpoint(self) -> None:
        save_state(self._anchored, self._folder())
        super()._save_checkpoint()  # type: ignore[misc]

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()  # type: ignore[misc]
        if self.global_steps > 0:  # type: ignore[attr-defined]
            trainer = self.config.trainer  # type: ignore[attr-defined]
            named = trainer.resume_mode == "resume_path"
            load_state(self._anchored, trainer.resume_from_path if named else self._folder())

    def _folder(self) -> Path:
        return Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"  # type: ignore[attr-defined]


def _make(config: Any) -> AnchoredReward:
    path = config.get("trueup", {}).get("factory")
    if not path or ":" not in path:
        raise ConfigError(
            f"trueup.factory must be module:function, got {path!r}. The trainer would not know what to score with. "
            "Add +trueup.factory=my_run:make, where make() returns an AnchoredReward."
        )
    module, _, name = path.partition(":")
    anchored: AnchoredReward = getattr(importlib.import_module(module), name)()
    return anchored


def _session(key: str) -> str:
    """A key is {uid}_{session}_{index of the output in the session}."""
    return key.rsplit("_", 1)[0]


def _last_outputs(keys: list[str]) -> dict[str, int]:
    """Row of each session's last output, which stands for the session, in order of first appearance."""
    last: dict[str, tuple[int, int]] = {}
    for row, key in enumerate(keys):
        session, _, index = key.rpartition("_")
        if session not in last or last[session][0] < int(index):
            last[session] = (int(index), row)
    return {session: row for session, (_, row) in last.items()}


def _listed(column: Any) -> list[Any]:
    if isinstance(column, torch.Tensor):
        return list(column.tolist())
    return [getattr(value, "data", value) for value in column]


@register_trainer("trueup_sync")
class _Sync(AnchoredTrainer, PPOTrainerSync):  # type: ignore[misc]
    base_mode = "sync"


@register_trainer("trueup_colocate_async")
class _ColocateAsync(AnchoredTrainer, PPOTrainerColocateAsync):  # type: ignore[misc]
    base_mode = "colocate_async"


@register_trainer("trueup_separate_async")
class _SeparateAsync(AnchoredTrainer, PPOTrainerSeparateAsync):  # type: ignore[misc]
    base_mode = "separate_async"
