"""The quickstart of the README: one step of an anchored reward."""

import trueup


def proxy(rollouts):  # cheap, runs on every rollout, may be wrong
    return [min(len(r.completion) / 20, 1.0) for r in rollouts]


def gold(rollouts):  # costly, runs on the anchors; None means "could not tell"
    return [float(r.completion.endswith(r.task["answer"])) for r in rollouts]


reward = trueup.AnchoredReward(proxy, gold, anchor_fraction=0.1, seed=0)
step = reward.step([[trueup.Rollout("6*7=?", c, {"answer": "42"}) for c in ("42", "41", "It is 42")]])
print(step.advantages)  # (n_groups, group_size), NaN where unscored
