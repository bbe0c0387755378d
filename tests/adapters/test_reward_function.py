"""The reward function and the loop's two doors for adapters, without torch."""

import json
import sys

import numpy as np
import pytest

from trueup import AnchoredReward, Rollout
from trueup.adapters.ranks import Ranks
from trueup.adapters.reward_function import AnchoredRewardFunction, needs_hook
from trueup.errors import ConfigError
from trueup.loop import AnchorConfig


def proxy(rollouts):
    return [min(len(r.completion) / 10, 1.0) for r in rollouts]


def gold(rollouts):
    return [float(r.completion.endswith("!")) for r in rollouts]


async def slow_gold(rollouts):
    return gold(rollouts)


def brief(rollouts):
    return [
        "fail" if len(r.completion) > 5 else "unknown" if r.completion == "?" else "pass" for r in rollouts
    ]


@pytest.mark.parametrize("scorer", [gold, slow_gold])
def test_an_evaluation_is_constraints_and_gold_and_changes_nothing(scorer):
    loop = AnchoredReward(proxy, scorer, verifiers=[brief])
    before = json.dumps(loop.state_dict())
    found = loop.evaluate([Rollout("p", c) for c in ("a!", "a", "much too long!", "?")])
    assert found.value[:3].tolist() == [1.0, 0.0, 0.0]
    assert np.isnan(found.value[3])
    assert [s.reason for s in found.to_scores()] == [None, None, None, "verifier_unknown"]
    assert json.dumps(loop.state_dict()) == before
    with pytest.raises(ConfigError, match="needs a gold scorer"):
        AnchoredReward(proxy, None).evaluate([Rollout("p", "a")])


def test_routed_scorers_are_asked_in_a_step_and_a_second_route_starts_anew():
    asked = []

    def route(name):
        def scorer(call):
            async def score(rollouts):
                asked.append((name, call.role, len(rollouts)))
                return (await call(rollouts)).to_scores()

            return score

        def verifier(inner):
            def check(rollouts):
                asked.append((name, "verifier", len(rollouts)))
                return inner(rollouts)

            return check

        return scorer, verifier

    groups = [[Rollout("p", c) for c in ("a!", "a", "b")]]
    plain = AnchoredReward(proxy, gold, verifiers=[brief], anchor_fraction=1.0).step(groups)
    loop = AnchoredReward(proxy, gold, verifiers=[brief], anchor_fraction=1.0)
    loop.route(*route("first"))
    routed = loop.step(groups)
    np.testing.assert_array_equal(routed.rewards, plain.rewards)
    assert sorted(asked) == [("first", "gold", 3), ("first", "proxy", 3), ("first", "verifier", 3)]
    asked.clear()
    loop.route(*route("second"))
    loop.step(groups)
    assert {name for name, *_ in asked} == {"second"}
    asked.clear()
    loop.evaluate(groups[0])
    assert asked == []  # an evaluation is this process's own


def test_rows_in_prompt_repeat_order_become_rewards_and_none_where_unscored():
    steps, metrics, extra = [], {}, {}
    loop = AnchoredReward(
        proxy, lambda rs: [None if r.completion == "b" else 1.0 for r in rs], estimator="gold"
    )
    function = AnchoredRewardFunction(loop, 2, on_step=lambda result, groups: steps.append((result, groups)))
    rewards = function(
        ["p", "p", "q", "q"],
        ["a", "b", "c", "d"],
        level=[1, 1, 2, 2],
        family=["x", "x", "y", "y"],
        trainer_state=object(),
        log_metric=metrics.__setitem__,
        log_extra=extra.__setitem__,
    )
    assert rewards == [1.0, None, 1.0, 1.0]
    ((result, groups),) = steps
    assert [[r.task["level"] for r in g] for g in groups] == [[1, 1], [2, 2]]
    assert result.record.families == ("x", "y")
    assert metrics["trueup/failure/abstained"] == 0.25
    assert extra["trueup_gold"] == [1.0, None, 1.0, 1.0]
    local, everyone = function.advantages()
    assert local.tolist() == everyone.tolist() == [0.0, 0.0, 0.0, 0.0]
    function.evaluating = True
    assert function(["p"] * 3, ["a", "b", "c"]) == [1.0, None, 1.0]  # no groups needed
    assert len(steps) == 1


def test_without_torch_there_is_one_rank_and_torch_is_not_loaded_for_it():
    ranks = Ranks()
    assert (ranks.size, ranks.index, ranks.share("x")) == (1, 0, ["x"])
    loop = AnchoredReward(proxy, gold)
    before = loop._proxy
    ranks.spread(loop)
    assert loop._proxy is before
    code = "import sys, trueup.adapters.reward_function; sys.exit('torch' in sys.modules)"
    import subprocess

    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("estimator", "hook"),
    [("corrected", False), ("adaptive", False), ("gold", False), ("proxy", False), ("gold_budget", False),
     ("wmrl", True), ("control_variate", True), ("mse", True)],
)  # fmt: skip
def test_only_advantages_that_are_no_centred_rewards_need_a_hook(estimator, hook):
    assert needs_hook(AnchorConfig(estimator=estimator)) is hook
