"""One cell of the experiment: one arm, one seed, one world model, trained by TRL's GRPO trainer.

A cell lives in a folder of its own: checkpoints (each with the loop's state, and a mark that it is whole), the run log,
one small file per evaluation. A cell that was killed goes on from its last whole checkpoint; steps that are run
again replace their rows in the log and reproduce them, because sampling, anchors and data order are functions of the
checkpoint alone. Evaluations sample with a state of their own and leave the training's untouched.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trueup.adapters.trl import AnchoredGRPOTrainer
from trueup.errors import MissingExtraError
from trueup.experiments.store import write_json
from trueup.experiments.strings.config import ArmName, StringsConfig
from trueup.experiments.strings.meter import Meter
from trueup.experiments.strings.policy import Policy, sample
from trueup.experiments.strings.prepare import Prepared
from trueup.experiments.strings.verdicts import Verdicts
from trueup.loop import AnchorConfig, AnchoredReward
from trueup.runlog import RunLog, RunReader
from trueup.sandbox import Sandbox
from trueup.tasks.strings import SandboxGold, StringTask
from trueup.types import Group, Rollout, StepRecord, StepResult

try:
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOConfig
except ImportError as error:
    raise MissingExtraError("The strings experiment", "train", error.name or "trl") from None

__all__ = ["arm_config", "evaluate", "train_cell"]

_WHOLE = "whole"  # the mark in a checkpoint that was written to its end
_EVALUATION_SEED = 20_000


def arm_config(arm: ArmName, config: StringsConfig, seed: int) -> AnchorConfig:
    """The loop of an arm. All but the published method divide by the spread of earlier steps, so that the arms
    differ in what they learn from and not in how a step is scaled."""
    settings: dict[str, Any] = {
        "anchor_fraction": config.rl.anchor_fraction,
        "seed": seed,
        "min_anchors_per_step": 0,
        "calibration": config.calibration,
        "estimator": "corrected" if arm == "guarded" else arm,
    }
    if arm != "wmrl":
        settings["scaling"] = "predictable"
    if arm in ("corrected", "guarded"):
        settings["correction_clip"] = config.rl.correction_clip
    if arm == "mse":
        settings["unit"] = "rollout"
    if arm == "guarded":
        settings["guard"] = config.guard
    return AnchorConfig(**settings)


class _TimedTrainer(AnchoredGRPOTrainer):
    """Measures generation and scoring; what is left of a step is the update."""

    meter: Meter

    def _generate(self, *args: Any, **options: Any) -> Any:
        with self.meter.measure("generate"):
            return super()._generate(*args, **options)

    def _calculate_rewards(self, *args: Any, **options: Any) -> Any:
        with self.meter.measure("reward"):
            return super()._calculate_rewards(*args, **options)


class _Timed:
    """A scorer whose time is measured under a name."""

    def __init__(self, scorer: Any, meter: Meter, name: str) -> None:
        self._scorer, self._meter, self._name = scorer, meter, name
        self.version = scorer.version

    def score(self, rollouts: Sequence[Rollout]) -> Any:
        with self._meter.measure(self._name):
            return self._scorer.score(rollouts)


class _Steps(TrainerCallback):  # type: ignore[misc]
    """Writes each finished step to the log with what it took, evaluates, and marks whole checkpoints."""

    def __init__(self, meter: Meter, log: RunLog, every: int, on_evaluate: Callable[[int], None]) -> None:
        self._meter, self._log, self._every, self._on_evaluate = meter, log, every, on_evaluate
        self._record: StepRecord | None = None

    def on_result(self, result: StepResult, groups: Sequence[Group]) -> None:
        self._record = result.record

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._meter.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        seconds = self._meter.stop()
        if self._record is not None:
            metrics = dict(self._record.metrics) | {f"timing_s/{k}": v for k, v in seconds.items()}
            costs = {f"{name}_s": value for name, value in seconds.items()}
            self._log.append(dataclasses.replace(self._record, metrics=metrics), costs=costs)
            self._record = None
        if state.global_step % self._every == 0 or state.global_step == state.max_steps:
            self._on_evaluate(state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        (Path(args.output_dir) / f"checkpoint-{state.global_step}" / _WHOLE).touch()


def train_cell(
    prepared: Prepared,
    config: StringsConfig,
    world: str,
    arm: ArmName,
    seed: int,
    folder: Path,
    sandbox: Sandbox,
    verdicts: Verdicts,
    on_step: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Train one cell to its end, from wherever it stands, and return what it found (`_summary`)."""
    policy, meter = prepared.policy(), Meter()
    folder.mkdir(parents=True, exist_ok=True)
    gold = SandboxGold(sandbox, config.gold_delay_ms / 1000)
    anchored = AnchoredReward(
        proxy=_Timed(prepared.worlds[world], meter, "proxy"),
        gold=_Timed(gold, meter, "sandbox"),
        config=arm_config(arm, config, seed),
    )
    tasks = prepared.tasks

    def to_rollout(prompt: Any, completion: Any, columns: Any) -> Rollout:
        task = tasks[columns["task"]]
        return Rollout(prompt, completion, task, task.family)

    def measure(step: int) -> None:
        rates = evaluate(policy, prepared.sets.held_out, config, seed, sandbox, verdicts)
        write_json(folder / f"evaluation-{step}.json", {"step": step, "pass_by_task": rates})
        if on_step is not None:
            on_step(step)

    with RunLog(folder / "log", config=config.model_dump(mode="json"), seeds={"arm": seed}) as log:
        steps = _Steps(meter, log, config.evaluation.every, measure)
        trainer = _TimedTrainer(
            policy.model,
            anchored=anchored,
            args=_grpo(config, anchored.config, seed, folder),
            train_dataset=Dataset.from_list(
                [{"prompt": task.prompt, "task": i} for i, task in enumerate(tasks)]
            ),
            processing_class=policy.tokenizer,
            to_rollout=to_rollout,
            on_step=steps.on_result,
            callbacks=[steps],
        )
        trainer.meter = meter
        trainer.remove_callback(PrinterCallback)  # it writes to standard output
        checkpoint = _newest_whole(folder)
        if checkpoint is None and not (folder / "evaluation-0.json").exists():
            measure(0)
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    return _summary(folder, world, arm, seed)


