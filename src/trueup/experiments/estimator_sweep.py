"""Which estimator wins where: a sweep over proxies, budgets and sizes, all seeds in one array.

The demo trains through the reward classes, one run at a time. Here S runs advance together: the same pure
functions (`trueup.stats`), with a leading axis of seeds. What those have no leading axis for is done run by run
(propensities, the estimate of the scale) or restated for many runs at once and tested against the original (the
draw, the isotonic fit).

The task is one prompt with 20 completions whose gold is spread evenly over (0, 1). The proxy is a Gaussian copula
with a chosen rank correlation to gold and gold's own marginal distribution, so nothing but its ranking varies.
`noise` is the share of the proxy's error variance that is drawn anew at each reading; the rest belongs to the
completion and never averages out. Seeds differ in everything: standing errors, samples, readings, anchors.

Arms: as in the demo, with two differences. `wmrl_cap` is the published plug-in with its anchor weight held at its
cap of 4, the value most favourable to gold. Calibration is isotonic over ten equal bins of all anchors so far.

Two figures per arm and point: the exact expected gold reward after training, and the squared error of one step's
policy gradient against the gradient from all gold of the same rollouts, relative to that of `gold_budget`. The
gradient is taken at the untrained policy, after 20 steps in which the arm only learned about the proxy.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from trueup.experiments.summary import mean_and_se, none_if_nan
from trueup.experiments.sweep_memory import Memory
from trueup.stats.advantages import linear_advantages, standardized_advantages
from trueup.stats.fusion import control_variate_advantages, corrected_rewards, within_group_variance
from trueup.stats.sampling import active_propensities
from trueup.tasks.judges import copula_scores, latent_of_uniform
from trueup.types import BoolArray, FloatArray, IntArray

__all__ = [
    "SWEEP_ARMS",
    "SweepArm",
    "SweepPoint",
    "default_points",
    "full_points",
    "gradient_errors",
    "run_point",
    "systematic_samples",
    "train",
]

SweepArm = Literal[
    "gold", "proxy", "gold_budget", "wmrl_cap", "control_variate", "corrected_uniform", "corrected"
]
SWEEP_ARMS: tuple[SweepArm, ...] = get_args(SweepArm)
_ROLLOUT_ARMS = ("corrected_uniform", "corrected")

LEARNING_RATES = (0.5, 1.0, 2.0, 4.0)
_K = 20  # completions
_N = 8  # rollouts per group
_WEIGHT_CAP = 4.0
_TUNING_SEEDS = 1_000_000
_UNIFORM_MIX = 0.3
_BURN_IN = 20  # steps before the gradient is measured


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One place of the sweep. Correlation and fractions have no unit; n_groups counts groups per step."""

    rank_correlation: float = 0.6
    anchor_fraction: float = 0.1
    noise: float = 0.5
    n_groups: int = 10


RANK_CORRELATIONS = (-0.3, 0.0, 0.3, 0.6, 0.85, 0.95, 0.99)
ANCHOR_FRACTIONS = (0.005, 0.025, 0.05, 0.1, 0.25, 0.5)
NOISES = (0.0, 0.5, 1.0)
GROUP_COUNTS = (4, 10, 64)


def default_points() -> tuple[SweepPoint, ...]:
    """One factor at a time around the middle point."""
    middle = SweepPoint()
    points = [replace(middle, rank_correlation=value) for value in RANK_CORRELATIONS]
    points += [replace(middle, anchor_fraction=value) for value in ANCHOR_FRACTIONS]
    points += [replace(middle, noise=value) for value in NOISES]
    points += [replace(middle, n_groups=value) for value in GROUP_COUNTS]
    return tuple(dict.fromkeys(points))


def full_points() -> tuple[SweepPoint, ...]:
    """Every combination."""
    grid = itertools.product(RANK_CORRELATIONS, ANCHOR_FRACTIONS, NOISES, GROUP_COUNTS)
    return tuple(SweepPoint(*values) for values in grid)


