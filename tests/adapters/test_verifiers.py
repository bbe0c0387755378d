"""The contract with verifiers 0.4.0: a reward plug-in scored by its own `Task.score`."""

import asyncio
import sys
import types

import pytest

from trueup import AnchoredReward, Rollout
from trueup.adapters import prime_rl
from trueup.adapters.stream import Stream

vf = pytest.importorskip(
    "verifiers.v1", reason="needs verifiers 0.4.0 in an environment of its own (docs/trainers.md)"
)

pytestmark = pytest.mark.filterwarnings("default")


def plugged(gold):
    """A task whose configuration names our reward by path, as a user's would."""
    stream = Stream(
        AnchoredReward(lambda rs: [0.5] * len(rs), gold, estimator="gold", min_anchors_per_step=0)
    )
    module = types.ModuleType("my_run")
    module.reward = prime_rl.reward(stream, lambda task, trace: Rollout(task.prompt, "x"))
    module.reward.__module__ = "my_run"
    sys.modules["my_run"] = module
    data = vf.TaskData(idx=0, prompt="6*7=?")
    config = vf.TaskConfig(rewards={"trueup": {"fn": "my_run:reward"}})
    return vf.Task(data, config), vf.Trace(
        task={"type": "Task", "data": data}, agent={"config": vf.AgentConfig()}
    )


def test_verifiers_records_the_reward_of_a_plugged_function():
    task, trace = plugged(lambda rollouts: [0.75] * len(rollouts))
    asyncio.run(task.score(trace))
    assert trace.reward == 0.75


def test_no_verdict_errors_the_trace_and_records_no_number():
    task, trace = plugged(lambda rollouts: [None] * len(rollouts))
    with pytest.raises(vf.TaskError, match="no verdict"):
        asyncio.run(task.score(trace))
    assert all(value is None for value in trace.rewards.values())