def _grpo(config: StringsConfig, anchors: AnchorConfig, seed: int, folder: Path) -> Any:
    rl = config.rl
    return GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=rl.groups_per_step * rl.group_size,
        num_generations=rl.group_size,
        max_completion_length=rl.max_completion_tokens,
        max_steps=rl.steps,
        learning_rate=rl.learning_rate,
        lr_scheduler_type="constant",
        max_grad_norm=rl.max_grad_norm,
        temperature=rl.temperature,
        top_k=0,
        loss_type=rl.loss_type,
        scale_rewards="group" if anchors.advantage_scaling == "std" else "none",
        save_strategy="steps",
        save_steps=rl.checkpoint_every,
        save_total_limit=2,
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        gradient_checkpointing=False,
        dataloader_pin_memory=False,
        use_cpu=config.use_cpu,
        bf16=not config.use_cpu,
        seed=seed,
    )


def _newest_whole(folder: Path) -> Path | None:
    marks = folder.glob(f"checkpoint-*/{_WHOLE}")
    return max((mark.parent for mark in marks), key=lambda p: int(p.name.split("-")[1]), default=None)


def evaluate(
    policy: Policy,
    tasks: Sequence[StringTask],
    config: StringsConfig,
    seed: int,
    sandbox: Sandbox,
    verdicts: Verdicts,
) -> list[float | None]:
    """Share of sampled programs that pass in full, per task. It costs the arm no gold: verdicts of evaluations are
    remembered over arms, and not counted."""
    bodies = sample(
        policy,
        [task.prompt for task in tasks],
        config.evaluation.samples,
        config.rl.max_completion_tokens,
        seed=_EVALUATION_SEED + seed,
        temperature=config.rl.temperature,
    )
    gold = verdicts.grade(sandbox, tasks, bodies)
    rates = []
    for row in gold:
        known = row[~np.isnan(row)]
        rates.append(float((known >= 1.0).mean()) if known.size else None)
    return rates


def _summary(folder: Path, world: str, arm: ArmName, seed: int) -> dict[str, Any]:
    """The cell as plain data: totals, and the held-out pass rate over steps, gold executions and seconds."""
    with RunReader(folder / "log") as reader:
        rows = reader.steps()
    names = ("generate", "proxy", "sandbox", "update", "trueup", "step")
    seconds = {n: sum(row["metrics"][f"timing_s/{n}"] for row in rows) for n in names}
    evaluations = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("evaluation-*.json")]
    curve = []
    for held in sorted(evaluations, key=lambda e: int(e["step"])):
        before = [row for row in rows if row["step"] < held["step"]]  # the loop counts its steps from 0
        known = [rate for rate in held["pass_by_task"] if rate is not None]
        curve.append(
            {
                "step": held["step"],
                "pass_rate": float(np.mean(known)),
                "gold_executions": sum(row["n_gold_queries"] for row in before),
                "seconds": sum(row["metrics"]["timing_s/step"] for row in before),
                "pass_by_task": held["pass_by_task"],
            }
        )
    return {
        "world": world,
        "arm": arm,
        "seed": seed,
        "steps": len(rows),
        "gold_executions": sum(row["n_gold_queries"] for row in rows),
        "rollouts": sum(row["n_rollouts"] for row in rows),
        "seconds": seconds,
        "guard_events": [
            {"step": row["step"], "event": note}
            for row in rows
            for note in row["notes"]
            if note.startswith("guard:")
        ],
        "curve": curve,
    }


# TRL warns of every row that an arm leaves unscored on purpose, the adapter of every event that the log has anyhow.
for _name in ("trl.trainer.grpo_trainer", "trueup.adapters"):
    logging.getLogger(_name).setLevel(logging.ERROR)
