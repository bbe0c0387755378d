"""TRL's GRPO and RLOO trainers on anchored rewards.

Two ways in, for two kinds of estimator. `reward_function` is a plain reward function for a stock trainer: enough
where the advantage is a centred reward. `AnchoredMixin` goes before a trainer class and puts trueup's own advantages
into the batch after TRL has formed its own: standard-deviation scaled advantages and group estimators need that, and
it brings evaluation on gold alone and checkpoints that hold trueup's state.

The mixin overrides private methods. It checks at start-up that they are there (`trl_checks.SEAMS`), and at the
first loss that the advantages in the batch are ours and that the loss depends on them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from trueup.adapters.reward_function import AnchoredRewardFunction, OnStep, default_rollout
from trueup.adapters.state import load_state, save_state
from trueup.errors import MissingExtraError, StateError
from trueup.loop import AnchoredReward

try:
    import torch
    from transformers.trainer_callback import TrainerCallback
    from trl import GRPOTrainer, RLOOConfig, RLOOTrainer
except ImportError as error:
    raise MissingExtraError("The TRL adapter", "trl", error.name or "trl") from None

from trueup.adapters.trl_checks import check_seams, check_settings

__all__ = [
    "AnchoredGRPOTrainer",
    "AnchoredMixin",
    "AnchoredRLOOTrainer",
    "SaveState",
    "load_state",
    "reward_function",
    "save_state",
]

_OURS = "trueup_advantages"


def reward_function(anchored: AnchoredReward, args: Any, **options: Any) -> AnchoredRewardFunction:
    """The anchored loop as one reward function for a stock trainer.

        args = GRPOConfig(..., scale_rewards="none")
        GRPOTrainer(model, reward_funcs=reward_function(anchored, args), args=args, callbacks=[SaveState(anchored)])

    Rewards are in the units of gold, so TRL's `reward` is an unbiased estimate of the mean gold score. A stock
    trainer cannot tell it that it is evaluating; use `AnchoredGRPOTrainer` with an eval_dataset.

    Raises:
        ConfigError: the estimator needs the mixin, or the settings contradict it.
    """
    check_settings(anchored.config, args, hooked=False)
    return AnchoredRewardFunction(anchored, args.num_generations, **options)


class AnchoredMixin:
    """Put before a GRPOTrainer or RLOOTrainer: `class MyTrainer(AnchoredMixin, MyGRPOTrainer)`.

    Args:
        model, args: as TRL's; args has to be given.
        anchored: the loop, whose verifiers, proxy and gold see one rollout per completion.
        reward_funcs: further reward functions, for estimators whose advantages are centred rewards. TRL then sums
            and centres; without any, trueup's advantages replace TRL's.
        to_rollout, on_step: as `AnchoredRewardFunction`.
        trainer: everything else, to TRL.

    Raises:
        ConfigError: settings that contradict the estimator, or a TRL without the seams this rests on.
    """

    def __init__(
        self,
        model: Any,
        *,
        anchored: AnchoredReward,
        args: Any,
        reward_funcs: Any = (),
        to_rollout: Callable[..., Any] = default_rollout,
        on_step: OnStep | None = None,
        **trainer: Any,
    ) -> None:
        check_seams(super(AnchoredMixin, type(self)))
        others = list(reward_funcs) if isinstance(reward_funcs, (list, tuple)) else [reward_funcs]
        # RLOO's KL penalty is a part of its rewards, and other rewards are summed with ours: there TRL centres.
        self._hooked = not others and not (isinstance(args, RLOOConfig) and args.beta != 0.0)
        check_settings(anchored.config, args, hooked=self._hooked)
        self._anchored = AnchoredRewardFunction(
            anchored, args.num_generations, to_rollout=to_rollout, on_step=on_step
        )
        self._proved = False
        super().__init__(model, reward_funcs=[self._anchored, *others], args=args, **trainer)  # type: ignore[call-arg]

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        training = self.model.training  # type: ignore[attr-defined]
        self._anchored.evaluating = not training
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        if not (training and self._hooked):
            return batch
        theirs = batch["advantages"]
        local, everyone = self._anchored.advantages()
        ours = torch.as_tensor(local, dtype=theirs.dtype, device=theirs.device)
        if ours.shape != theirs.shape:
            raise StateError(
                f"TRL's advantages must be of shape {tuple(ours.shape)}, got {tuple(theirs.shape)}. They could not "
                'be paired with the rollouts. Install the tested range: pip install "trueup[trl]"'
            )
        batch["advantages"] = ours
        batch[_OURS] = ours.clone()  # travels through shuffling and splitting beside it, for the check below
        logged = self._logs["advantages"]  # type: ignore[attr-defined]
        for _ in everyone:
            logged.pop()
        logged.extend(everyone.tolist())
        return batch

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        if self._proved or _OURS not in inputs:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)  # type: ignore[misc]
        same = torch.equal(inputs["advantages"], inputs[_OURS])
        # The fused kernel keeps no graph back to the advantages, so there the first half of the proof has to do.
        watched = inputs["advantages"].clone().requires_grad_(not self.args.use_liger_kernel)  # type: ignore[attr-defined]
        loss = super().compute_loss(  # type: ignore[misc]
            model, inputs | {"advantages": watched}, return_outputs, num_items_in_batch
        )
        reached = not watched.requires_grad or _depends(loss, watched)
        if not (same and reached):
            raise StateError(
                f"The loss must be formed with trueup's advantages, got {'a loss without them' if same else 'others'}"
                ". The run would train on something else. Another subclass or patch of the trainer comes between: "
                "put AnchoredMixin first, and take the other one out to see."
            )
        self._proved = True
        return loss

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self.args.should_save:  # type: ignore[attr-defined]
            # Before TRL's own files: a checkpoint that looks complete then has our state as well.
            folder = f"checkpoint-{self.state.global_step}"  # type: ignore[attr-defined]
            save_state(self._anchored.anchored, Path(self._get_output_dir(trial=trial)) / folder)  # type: ignore[attr-defined]
        super()._save_checkpoint(model, trial)  # type: ignore[misc]

    def _load_optimizer_and_scheduler(self, checkpoint: Any) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]
        if checkpoint is not None:
            load_state(self._anchored.anchored, checkpoint)


class AnchoredGRPOTrainer(AnchoredMixin, GRPOTrainer):  # type: ignore[misc]
    """`trl.GRPOTrainer` on anchored rewards: `AnchoredGRPOTrainer(model, anchored=..., args=..., ...)`."""


class AnchoredRLOOTrainer(AnchoredMixin, RLOOTrainer):  # type: ignore[misc]
    """`trl.RLOOTrainer` on anchored rewards."""


class SaveState(TrainerCallback):  # type: ignore[misc]
    """Saves the loop's state into every checkpoint of a stock trainer; `load_state` reads it back."""

    def __init__(self, anchored: AnchoredReward) -> None:
        self._anchored = anchored

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            save_state(self._anchored, Path(args.output_dir) / f"checkpoint-{state.global_step}")


def _depends(loss: Any, watched: Any) -> bool:
    """Whether the loss is formed from these advantages. Its gradient is not 0 even where they are."""
    (gradient,) = torch.autograd.grad(loss, watched, retain_graph=True, allow_unused=True)
    return gradient is not None and bool((gradient != 0).any())
