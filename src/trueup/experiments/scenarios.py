"""The four scenarios of the demo: a task, its gold, and one proxy each.

    monotone, hackable                    the catalogue: 10 groups of 8 rollouts, one prompt, 20 real programs
    contextual_benign, contextual_exploit 64 prompts, one group of 8 rollouts each, 20 completions per prompt

A scenario is tables: gold and the proxy's opinion per prompt and completion. What chance adds in a run (which
completion is sampled, how the proxy errs in one reading) is drawn beforehand, in `draw_luck`, from the run's
seed alone. Two arms with one seed share it: common random numbers, so their difference is measured pairwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trueup.experiments.policies import LinearPolicy, Policy, TabularPolicy
from trueup.tasks.catalogue import SPECIFICATION, Program
from trueup.tasks.contextual import FAMILIES, make_contextual_task, read_proxy
from trueup.tasks.judges import N_DRAWS, Judge, hackable_mean, monotone_mean
from trueup.types import FloatArray, IntArray, Rollout

__all__ = ["SCENARIOS", "Luck", "Scenario", "ScenarioName", "make_scenario"]

ScenarioName = Literal["monotone", "hackable", "contextual_benign", "contextual_exploit"]
SCENARIOS: tuple[ScenarioName, ...] = ("monotone", "hackable", "contextual_benign", "contextual_exploit")

_CATALOGUE_GROUPS = 10
_GROUP_SIZE = 8


@dataclass(frozen=True, slots=True)
class Luck:
    """All chance of one run of T steps, G groups, N rollouts, except for the choice of anchors."""

    uniforms_TGN: FloatArray
    normals_TGND: FloatArray  # D readings of the proxy per rollout


@dataclass(frozen=True)
class Scenario:
    """Tables over prompts P and completions K; `prompt_G` is the prompt of each group of a step."""

    name: ScenarioName
    gold_PK: FloatArray
    proxy_PK: FloatArray  # the proxy's opinion before noise
    prompt_G: IntArray
    families_G: tuple[str, ...]
    rollouts_PK: tuple[tuple[Rollout, ...], ...]
    learning_rates: tuple[float, ...]  # the grid from which each arm's is chosen
    features_PKD: FloatArray | None = None  # None: one logit per completion
    family_P: IntArray | None = None
    group_size: int = _GROUP_SIZE

    @property
    def n_groups(self) -> int:
        return int(self.prompt_G.size)

    @property
    def n_rollouts(self) -> int:
        """Per step."""
        return self.n_groups * self.group_size

    @property
    def uses_sandbox(self) -> bool:
        """Whether a gold query means running a program."""
        return self.features_PKD is None

    def new_policy(self) -> Policy:
        if self.features_PKD is None or self.family_P is None:
            return TabularPolicy(self.gold_PK.shape[1])
        return LinearPolicy(self.features_PKD, self.family_P)

    def draw_luck(self, n_steps: int, seed: int) -> Luck:
        rng = np.random.default_rng([seed, 0x7275])
        shape = (n_steps, self.n_groups, self.group_size)
        n_readings = N_DRAWS if self.uses_sandbox else 1
        return Luck(rng.random(shape), rng.standard_normal((*shape, n_readings)))

    def proxy_scores(self, completions_GN: IntArray, normals_GND: FloatArray) -> FloatArray:
        """What the proxy says of each rollout, (G, N)."""
        if self.uses_sandbox:
            return Judge(self.proxy_PK[0]).score(completions_GN, normals_GND)
        mean = self.proxy_PK[self.prompt_G[:, None], completions_GN]
        return read_proxy(mean, normals_GND[:, :, 0])

    def gold_scores(self, completions_GN: IntArray) -> FloatArray:
        """The truth about each rollout, (G, N)."""
        return np.asarray(self.gold_PK[self.prompt_G[:, None], completions_GN])

    def expected(self, table_PK: FloatArray, policy: Policy) -> float:
        """Mean of a table under the policy, exactly: no sampling, every prompt alike."""
        return float((policy.probabilities() * table_PK).sum(axis=1).mean())


def make_scenario(
    name: ScenarioName, programs: Sequence[Program] = (), pass_rates_K: FloatArray | None = None
) -> Scenario:
    """Build a scenario. The first two need the programs and their measured pass rates, in one order."""
    if name in ("monotone", "hackable"):
        if pass_rates_K is None or len(programs) != pass_rates_K.size:
            raise ValueError(
                f"Scenario {name!r} needs one measured pass rate per program, got {pass_rates_K}."
            )
        return _catalogue_scenario(name, programs, pass_rates_K)
    task = make_contextual_task()
    families = tuple(FAMILIES[f] for f in task.family)
    rollouts = tuple(
        tuple(
            Rollout(f"prompt {p}", f"completion {k}", (p, k), families[p]) for k in range(task.n_completions)
        )
        for p in range(task.n_prompts)
    )
    return Scenario(
        name=name,
        gold_PK=task.gold,
        proxy_PK=task.benign if name == "contextual_benign" else task.exploit,
        prompt_G=np.arange(task.n_prompts),
        families_G=families,
        rollouts_PK=rollouts,
        learning_rates=(8.0, 20.0, 50.0, 120.0, 300.0),
        features_PKD=task.features,
        family_P=task.family,
    )


def _catalogue_scenario(
    name: ScenarioName, programs: Sequence[Program], pass_rates_K: FloatArray
) -> Scenario:
    if name == "monotone":
        opinion = monotone_mean(pass_rates_K)
    else:
        opinion = hackable_mean([program.source for program in programs])
    rollouts = tuple(Rollout(SPECIFICATION, p.source, (0, k), "catalogue") for k, p in enumerate(programs))
    return Scenario(
        name=name,
        gold_PK=pass_rates_K[None, :],
        proxy_PK=opinion[None, :],
        prompt_G=np.zeros(_CATALOGUE_GROUPS, np.int64),
        families_G=("catalogue",) * _CATALOGUE_GROUPS,
        rollouts_PK=(rollouts,),
        learning_rates=(0.5, 0.7, 1.0, 2.0, 4.0),
    )
