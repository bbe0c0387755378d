"""The KL brake on a finite set of outcomes, computed exactly: how far may the policy follow this reward?

The KL-regularised optimum is π*(x) ∝ π_ref(x) exp(r(x) / β). A small β follows the reward far from the
reference; how far is KL(π* ‖ π_ref) in nats, which falls from its largest value to 0 as β grows. So a budget in
nats fixes β. The curves against √KL are `trueup.stats.overopt.exponential_tilt` and `best_of_n`; here are the
weights themselves, their effective sample size, and worlds whose true peak is known by construction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq, minimize_scalar

from trueup.errors import ConfigError
from trueup.stats.overopt import exponential_tilt

__all__ = ["World", "beta_for_kl", "effective_sample_size", "kl_nats", "over_optimisation_worlds", "tilt"]

FloatArray: TypeAlias = NDArray[np.float64]


def tilt(reference: ArrayLike, reward: ArrayLike, beta: float) -> FloatArray:
    """π* over n outcomes, shape (n,). `reference` need not be normalised and may hold zeros; `beta` > 0."""
    q, r = _checked(reference, reward)
    if not (beta > 0 and math.isfinite(beta)):
        raise ConfigError(f"beta must be a finite number above 0, got {beta}. It divides the reward.")
    with np.errstate(divide="ignore"):
        logits = np.log(q) + (r - r[q > 0].max()) / beta
    p = np.exp(logits - logits.max())
    out: FloatArray = p / p.sum()
    return out


def kl_nats(p: ArrayLike, reference: ArrayLike) -> float:
    """KL(p ‖ reference) in nats; infinite where p has mass and the reference has none."""
    p, q = _normalised(p), _normalised(reference)
    mass = p > 0
    if np.any(q[mass] == 0):
        return math.inf
    return max(float(np.sum(p[mass] * np.log(p[mass] / q[mass]))), 0.0)


def beta_for_kl(reference: ArrayLike, reward: ArrayLike, budget_nats: float) -> float:
    """The smallest β whose optimum stays within the budget.

    Raises `ConfigError` for a budget that is not above 0, or that no β can use up: KL has the limit
    −ln π_ref(best outcomes), and beyond it there is nothing to brake.
    """
    q, r = _checked(reference, reward)
    live = q > 0
    best = r[live] >= r[live].max()
    limit = -math.log(q[live][best].sum())
    if not 0 < budget_nats < limit:
        raise ConfigError(
            f"A KL budget must lie between 0 and {limit:.4g} nats for this reward, got {budget_nats}. Above it "
            "even the greedy policy is within budget. Lower it, or do without a brake."
        )
    spread = float(np.ptp(r[live]))

    def excess(log_beta: float) -> float:
        return kl_nats(tilt(q, r, math.exp(log_beta)), q) - budget_nats

    low, high = math.log(spread * 1e-4), math.log(spread * 1e4)
    while excess(low) < 0:
        low -= 2.0
    while excess(high) > 0:
        high += 2.0
    return float(math.exp(brentq(excess, low, high, xtol=1e-12)))


def effective_sample_size(p: ArrayLike, reference: ArrayLike) -> float:
    """Share of samples from the reference that remain effective when reweighted to p: 1 / E_ref[(p/q)²]."""
    p, q = _normalised(p), _normalised(reference)
    live = q > 0
    return float(1.0 / np.sum(p[live] ** 2 / q[live]))


def _normalised(weights: ArrayLike) -> FloatArray:
    values = np.asarray(weights, np.float64)
    out: FloatArray = values / values.sum()
    return out


def _checked(reference: ArrayLike, reward: ArrayLike) -> tuple[FloatArray, FloatArray]:
    q, r = np.asarray(reference, np.float64), np.asarray(reward, np.float64)
    if q.ndim != 1 or q.shape != r.shape or np.any(q < 0) or not q.sum() > 0 or not np.isfinite(r).all():
        raise ConfigError(
            f"reference and reward must be one non-negative weight and one finite reward per outcome, got "
            f"shapes {q.shape} and {r.shape}. Leave unscored outcomes out."
        )
    return q / q.sum(), r


@dataclass(frozen=True)
class World:
    """A finite world in which gold and proxy are known, and where following the proxy is best stopped."""

    name: str
    reference: FloatArray
    proxy: FloatArray
    gold: FloatArray
    peak_strength: float  # 1/β of the best gold along the tilt; inf when gold rises for ever
    peak_d: float  # √KL there, in √nats

    def curve(self, strengths: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(√KL, expected proxy, expected gold) along the tilt."""
        return exponential_tilt(self.reference, self.proxy, self.gold, strengths)


def over_optimisation_worlds(n: int = 4001) -> tuple[World, ...]:
    """Four classic ways in which a proxy misleads, on n outcomes with equal reference weight.

    `gaussian`: gold and proxy jointly normal, so gold rises for ever, if slowly. `t3`: the proxy's error has
    t₃ tails, so its top is all error and gold falls back to its mean. `rare_exploit`: one outcome in a
    thousand is worthless and scored highest. `tail_penalty`: gold falls quadratically past a point.
    The peaks come from a bounded search on the exact curve, not from a fit.
    """
    from scipy.stats import norm, t

    u = (np.arange(n) + 0.5) / n
    z = norm.ppf(u)
    shuffled = np.random.default_rng(3).permutation(n)
    gaussian = 0.6 * z + 0.8 * z[shuffled]
    heavy = z + t.ppf(u[shuffled], 3)
    exploit, worthless = z.copy(), z.copy()
    rare = slice(None, None, 1000)
    exploit[rare], worthless[rare] = z.max() + 2.0, z.min()
    worlds = (
        ("gaussian", gaussian, z),
        ("t3", heavy, z),
        ("rare_exploit", exploit, worthless),
        ("tail_penalty", z, z - 0.5 * np.maximum(z - 1.0, 0.0) ** 2 * 3.0),
    )
    reference = np.full(n, 1.0 / n)
    return tuple(_world(name, reference, proxy, gold) for name, proxy, gold in worlds)


def _world(name: str, reference: FloatArray, proxy: FloatArray, gold: FloatArray) -> World:
    grid = np.geomspace(1e-3, 50.0, 400)
    d, _, value = exponential_tilt(reference, proxy, gold, grid)
    i = int(np.argmax(value))
    if i == grid.size - 1:
        return World(name, reference, proxy, gold, math.inf, math.inf)
    low, high = grid[max(i - 1, 0)], grid[i + 1]
    found = minimize_scalar(
        lambda s: -float(exponential_tilt(reference, proxy, gold, [s])[2][0]),
        bounds=(low, high),
        method="bounded",
    )
    peak = float(found.x)
    d = exponential_tilt(reference, proxy, gold, [peak])[0]
    return World(name, reference, proxy, gold, peak, float(d[0]))
