"""A training loop of your own: the ten lines at the end. The policy is a softmax over five answers, so it needs no
torch; the proxy is wrong about one of them on purpose, and the few gold scores put that right."""

import numpy as np

import trueup

ANSWERS = ["41", "42", "43", "forty-two", "I refuse"]


def proxy(rollouts):  # cheap, for all; fooled by the longest answer
    return [0.9 if r.completion == "forty-two" else 0.6 if r.completion == "42" else 0.2 for r in rollouts]


def gold(rollouts):  # costly, for the anchors
    return [float(r.completion == r.task) for r in rollouts]


def train(anchored: trueup.AnchoredReward, n_steps: int = 150, seed: int = 0) -> np.ndarray:
    """Probability of each answer after training."""
    rng, logits = np.random.default_rng(seed), np.zeros(len(ANSWERS))
    for _ in range(n_steps):
        policy = np.exp(logits) / np.exp(logits).sum()
        drawn = rng.choice(len(ANSWERS), size=(8, 8), p=policy)  # 8 groups of 8 rollouts
        step = anchored.step([[trueup.Rollout("6*7=?", ANSWERS[a], "42") for a in group] for group in drawn])
        advantages = np.nan_to_num(
            step.advantages
        )  # unscored rollouts say nothing; 0 is an advantage, not a score
        score = np.eye(len(ANSWERS))[drawn] - policy  # gradient of log-probability
        logits += 0.5 * (advantages[..., None] * score).mean(axis=(0, 1))
    return np.exp(logits) / np.exp(logits).sum()


if __name__ == "__main__":
    anchored = trueup.AnchoredReward(proxy, gold, anchor_fraction=0.1, seed=0)
    for answer, share in zip(ANSWERS, train(anchored), strict=True):
        print(f"{answer:10s} {share:.3f}")
