"""Made-up steps for the tests of the run log."""

from __future__ import annotations

import numpy as np

from trueup.types import StepRecord, reason_code


def make_record(step=0, *, n_groups=6, group_size=4, anchor_share=0.5, seed=None, families=("code", "plans")):
    """A step with anchored, unscored and plain rollouts; nothing in it is special."""
    rng = np.random.default_rng(step if seed is None else seed)
    n = n_groups * group_size
    group = np.repeat(np.arange(n_groups), group_size)
    proxy = rng.random(n)
    proxy_code = np.zeros(n, np.int8)
    lost = rng.random(n) < 0.2
    proxy[lost], proxy_code[lost] = np.nan, reason_code("timeout_infrastructure")
    anchored = rng.random(n) < anchor_share
    gold = np.where(anchored, (rng.random(n) < 0.5).astype(float), np.nan)
    gold_code = np.where(anchored, 0, reason_code("not_selected")).astype(np.int8)
    down = anchored & (rng.random(n) < 0.1)
    gold[down], gold_code[down] = np.nan, reason_code("sandbox_unavailable")
    reward = np.where(np.isnan(proxy), np.nan, 0.8 * proxy)
    return StepRecord(
        step=step, estimator="corrected", unit="rollout",
        group_ids=tuple(f"s{step}-g{g}" for g in range(n_groups)), families=tuple(families), group=group,
        family=group % len(families), proxy=proxy, proxy_code=proxy_code,
        calibrated=0.9 * proxy, gold=gold, gold_code=gold_code, anchored=anchored,
        propensity=np.full(n, anchor_share), reward=reward, advantage=reward - np.nanmean(reward),
        planned_fraction=anchor_share, realised_fraction=float(anchored.mean()),
        n_gold_queries=int(anchored.sum()),
        metrics={"anchor_weight": 1.0, "calibration/bias": float("nan")}, notes=("a decision",),
        refit={"n_pairs": np.int64(3), "gain": float("nan")},
    )  # fmt: skip
