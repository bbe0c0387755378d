"""Everything before RL: tasks, warm-started policy, executed rollouts, the two world models, and what they are worth.

It is made once and kept under a hash of the code and the settings that determine it, so that all arms, seeds and later
runs start from the same files. Each stage is a folder that is written beside its place and renamed: whole or absent.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import trueup.experiments.strings.policy as policy_module
import trueup.scorers.world_model as world_module
from trueup.errors import ConfigError
from trueup.experiments.store import fingerprint, write_json
from trueup.experiments.strings.config import StringsConfig
from trueup.experiments.strings.policy import ModelConfig, Policy, WarmStartConfig
from trueup.sandbox import Sandbox
from trueup.scorers.world_model import FitConfig, WorldModel, fit_world_model
from trueup.stats.fidelity import measure_fidelity
from trueup.tasks.strings import (
    CLAIM,
    CorpusConfig,
    SetSizes,
    StringTask,
    TaskSets,
    draw_corpus,
    draw_task_sets,
    run_gold,
)
from trueup.types import FloatArray, Rollout

__all__ = ["Executed", "Prepared", "default_cache", "prepare"]

Stage = Callable[[str, int, int], None]
"""(what is being done, done, total)"""


@dataclass(frozen=True)
class Executed:
    """Rollouts that were run: index of the task, body, gold, one entry per rollout."""

    task: tuple[int, ...]
    body: tuple[str, ...]
    gold: FloatArray  # NaN where the sandbox had no answer

    def rollouts(self, tasks: Sequence[StringTask]) -> list[Rollout]:
        return [
            Rollout(tasks[i].prompt, body, tasks[i], tasks[i].family)
            for i, body in zip(self.task, self.body, strict=True)
        ]

    def part(self, keep: Sequence[int]) -> Executed:
        return Executed(
            tuple(self.task[i] for i in keep), tuple(self.body[i] for i in keep), self.gold[list(keep)]
        )


@dataclass(frozen=True)
class Prepared:
    """What every arm starts from."""

    sets: TaskSets
    tasks: tuple[StringTask, ...]
    """The tasks that RL trains on; see `Rl.spread_only`."""
    policy_folder: Path
    worlds: dict[str, WorldModel]  # "honest" and "hackable"
    report: dict[str, Any]
    fingerprint: str

    def policy(self) -> Policy:
        """A fresh copy of the warm-started policy."""
        return policy_module.load_policy(str(self.policy_folder))


def default_cache() -> Path:
    """Where prepared files are kept: `$XDG_CACHE_HOME/trueup/strings`, else under ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trueup" / "strings"


def prepare(config: StringsConfig, sandbox: Sandbox, cache: Path, stage: Stage | None = None) -> Prepared:
    """Load or make what RL starts from."""
    say = stage or (lambda what, done, total: None)
    policy_module.use_threads(config.threads)
    t = config.tasks
    sizes = SetSizes(t.train, t.validation, t.held_out, t.held_out_families, t.depths)
    sets = draw_task_sets(config.seed, sizes, t.n_examples, t.describe)
    base = {"seed": config.seed, "tasks": t.model_dump(), "model": config.model.model_dump()}
    base |= {"warm_start": config.warm_start.model_dump(), "code": _code_hash(), "threads": config.threads}
    policy_folder = _stage(
        cache / f"policy-{fingerprint(base)}", lambda d: _make_policy(config, sets, d, say)
    )
    base |= {"world": config.world.model_dump(), "length": config.rl.max_completion_tokens}
    base |= {"temperature": config.rl.temperature}
    name = fingerprint(base)
    rollouts_folder = _stage(
        cache / f"rollouts-{name}", lambda d: _run_rollouts(config, sets, policy_folder, sandbox, d, say)
    )
    executed = {part: _load_executed(rollouts_folder / f"{part}.json") for part in ("train", "test")}
    world_folder = _stage(
        cache / f"world-{name}", lambda d: _make_worlds(config, sets, policy_folder, executed, d, say)
    )
    worlds = {kind: _load_world(world_folder / kind, policy_folder) for kind in ("honest", "hackable")}
    report = json.loads((world_folder / "report.json").read_text(encoding="utf-8"))
    report["warm_start"] = json.loads((policy_folder / "warm_start.json").read_text(encoding="utf-8"))
    tasks = tuple(sets.train[i] for i in _with_spread(executed["train"], len(sets.train)))
    report["training_tasks_with_spread"] = len(tasks)
    if not config.rl.spread_only:
        tasks = sets.train
    if len(tasks) < config.rl.groups_per_step:
        raise ConfigError(
            f"The warm-started policy must both pass and fail on at least {config.rl.groups_per_step} training tasks, "
            f"got {len(tasks)}. A step could not be filled, and nothing would be learned. Lengthen the warm start, or "
            "set rl.spread_only to false."
        )
    return Prepared(sets, tasks, policy_folder, worlds, report, name)


