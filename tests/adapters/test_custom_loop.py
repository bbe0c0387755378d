"""The example of a loop of one's own does what it says."""

import sys
from pathlib import Path

import pytest

import trueup

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import custom_loop


@pytest.mark.parametrize("seed", [0, 1])
def test_the_custom_loop_learns_the_right_answer_where_the_proxy_alone_learns_the_wrong_one(seed):
    right, wrong = custom_loop.ANSWERS.index("42"), custom_loop.ANSWERS.index("forty-two")
    anchored = trueup.AnchoredReward(custom_loop.proxy, custom_loop.gold, anchor_fraction=0.1, seed=seed)
    assert custom_loop.train(anchored, seed=seed)[right] > 0.9
    alone = trueup.AnchoredReward(custom_loop.proxy, custom_loop.gold, estimator="proxy")
    assert custom_loop.train(alone, seed=seed)[wrong] > 0.9
