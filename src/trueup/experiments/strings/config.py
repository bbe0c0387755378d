"""Settings of the strings experiment, as its YAML file has them. Unknown keys fail."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trueup.errors import ConfigError, DataError, MissingExtraError
from trueup.loop import CalibrationConfig
from trueup.loop.guard import GuardConfig

__all__ = ["ARMS", "HACKABLE_ARMS", "ArmName", "StringsConfig", "load_config"]

ArmName: TypeAlias = Literal[
    "gold", "gold_budget", "proxy", "wmrl", "control_variate", "corrected", "guarded", "mse"
]
ARMS: tuple[ArmName, ...] = get_args(ArmName)
HACKABLE_ARMS: tuple[ArmName, ...] = ("proxy", "wmrl", "control_variate", "corrected", "guarded", "mse")

Count: TypeAlias = Annotated[int, Field(ge=1)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Model(_Section):
    """The policy: made from nothing at this size, or loaded."""

    name: str | None = None
    """Id of a model on the hub, or a folder. None: one of the size below, made from nothing."""
    vocabulary: Count = 512
    hidden: Count = 128
    layers: Count = 4
    heads: Count = 4
    feed_forward: Count = 384
    context: Count = 192
    """Longest prompt and completion together, in tokens."""


class WarmStart(_Section):
    """Supervised training on the corpus before any reward; 0 steps leave the model as it is."""

    examples: Count = 14_000
    steps: Annotated[int, Field(ge=0)] = 800
    batch_size: Count = 32
    learning_rate: Annotated[float, Field(gt=0)] = 2e-3
    wrong_share: Share = 0.3
    """Share of the corpus's programs that contain a mistake."""
    lazy_share: Share = 0.1
    """Share that do only the first of several operations."""


class Tasks(_Section):
    train: Count = 240
    validation: Count = 40
    held_out: Count = 48
    held_out_families: Count = 24
    depths: tuple[Count, ...] = (2, 3)
    """Operations per task."""
    n_examples: Annotated[int, Field(ge=0)] = 0
    """Pairs of input and output in the specification."""
    describe: bool = True
    """Whether the specification says in words what to do."""


class World(_Section):
    """The world model: fine-tuned on executed rollouts of the warm-started policy, then frozen."""

    rollouts_per_task: Annotated[int, Field(ge=2)] = 8
    epochs: Count = 5
    batch_size: Count = 64
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3


class Rl(_Section):
    """GRPO by TRL, alike for all arms."""

    steps: Count = 40
    groups_per_step: Count = 6
    group_size: Annotated[int, Field(ge=2)] = 8
    learning_rate: Annotated[float, Field(gt=0)] = 3e-4
    temperature: Annotated[float, Field(gt=0)] = 1.0
    max_completion_tokens: Count = 56
    anchor_fraction: Annotated[float, Field(gt=0, le=1)] = 0.1
    correction_clip: Annotated[float, Field(gt=0)] | None = 0.5
    """Bound on the correction of one rollout, of `corrected` and `guarded`, in units of gold. None: unbiased, and with
    few anchors a step too noisy for Adam, which takes steps of one size however little a gradient says."""
    spread_only: bool = True
    """Train on the tasks on which the warm-started policy both passes and fails; on others there is no gradient."""
    loss_type: str = "dr_grpo"
    """As TRL's. dr_grpo is linear in the advantages, so unbiased rewards give an unbiased gradient."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    checkpoint_every: Count = 10
    """Steps between checkpoints: what a kill loses at most."""


class Evaluation(_Section):
    every: Count = 20
    """Steps between measurements on the held-out tasks."""
    samples: Count = 4
    """Programs per held-out task, sampled at the training temperature."""


class StringsConfig(_Section):
    """The whole experiment."""

    seeds: Count = 3
    arms: tuple[ArmName, ...] = ARMS
    hackable_arms: tuple[ArmName, ...] = HACKABLE_ARMS
    seed: int = 0
    """Of tasks, corpus, warm start and world model; the arms' seeds count from 0."""
    gold_delay_ms: Annotated[float, Field(ge=0)] = 0.0
    """Waited out in every gold execution of training, to stand for costlier tests."""
    sandbox_slots: Count = 2
    threads: Count = 1
    """Of torch. More than one is slower for a model of this size."""
    use_cpu: bool = True
    model: Model = Model()
    tasks: Tasks = Tasks()
    warm_start: WarmStart = WarmStart()
    world: World = World()
    rl: Rl = Rl()
    calibration: CalibrationConfig = CalibrationConfig(min_pairs=64, refit_every=32)
    """Of all anchored arms. The loop's own default waits for 200 pairs, which is more than a short run has."""
    guard: GuardConfig = GuardConfig()
    """Of the arm `guarded`; see loop/guard.py."""
    evaluation: Evaluation = Evaluation()

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            faults = "; ".join(
                f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
                for fault in error.errors(include_url=False)
            )
            raise ConfigError(
                f"The configuration must follow docs/strings.md, got {faults}. Nothing was run. Correct it."
            ) from None


def load_config(path: Path, **changes: Any) -> StringsConfig:
    """Read a YAML file; `changes` replace top-level settings.

    Raises:
        DataError: it cannot be read. ConfigError: it holds what is not a setting.
    """
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError("Reading a configuration", "train", error.name or "pyyaml") from None
    try:
        held = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(
            f"The configuration must be a YAML file, got {path} ({str(error).splitlines()[0]}). Nothing was run."
        ) from None
    if held is not None and not isinstance(held, dict):
        raise DataError(
            f"The configuration must be a mapping of settings, got a {type(held).__name__} in {path}. Nothing was run."
        )
    return StringsConfig(**((held or {}) | changes))
