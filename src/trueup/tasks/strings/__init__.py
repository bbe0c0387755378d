"""Short programs on texts and lists: a specification, the body of a Python function, gold by running it.

No part of it needs more than the core; the policy that writes the programs is in `experiments/strings`.
"""

from trueup.tasks.strings.corpus import CorpusConfig, draw_corpus, mutate
from trueup.tasks.strings.gold import SandboxGold, run_gold
from trueup.tasks.strings.grammar import CLAIM, FAMILIES, Call, body_of, source_of
from trueup.tasks.strings.tasks import (
    HELD_OUT_FAMILIES,
    TRAIN_FAMILIES,
    SetSizes,
    StringTask,
    TaskSets,
    draw_task,
    draw_task_sets,
)

__all__ = [
    "CLAIM",
    "FAMILIES",
    "HELD_OUT_FAMILIES",
    "TRAIN_FAMILIES",
    "Call",
    "CorpusConfig",
    "SandboxGold",
    "SetSizes",
    "StringTask",
    "TaskSets",
    "body_of",
    "draw_corpus",
    "draw_task",
    "draw_task_sets",
    "mutate",
    "run_gold",
    "source_of",
]
