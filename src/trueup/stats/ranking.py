"""How well a proxy ranks the rollouts *within* their group, which is all that a GRPO update sees.

Pooled figures hide a collapse: differences between prompts keep a pooled AUROC high while within the groups
the proxy has turned random. So everything here is computed per group and only then averaged.

- Kendall's τ-b and AUROC: agreement over all pairs of a group.
- top-1 regret: what is lost by believing the proxy's favourite.
- exploit: the proxy's favourite is gold's worst, in a group where gold tells rollouts apart. The same for the
  proxy's *second* choice is kept beside it: for any proxy whose gold rises with its score, even a useless
  one, the favourite is at most as often the worst as the second choice. That needs no baseline. It is asked
  only where at least two rollouts are better than the worst, so that a good proxy could fill both places.

Ties are broken at random in expectation: with k tied favourites, each counts 1/k.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from trueup.errors import DataError

__all__ = ["GroupRanking", "rank_groups", "ranking_of_grid"]

FloatArray = NDArray[np.float64]

_DIRECT_LIMIT = 64  # up to this group size all pairs are compared at once
_CHUNK = 4_000_000  # pairwise entries held at a time


@dataclass(frozen=True, slots=True)
class GroupRanking:
    """Per-group agreement, arrays of one length in the order of the groups' first appearance.

    NaN where it is undefined: τ without a difference in proxy or in gold, AUROC and exploit without a
    difference in gold, everything but `n` in a group of one.
    """

    group: NDArray[np.int64]  # the group's code as given
    n: NDArray[np.int64]  # scored rollouts of the group
    tau: FloatArray  # Kendall's τ-b
    auroc: FloatArray  # share of gold-different pairs that the proxy orders as gold does, ties count half
    regret: FloatArray  # best gold minus gold of the proxy's favourite, in units of gold
    exploit: FloatArray  # chance that the proxy's favourite is gold's worst
    runner_up: FloatArray  # the same of its second choice; NaN unless two rollouts are better than the worst
    chance: FloatArray  # chance that a random pick is gold's worst


def rank_groups(proxy: ArrayLike, gold: ArrayLike, group: ArrayLike) -> GroupRanking:
    """Agreement within each group of flat, aligned arrays.

    Args:
        proxy, gold: (rollouts,) scores; pairs with a NaN are left out.
        group: (rollouts,) integer codes; need not be sorted.
    """
    proxy = np.asarray(proxy, dtype=np.float64)
    gold = np.asarray(gold, dtype=np.float64)
    group = np.asarray(group)
    if not (proxy.shape == gold.shape == group.shape) or proxy.ndim != 1:
        raise DataError(
            f"proxy, gold and group must be flat arrays of one length, got shapes {proxy.shape}, "
            f"{gold.shape} and {group.shape}. Scores could not be paired. Flatten them in one order."
        )
    both = ~(np.isnan(proxy) | np.isnan(gold))
    codes, first, inverse = np.unique(group[both], return_index=True, return_inverse=True)
    place = np.argsort(np.argsort(first, kind="stable"), kind="stable")  # order of first appearance
    index = place[inverse] if codes.size else inverse
    order = np.argsort(index, kind="stable")
    proxy_sorted: FloatArray = proxy[both][order]
    gold_sorted: FloatArray = gold[both][order]
    size = np.bincount(index, minlength=codes.size).astype(np.int64)
    start = np.concatenate([[0], np.cumsum(size)[:-1]]).astype(np.int64) if codes.size else size
    out = np.full((6, codes.size), np.nan)
    for n in np.unique(size[size >= 2]):
        which = np.flatnonzero(size == n)
        rows = start[which][:, None] + np.arange(n)
        out[:, which] = _by_size(proxy_sorted[rows], gold_sorted[rows])
    labels = np.empty(codes.size, dtype=np.int64)
    labels[place] = codes
    return GroupRanking(labels, size, *out)


def ranking_of_grid(proxy_PG: ArrayLike, gold_PG: ArrayLike) -> FloatArray:
    """(6, groups) τ, AUROC, regret, exploit, runner-up, chance for a full grid of groups × rollouts."""
    return _by_size(np.asarray(proxy_PG, dtype=np.float64), np.asarray(gold_PG, dtype=np.float64))


def _by_size(proxy_PG: FloatArray, gold_PG: FloatArray) -> FloatArray:
    n_groups, n = proxy_PG.shape
    if n > _DIRECT_LIMIT:
        concordance = np.stack([_large_group(p, g) for p, g in zip(proxy_PG, gold_PG, strict=True)], axis=1)
    else:
        step = max(1, _CHUNK // (n * n))
        parts = [_all_pairs(proxy_PG[i : i + step], gold_PG[i : i + step]) for i in range(0, n_groups, step)]
        concordance = np.concatenate(parts, axis=1)
    return np.concatenate([concordance, _top_of_groups(proxy_PG, gold_PG)])


def _all_pairs(proxy_PG: FloatArray, gold_PG: FloatArray) -> FloatArray:
    i, j = np.triu_indices(proxy_PG.shape[1], 1)
    dp = np.sign(proxy_PG[:, i] - proxy_PG[:, j])
    dg = np.sign(gold_PG[:, i] - gold_PG[:, j])
    net = (dp * dg).sum(axis=1)
    return _tau_and_auroc(net, np.abs(dp).sum(axis=1), np.abs(dg).sum(axis=1))


def _large_group(proxy: FloatArray, gold: FloatArray) -> FloatArray:
    """The same in O(n log n) by scipy's τ-b, turned back into a net count of concordant pairs."""

    def differing(x: FloatArray) -> float:
        counts = np.unique(x, return_counts=True)[1].astype(np.float64)
        return float(x.size * (x.size - 1) / 2 - (counts * (counts - 1) / 2).sum())

    by_proxy, by_gold = differing(proxy), differing(gold)
    net = 0.0
    if by_proxy > 0 and by_gold > 0:
        net = float(stats.kendalltau(proxy, gold).statistic) * np.sqrt(by_proxy * by_gold)
    return _tau_and_auroc(np.array([net]), np.array([by_proxy]), np.array([by_gold]))[:, 0]