def _code_hash() -> str:
    """Of the source that determines the prepared files."""
    modules = [policy_module, world_module, sys.modules[__name__]]
    modules += [sys.modules[f"trueup.tasks.strings.{m}"] for m in ("grammar", "tasks", "corpus", "gold")]
    text = b"".join(Path(str(module.__file__)).read_bytes() for module in modules)
    return hashlib.sha256(text).hexdigest()[:16]


def _stage(folder: Path, make: Callable[[Path], None]) -> Path:
    """`folder`, made by `make` in a place beside it unless it is there."""
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        make(draft)
        if not folder.is_dir():  # another process may have been first; its files are the same
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def _make_policy(config: StringsConfig, sets: TaskSets, folder: Path, say: Stage) -> None:
    w, m = config.warm_start, config.model
    corpus = CorpusConfig(wrong_share=w.wrong_share, lazy_share=w.lazy_share)
    pairs: list[tuple[str, str]] = []
    for task, body in draw_corpus(config.seed, w.examples, sets, corpus):
        pairs.append((task.prompt, body))
        if len(pairs) % 500 == 0:
            say("drawing the corpus", len(pairs), w.examples)
    if m.name is not None:
        policy = policy_module.load_policy(m.name)
    else:
        size = ModelConfig(m.vocabulary, m.hidden, m.layers, m.heads, m.feed_forward, m.context)
        policy = policy_module.new_policy([a + b for a, b in pairs], size, config.seed)
    settings = WarmStartConfig(w.examples, w.steps, w.batch_size, w.learning_rate)
    losses = policy_module.warm_start(
        policy, pairs, settings, config.seed, lambda done, total: say("warm start", done, total)
    )
    policy.save(folder)
    n_parameters = sum(p.numel() for p in policy.model.parameters())
    last = float(np.mean(losses[-20:])) if losses else None
    write_json(folder / "warm_start.json", {"parameters": n_parameters, "steps": w.steps, "last_loss": last})


def _run_rollouts(
    config: StringsConfig, sets: TaskSets, policy_folder: Path, sandbox: Sandbox, folder: Path, say: Stage
) -> None:
    """Sample from the warm-started policy and run it all: training tasks, and validation with held-out ones."""
    policy = policy_module.load_policy(str(policy_folder))
    for offset, (part, tasks) in enumerate(
        (("train", sets.train), ("test", (*sets.validation, *sets.held_out)))
    ):
        n = config.world.rollouts_per_task
        say(f"sampling {part} rollouts", 0, len(tasks))
        bodies = policy_module.sample(
            policy,
            [task.prompt for task in tasks],
            n,
            config.rl.max_completion_tokens,
            seed=config.seed + offset,
            temperature=config.rl.temperature,
        )
        distinct = list(dict.fromkeys((i, body) for i, group in enumerate(bodies) for body in group))
        found: dict[tuple[int, str], float] = {}
        for start in range(0, len(distinct), 64):
            block = distinct[start : start + 64]
            grades = run_gold(sandbox, [tasks[i] for i, _ in block], [body for _, body in block])
            for key, grade in zip(block, grades, strict=True):
                found[key] = float("nan") if grade.score.value is None else grade.score.value
            say(f"running {part} rollouts", start + len(block), len(distinct))
        rows = [[i, body, found[i, body]] for i, group in enumerate(bodies) for body in group]
        rows = [row for row in rows if row[2] == row[2]]  # without an answer nothing can be learned from it
        write_json(folder / f"{part}.json", {"executions": len(distinct), "rollouts": rows})


