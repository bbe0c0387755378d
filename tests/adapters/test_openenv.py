"""The contract with openenv 0.10.0: a rubric called by its own machinery."""

import asyncio
from types import SimpleNamespace

import pytest

from trueup import AnchoredReward, Rollout
from trueup.adapters.openenv import rubric
from trueup.adapters.stream import Stream

rubrics = pytest.importorskip(
    "openenv.core.rubrics", reason="needs openenv 0.10.0 in an environment of its own (docs/trainers.md)"
)

pytestmark = pytest.mark.filterwarnings("default")


def verdict(gold):
    stream = Stream(
        AnchoredReward(lambda rs: [0.5] * len(rs), gold, estimator="gold", min_anchors_per_step=0)
    )
    made = rubric(stream, lambda action, observation: Rollout(observation.prompt, action.text))
    seen = []
    made.register_forward_hook(lambda r, action, observation, result: seen.append(result))
    assert isinstance(made, rubrics.Rubric)
    result = asyncio.run(made(SimpleNamespace(text="42"), SimpleNamespace(prompt="6*7=?")))
    return result, seen, made


def test_a_rubric_gives_the_corrected_reward_and_its_hooks_see_it():
    result, seen, made = verdict(lambda rollouts: [float(r.completion == "42") for r in rollouts])
    assert result == 1.0
    assert seen == [1.0]
    assert made.last_score == 1.0


def test_no_verdict_is_none_and_never_zero():
    result, seen, _ = verdict(lambda rollouts: [None] * len(rollouts))
    assert result is None
    assert seen == [None]
