"""Where calibration by slices helps and where it costs: one map for all, one per family, features on top.

The contextual task, `corrected` rewards, one learning rate for all, seeds paired. The features are the eight numbers
that describe a completion and the flag of the trick, what a cheap embedding and a keyword search would give.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from trueup.experiments.scenarios import Scenario, ScenarioName, make_scenario
from trueup.experiments.summary import mean_and_se
from trueup.loop import AnchorConfig, AnchoredReward, CalibrationConfig

__all__ = ["FRACTIONS", "SLICES", "SLICE_SCENARIOS", "Slices", "run_slices_cell"]

Slices = Literal["none", "pooled", "family", "family_features"]
SLICES: tuple[Slices, ...] = get_args(Slices)
SLICE_SCENARIOS: tuple[ScenarioName, ...] = ("contextual_benign", "contextual_exploit")
FRACTIONS = (0.025, 0.05, 0.1)
_N_STEPS, _LEARNING_RATE = 60, 50.0


def run_slices_cell(job: tuple[ScenarioName, float, Slices, int]) -> dict[str, Any]:
    """Final gold reward, and the residual that is left at the end, over seeds 0 … n − 1."""
    name, fraction, slices, n_seeds = job
    scenario = make_scenario(name)
    runs = np.array([_run(scenario, fraction, slices, seed) for seed in range(n_seeds)])
    mean, se = mean_and_se(runs)
    return {
        "scenario": name,
        "anchor_fraction": fraction,
        "slices": slices,
        "n_seeds": n_seeds,
        "final_gold_reward": {"mean": float(mean[0]), "se": float(se[0])},
        "residual_rms": {"mean": float(mean[1]), "se": float(se[1])},
    }


def _run(scenario: Scenario, fraction: float, slices: Slices, seed: int) -> tuple[float, float]:
    assert scenario.features_PKD is not None
    calibration = CalibrationConfig(enabled=slices != "none", by_family=slices.startswith("family"))
    reward = AnchoredReward(
        None,
        None,
        AnchorConfig(anchor_fraction=fraction, min_anchors_per_step=0, seed=seed, calibration=calibration),
    )
    luck = scenario.draw_luck(_N_STEPS, seed)
    policy = scenario.new_policy()
    squares = []
    for t in range(_N_STEPS):
        completions = policy.sample(luck.uniforms_TGN[t])
        proxy = scenario.proxy_scores(completions, luck.normals_TGND[t])
        gold = scenario.gold_scores(completions)
        features = scenario.features_PKD[scenario.prompt_G[:, None], completions]
        step = reward.step_arrays(
            proxy,
            gold,
            families=scenario.families_G,
            influence=policy.influence(completions),
            features=features if slices == "family_features" else None,
        )
        policy.update(completions, np.asarray(step.advantages), _LEARNING_RATE)
        if t >= _N_STEPS // 2:
            squares.append(float(np.mean((step.record.calibrated - gold.ravel()) ** 2)))
    return scenario.expected(scenario.gold_PK, policy), float(np.sqrt(np.mean(squares)))
