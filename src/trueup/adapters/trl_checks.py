"""What must hold before TRL and trueup may train together: settings that agree, and private seams that exist.

TRL's defaults and trueup's are each right and contradict each other: dividing corrected rewards by the group's own
standard deviation undoes their unbiasedness. Such pairs are refused here with the remedy, before a model is loaded.
"""

from __future__ import annotations

import inspect
from typing import Any

import trl

from trueup.adapters.reward_function import needs_hook
from trueup.errors import ConfigError
from trueup.loop import AnchorConfig

__all__ = ["SEAMS", "check_seams", "check_settings"]

# The methods that AnchoredMixin overrides, with the parameters that it relies on (TRL 1.16).
SEAMS: dict[str, tuple[str, ...]] = {
    "_generate_and_score_completions": ("self", "inputs"),
    "_calculate_rewards": ("self", "inputs", "prompts", "completions", "completion_ids_list"),
    "compute_loss": ("self", "model", "inputs", "return_outputs", "num_items_in_batch"),
    "_save_checkpoint": ("self", "model", "trial"),
    "_load_optimizer_and_scheduler": ("self", "checkpoint"),
}


def check_seams(base: Any) -> None:
    """Raise where the trainer that the mixin sits on lacks a method, or has it with other parameters.

    base: the trainer's class, or `super(AnchoredMixin, cls)`.
    """
    for name, expected in SEAMS.items():
        method = getattr(base, name, None)
        found = () if method is None else tuple(inspect.signature(method).parameters)
        if found != expected:
            got = f"({', '.join(found)})" if found else "no such method"
            raise ConfigError(
                f"The trainer must have {name}({', '.join(expected)}), got {got} in trl {trl.__version__}. "
                "trueup's advantages would not reach the loss. "
                'Install the range that this version was tested with: pip install "trueup[trl]"'
            )


def check_settings(config: AnchorConfig, args: Any, *, hooked: bool) -> None:
    """Refuse settings of TRL that would change what the estimator means.

    args: a GRPOConfig or RLOOConfig. hooked: trueup's advantages replace the trainer's.
    """
    if isinstance(args, trl.RLOOConfig):
        _check_rloo(config, args, hooked)
    elif isinstance(args, trl.GRPOConfig):
        _check_grpo(config, args)
    else:
        raise ConfigError(
            f"args must be a trl.GRPOConfig or trl.RLOOConfig, got {type(args).__name__}. The defaults of TRL do "
            "not suit the default estimator. Give args, with scale_rewards='none' for GRPO."
        )
    if not hooked and needs_hook(config):
        raise ConfigError(
            f"estimator must be one whose advantages are centred rewards, got {config.estimator!r}. A reward "
            "function cannot carry its advantages. Use AnchoredGRPOTrainer with this as its only reward and, in "
            "RLOO, beta=0; or estimator 'corrected'."
        )
    if hooked and args.reward_weights not in (None, [1.0]):
        raise ConfigError(
            f"reward_weights must be left out, got {args.reward_weights}. trueup's advantages replace TRL's, so "
            "the weight would do nothing. Scale the learning rate instead."
        )


def _check_grpo(config: AnchorConfig, args: Any) -> None:
    wanted = "group" if config.advantage_scaling == "std" else "none"
    if args.scale_rewards != wanted:
        ours = config.advantage_scaling
        raise ConfigError(
            f"scale_rewards must be {wanted!r} with estimator {config.estimator!r} and scaling {ours!r}, got "
            f"{args.scale_rewards!r}. {_why(wanted, args.scale_rewards)} Set GRPOConfig(scale_rewards={wanted!r})"
            + (
                ", or AnchorConfig(scaling='mean')."
                if wanted == "group"
                else ", or estimator 'control_variate'."
            )
        )
    if args.multi_objective_aggregation != "sum_then_normalize":
        raise ConfigError(
            "multi_objective_aggregation must be 'sum_then_normalize', got "
            f"{args.multi_objective_aggregation!r}. It divides by the spread of each group and again of the batch. "
            "Leave it out."
        )


def _why(wanted: str, got: str) -> str:
    if wanted == "none":
        return "Dividing by a spread that depends on the draw of anchors makes corrected rewards biased."
    if got == "batch":
        return "Dividing by the batch's spread changes the weight of the anchor groups."
    return "The estimator's advantages are divided by the group's spread; the configuration says otherwise."


def _check_rloo(config: AnchorConfig, args: Any, hooked: bool) -> None:
    if config.advantage_scaling == "std":
        raise ConfigError(
            "scaling must be 'mean' or 'predictable' with RLOO, got 'std'. RLOO subtracts a baseline and divides "
            "by nothing. Set AnchorConfig(scaling='predictable')."
        )
    if args.normalize_advantages:
        raise ConfigError(
            "normalize_advantages must be False, got True. Dividing by the batch's spread, which depends on the "
            "draw of anchors, makes corrected rewards biased. Leave it out."
        )
    if args.reward_clip_range:
        raise ConfigError(
            f"reward_clip_range must be left out, got {args.reward_clip_range}. A corrected reward may lie "
            "outside the range of gold, and clipping it is a bias. Use AnchorConfig(correction_clip=...)."
        )
    if hooked and args.beta != 0.0:
        raise ConfigError(
            f"beta must be 0 where trueup's advantages replace RLOO's, got {args.beta}. RLOO's KL penalty is a part "
            "of the reward and would be lost. Use estimator 'corrected', or beta=0."
        )
