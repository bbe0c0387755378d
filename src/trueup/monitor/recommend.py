"""Ready to anchor, or not: what the figures of a log say about training on this proxy.

A family stays all-gold where something was found that calibration cannot mend (a reversed order, an exploit,
over-optimisation, a phase change), where too little is known, or where the proxy explains nothing of gold
within the groups. For the others one anchor fraction is given: the cost-optimal one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trueup.monitor.findings import MonitorConfig, plain
from trueup.stats.power import cost_optimal_fraction, prevalence_visible

if TYPE_CHECKING:
    from trueup.monitor.audit import FamilyAudit

__all__ = ["Recommendation", "recommend"]

_BARRED_BY = frozenset({"rank_reversal", "exploit", "over_optimisation", "phase_change", "coverage"})
_USELESS = 0.99  # share of gold's within-group variance that the mapped proxy leaves
_LEAST_FRACTION = 0.02  # below it 1/propensity makes the correction too noisy to learn from


@dataclass(frozen=True, slots=True)
class Recommendation:
    """`fraction` is of the rollouts of the families that are not all-gold; 1 where none is left."""

    anchor: bool
    fraction: float
    all_gold_families: tuple[str, ...]
    reasons: Mapping[str, str]  # family → why it stays all-gold
    first_1000_anchors: Mapping[str, float | None]

    def to_json(self) -> dict[str, Any]:
        return {
            "anchor": self.anchor,
            "fraction": self.fraction,
            "all_gold_families": list(self.all_gold_families),
        }

    def details(self) -> dict[str, Any]:
        more = {"reasons": dict(self.reasons), "first_1000_anchors": plain(self.first_1000_anchors)}
        return {**self.to_json(), **more}


def recommend(
    families: Mapping[str, FamilyAudit], config: MonitorConfig
) -> tuple[Recommendation, tuple[str, ...]]:
    """The recommendation, and the assumptions that its numbers rest on."""
    reasons: dict[str, str] = {}
    fractions: dict[str, float] = {}
    for name, family in families.items():
        barring = sorted({f.kind for f in family.findings} & _BARRED_BY)
        gold, left = family.gold_variance, family.mapped_variance
        if barring:
            reasons[name] = ", ".join(barring)
        elif gold is None or left is None or gold <= 0:
            reasons[name] = "gold does not differ within the groups, so there is nothing to learn from"
        elif left >= _USELESS * gold:
            reasons[name] = "the proxy explains nothing of gold within the groups"
        elif (fraction := cost_optimal_fraction(gold, left, config.cost_ratio)) >= 1.0:
            reasons[name] = "the proxy explains too little of gold to pay for itself at this cost ratio"
        else:
            fractions[name] = fraction
    weights = {name: families[name].n_pairs for name in fractions}
    total = sum(weights.values())
    shared = sum(fractions[n] * weights[n] for n in fractions) / total if total else 1.0
    shared = min(1.0, max(_LEAST_FRACTION, shared)) if fractions else 1.0
    recommendation = Recommendation(
        bool(fractions),
        round(shared, 4),
        tuple(reasons),
        reasons,
        _first_anchors(families, fractions, config),
    )  # fmt: skip
    assumptions = (
        f"generating and proxy-scoring a rollout costs {config.cost_ratio:g} of its gold (--cost-ratio)",
        "the fraction minimises cost × variance of uniformly anchored corrected rewards after a monotone map",
        f"it is kept at or above {_LEAST_FRACTION:g}",
    )
    return recommendation, assumptions


def _first_anchors(
    families: Mapping[str, FamilyAudit], fractions: Mapping[str, float], config: MonitorConfig
) -> dict[str, float | None]:
    """What 1,000 anchors, shared out evenly over the anchored families, would show in each."""
    if not fractions:
        return {}
    each = 1000 // len(fractions)
    spread = max((families[n].mapped_variance or 0.0) for n in fractions)
    return {
        "anchors_per_family": float(each),
        "exploit_prevalence_visible": prevalence_visible(each, config.confidence),
        "bias_half_width": 1.96 * (spread / max(1, each)) ** 0.5,
    }