def _tau_and_auroc(net: FloatArray, by_proxy: FloatArray, by_gold: FloatArray) -> FloatArray:
    with np.errstate(invalid="ignore", divide="ignore"):
        tau = np.where((by_proxy > 0) & (by_gold > 0), net / np.sqrt(by_proxy * by_gold), np.nan)
        auroc = np.where(by_gold > 0, 0.5 + 0.5 * net / by_gold, np.nan)
    return np.stack([tau, auroc])


def _top_of_groups(proxy_PG: FloatArray, gold_PG: FloatArray) -> FloatArray:
    best = proxy_PG.max(axis=1, keepdims=True)
    top = proxy_PG == best
    n_top = top.sum(axis=1)
    rest = np.where(top, -np.inf, proxy_PG)
    second = np.where((n_top > 1)[:, None], top, rest == rest.max(axis=1, keepdims=True))
    lowest = gold_PG.min(axis=1, keepdims=True)
    worst = gold_PG == lowest
    differs = (gold_PG.max(axis=1, keepdims=True) > lowest)[:, 0]
    regret = gold_PG.max(axis=1) - np.where(top, gold_PG, 0.0).sum(axis=1) / n_top
    exploit = (worst & top).sum(axis=1) / n_top
    runner_up = (worst & second).sum(axis=1) / second.sum(axis=1)
    chance = worst.mean(axis=1)
    undefined = np.where(differs, 0.0, np.nan)
    two_better = np.where((~worst).sum(axis=1) >= 2, 0.0, np.nan)
    return np.stack([regret, exploit + undefined, runner_up + two_better, chance + undefined])
