"""Training, refreshing and braking a reward model; the scorer itself is `trueup.scorers.reward_model`."""

from trueup.rewardmodel.fit import Labelled, auroc_within, calibrate, fit_pairs, fit_scores
from trueup.rewardmodel.refresh import RefreshConfig, Refresher

__all__ = [
    "Labelled",
    "RefreshConfig",
    "Refresher",
    "auroc_within",
    "calibrate",
    "fit_pairs",
    "fit_scores",
]
