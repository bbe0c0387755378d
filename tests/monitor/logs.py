"""Made-up logs in which it is known what is wrong."""

from __future__ import annotations

import csv
import json

import numpy as np


def make_rows(
    n_groups=400, group_size=8, *, families=("good", "bad"), noise=0.15, seed=0, shift=0.0, exploit=0.0, start=0,
    reverse=False, groups_a_step=8,
):  # fmt: skip
    """Rows of honest families, the one called `bad` going wrong from group `start` on."""
    rng = np.random.default_rng(seed)
    rows = []
    for family in families:
        for g in range(n_groups):
            gold = rng.beta(2, 2, group_size)
            proxy = np.clip(gold + rng.normal(0, noise, group_size), 0, 1)
            if family == "bad" and g >= start:
                proxy = np.clip(proxy + shift, 0, 1)
                hack = rng.random(group_size) < exploit
                gold[hack], proxy[hack] = 0.0, 0.97 + 0.03 * rng.random(int(hack.sum()))
                if reverse:
                    proxy = 1 - proxy
            rows += [
                {
                    "group": f"{family}-{g}",
                    "family": family,
                    "step": g // groups_a_step,
                    "proxy": p,
                    "gold": r,
                }
                for p, r in zip(proxy.tolist(), gold.tolist(), strict=True)
            ]
    return rows


def columns_of(rows):
    return {name: [row.get(name) for row in rows] for name in rows[0]}


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_csv(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path