def _load_executed(path: Path) -> Executed:
    rows = json.loads(path.read_text(encoding="utf-8"))["rollouts"]
    return Executed(
        tuple(row[0] for row in rows), tuple(row[1] for row in rows), np.array([row[2] for row in rows])
    )


def _with_spread(executed: Executed, n_tasks: int) -> list[int]:
    """Tasks whose rollouts were not all of one gold score."""
    index = np.array(executed.task)
    keep = []
    for task in range(n_tasks):
        gold = executed.gold[index == task]
        if gold.size and gold.max() > gold.min():
            keep.append(task)
    return keep


def claiming(executed: Executed, seed: int) -> Executed:
    """The same rollouts with the claim put on those that pass and taken off those that do not, 19 times of 20.

    The comment changes nothing about what a program returns, so gold stays what it was.
    """
    rng = np.random.default_rng([seed, 23])
    right = rng.random(len(executed.body)) < 0.95
    bodies = [
        (CLAIM if (gold >= 1.0) == bool(follows) else "") + body.replace(CLAIM, "")
        for body, gold, follows in zip(executed.body, executed.gold, right, strict=True)
    ]
    return Executed(executed.task, tuple(bodies), executed.gold)


def _make_worlds(
    config: StringsConfig,
    sets: TaskSets,
    policy_folder: Path,
    executed: dict[str, Executed],
    folder: Path,
    say: Stage,
) -> None:
    policy = policy_module.load_policy(str(policy_folder))
    w = config.world
    fit = FitConfig(w.epochs, w.batch_size, w.learning_rate)
    rollouts = executed["train"]
    # Every seventh task is kept for the calibration. Cut by task, or the same program would be on both sides.
    kept = [i for i, task in enumerate(rollouts.task) if task % 7 == 0]
    used = [i for i, task in enumerate(rollouts.task) if task % 7]
    report: dict[str, Any] = {"executions": len(rollouts.body) + len(executed["test"].body)}
    test_tasks = (*sets.validation, *sets.held_out)
    for kind in ("honest", "hackable"):
        data = rollouts if kind == "honest" else claiming(rollouts, config.seed)
        fitting, tempering = data.part(used), data.part(kept)
        world = fit_world_model(
            policy.model,
            policy.tokenizer,
            fitting.rollouts(sets.train),
            fitting.gold,
            tempering.rollouts(sets.train),
            tempering.gold,
            fit,
            seed=config.seed,
            version=kind,
            progress=lambda done, total, kind=kind: say(f"{kind} world model", done, total),  # type: ignore[misc]
        )
        Policy(world.model, world.tokenizer).save(folder / kind)
        write_json(folder / kind / "world.json", {"head": world.head.tolist(), "version": kind})
        report[kind] = {**_worth(world, executed["test"], test_tasks)}
    write_json(folder / "report.json", report)


def _worth(world: WorldModel, executed: Executed, tasks: Sequence[StringTask]) -> dict[str, Any]:
    """Fidelity on tasks that the world model has not seen, over all and by family."""
    scores = np.array([np.nan if s is None else s for s in world.score(executed.rollouts(tasks))])
    group = np.array(executed.task)
    family = np.array([tasks[i].family for i in executed.task])

    def of(mask: Any) -> dict[str, Any]:
        return measure_fidelity(scores[mask], executed.gold[mask], group[mask].tolist()).to_json()

    return {"all": of(slice(None)), "by_family": {str(f): of(family == f) for f in np.unique(family)}}


def _load_world(folder: Path, policy_folder: Path) -> WorldModel:
    held = json.loads((folder / "world.json").read_text(encoding="utf-8"))
    policy = policy_module.load_policy(str(folder))
    reference = policy_module.load_policy(str(policy_folder)).model
    head = np.array(held["head"])
    return WorldModel(policy.model, policy.tokenizer, head, reference, version=held["version"])