def run_point(point: SweepPoint, n_seeds: int, n_steps: int = 60) -> list[dict[str, Any]]:
    """One row per arm: the point, the arm, final gold reward and relative gradient error, each with a standard
    error over seeds, and the learning rate with the grid it was chosen from (on other seeds)."""
    tuning = range(_TUNING_SEEDS, _TUNING_SEEDS + max(n_seeds // 2, 2))
    errors_AS = gradient_errors(point, range(n_seeds))
    yardstick = float(errors_AS["gold_budget"].mean())
    if yardstick <= 0.0:
        yardstick = float("nan")
    rows = []
    for arm in SWEEP_ARMS:
        grid = {rate: float(train(point, arm, rate, tuning, n_steps).mean()) for rate in LEARNING_RATES}
        best = max(grid, key=lambda rate: grid[rate])
        final, final_se = mean_and_se(train(point, arm, best, range(n_seeds), n_steps))
        error, error_se = mean_and_se(errors_AS[arm] / yardstick)
        rows.append(
            {
                **asdict(point),
                "arm": arm,
                "final_gold_reward": {"mean": float(final), "se": none_if_nan(float(final_se))},
                "gradient_error": {
                    "mean": none_if_nan(float(error)),
                    "se": none_if_nan(float(error_se)),
                },
                "learning_rate": best,
                "learning_rates": {str(rate): value for rate, value in grid.items()},
            }
        )
    return rows


@dataclass(frozen=True, slots=True)
class _World:
    """Chance and truth of S runs."""

    gold_K: FloatArray
    latent_K: FloatArray
    standing_SK: FloatArray  # error of the proxy that belongs to the completion
    uniforms_STGN: FloatArray
    fresh_STGN: FloatArray  # error of one reading
    lottery_STU: FloatArray  # the random order of a step's rollouts, for the draw of anchors
    start_ST: FloatArray  # the one number that decides it

    @classmethod
    def draw(cls, point: SweepPoint, seeds: Sequence[int], n_steps: int) -> _World:
        gold_K = (np.arange(_K) + 0.5) / _K
        shape = (n_steps, point.n_groups, _N)
        drawn = []
        for seed in seeds:
            rng = np.random.default_rng([seed, 0x5357])
            drawn.append(
                (
                    rng.standard_normal(_K),
                    rng.random(shape),
                    rng.standard_normal(shape),
                    rng.random((n_steps, point.n_groups * _N)),
                    rng.random(n_steps),
                )
            )
        return cls(
            gold_K, latent_of_uniform(gold_K), *(np.stack(parts) for parts in zip(*drawn, strict=True))
        )

    def draw_anchors(self, pi_SU: FloatArray, step: int) -> BoolArray:
        return systematic_samples(pi_SU, self.lottery_STU[:, step, : pi_SU.shape[1]], self.start_ST[:, step])

    def proxy(self, point: SweepPoint, chosen_SGN: IntArray, step: int) -> FloatArray:
        run_S11 = np.arange(chosen_SGN.shape[0])[:, None, None]
        standing = self.standing_SK[run_S11, chosen_SGN]
        error = np.sqrt(1.0 - point.noise) * standing + np.sqrt(point.noise) * self.fresh_STGN[:, step]
        return copula_scores(self.latent_K[chosen_SGN], error, point.rank_correlation)


def train(
    point: SweepPoint, arm: SweepArm, learning_rate: float, seeds: Sequence[int], n_steps: int
) -> FloatArray:
    """Exact expected gold reward after `n_steps`, one per seed, (S,)."""
    world = _World.draw(point, seeds, n_steps)
    n_seeds = len(seeds)
    logits_SK = np.zeros((n_seeds, _K))
    p_SK = np.full((n_seeds, _K), 1.0 / _K)
    memory = Memory(n_seeds)
    for step in range(n_steps):
        chosen_SGN = _sample(p_SK, world.uniforms_STGN[:, step])
        influence_SGN = _influence(p_SK, chosen_SGN)
        advantages_SGN = _advantages(point, arm, world, step, chosen_SGN, influence_SGN, memory)
        logits_SK += learning_rate * _gradient(advantages_SGN, chosen_SGN, p_SK)
        p_SK = np.exp(logits_SK - logits_SK.max(axis=1, keepdims=True))
        p_SK /= p_SK.sum(axis=1, keepdims=True)
    return np.asarray(p_SK @ world.gold_K)


def gradient_errors(point: SweepPoint, seeds: Sequence[int]) -> dict[SweepArm, FloatArray]:
    """Squared distance of each arm's gradient from that of all gold on the same rollouts, (S,) per arm, after
    `_BURN_IN` steps without an update of the policy.

    Rollout arms use linear advantages and are compared with the linear gold gradient; both are in units of the gold
    gradient's mean square, so that arms with different scalings can be read side by side.
    """
    world = _World.draw(point, seeds, _BURN_IN + 1)
    p_SK = np.full((len(seeds), _K), 1.0 / _K)
    errors: dict[SweepArm, FloatArray] = {}
    for arm in SWEEP_ARMS:
        memory = Memory(len(seeds))
        for step in range(_BURN_IN + 1):
            chosen = _sample(p_SK, world.uniforms_STGN[:, step])
            gold = world.gold_K[chosen]
            scale = memory.scale()[:, None, None]
            got = _advantages(point, arm, world, step, chosen, _influence(p_SK, chosen), memory)
        wanted = linear_advantages(gold, scale) if arm in _ROLLOUT_ARMS else standardized_advantages(gold)
        target = _gradient(wanted, chosen, p_SK)
        distance = ((_gradient(got, chosen, p_SK) - target) ** 2).sum(axis=1)
        errors[arm] = np.asarray(distance / (target**2).sum(axis=1).mean())
    return errors


def _advantages(
    point: SweepPoint,
    arm: SweepArm,
    world: _World,
    step: int,
    chosen_SGN: IntArray,
    influence_SGN: FloatArray,
    memory: Memory,
) -> FloatArray:
    """One step of one arm: advantages, (S, G, N); `memory` learns after they are formed."""
    gold = world.gold_K[chosen_SGN]
    if arm == "gold":
        return standardized_advantages(gold)
    proxy = world.proxy(point, chosen_SGN, step)
    if arm == "proxy":
        return standardized_advantages(proxy)
    if arm in _ROLLOUT_ARMS:
        return _corrected(point, arm, world, step, proxy, gold, influence_SGN, memory)
    pi_SG = np.full(gold.shape[:2], point.anchor_fraction)
    anchored_SG = world.draw_anchors(pi_SG, step)
    here = anchored_SG[..., None]
    gold_adv = standardized_advantages(gold)
    if arm == "gold_budget":
        return np.where(here, gold_adv, np.nan)
    calibrated = memory.calibrate(proxy)
    proxy_adv = standardized_advantages(calibrated)
    if arm == "wmrl_cap":
        result = np.where(here, _WEIGHT_CAP * gold_adv, proxy_adv)
    else:
        coefficient = memory.coefficient()[:, None, None]
        result = control_variate_advantages(coefficient * proxy_adv, gold_adv, anchored_SG, pi_SG)
        memory.learn_coefficient(proxy_adv, gold_adv, anchored_SG)
    anchored, pi = (np.broadcast_to(a[..., None], gold.shape) for a in (anchored_SG, pi_SG))
    memory.learn_pairs(proxy, calibrated, gold, anchored, pi)
    return result


def _corrected(
    point: SweepPoint,
    arm: SweepArm,
    world: _World,
    step: int,
    proxy: FloatArray,
    gold: FloatArray,
    influence_SGN: FloatArray,
    memory: Memory,
) -> FloatArray:
    n_seeds, n_rollouts = gold.shape[0], gold[0].size
    calibrated = memory.calibrate(proxy)
    pi_SU = np.full((n_seeds, n_rollouts), point.anchor_fraction)
    if arm == "corrected":
        variance = memory.residual_variance(calibrated).reshape(n_seeds, -1)
        influence = influence_SGN.reshape(n_seeds, -1)
        budget = point.anchor_fraction * n_rollouts
        for run in range(n_seeds):
            pi_SU[run] = active_propensities(variance[run], influence[run], budget, _UNIFORM_MIX)
    anchored = world.draw_anchors(pi_SU, step).reshape(gold.shape)
    pi = pi_SU.reshape(gold.shape)
    rewards = corrected_rewards(calibrated, gold, anchored, pi)
    advantages = linear_advantages(rewards, memory.scale()[:, None, None])
    spreads = [
        within_group_variance(*run) for run in zip(calibrated, gold, anchored, pi, rewards, strict=True)
    ]
    memory.learn_spread(np.array([total for total, _ in spreads]), np.array([float(n) for _, n in spreads]))
    memory.learn_pairs(proxy, calibrated, gold, anchored, pi)
    return advantages


def systematic_samples(pi_SU: FloatArray, lottery_SU: FloatArray, start_S: FloatArray) -> BoolArray:
    """`stats.sampling.systematic_sample` for S runs at once; `lottery_SU` gives each run's random order."""
    order = np.argsort(lottery_SU, axis=1)
    ends = np.cumsum(np.take_along_axis(pi_SU, order, axis=1), axis=1)
    marks = np.floor(ends - start_S[:, None])
    hit = np.diff(marks, axis=1, prepend=-1.0) > 0
    chosen = np.zeros(pi_SU.shape, np.bool_)
    np.put_along_axis(chosen, order, hit, axis=1)
    return (chosen | (pi_SU >= 1.0)) & (pi_SU > 0.0)


def _sample(p_SK: FloatArray, uniforms_SGN: FloatArray) -> IntArray:
    below = np.cumsum(p_SK, axis=1)[:, None, None, :] <= uniforms_SGN[..., None]
    return np.asarray(np.minimum(below.sum(axis=-1), _K - 1))


def _influence(p_SK: FloatArray, chosen_SGN: IntArray) -> FloatArray:
    run = np.arange(p_SK.shape[0])[:, None, None]
    return np.asarray(1.0 - 2.0 * p_SK[run, chosen_SGN] + (p_SK**2).sum(axis=1)[:, None, None])


def _gradient(advantages_SGN: FloatArray, chosen_SGN: IntArray, p_SK: FloatArray) -> FloatArray:
    """Mean over scored rollouts of advantage · ∇ log π, (S, K)."""
    scored = np.isfinite(advantages_SGN)
    weight = np.where(scored, advantages_SGN, 0.0)
    n_S = np.maximum(scored.sum(axis=(1, 2)), 1)
    offset = _K * np.arange(p_SK.shape[0])[:, None, None]
    pull = np.bincount((chosen_SGN + offset).ravel(), weight.ravel(), minlength=p_SK.size).reshape(p_SK.shape)
    return np.asarray((pull - weight.sum(axis=(1, 2))[:, None] * p_SK) / n_S[:, None])
