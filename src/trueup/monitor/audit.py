"""The audit of a log: every check on every family, and what follows from it.

`audit(table)` is what `trueup audit` prints. The false-alarm budget `alpha` of each kind of finding is split
evenly over the families that have enough groups to be tested, so it holds for the log as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.monitor import checks
from trueup.monitor.alarms import LEAST_UNITS
from trueup.monitor.calibration import CalibrationReport, calibration_report, cross_fitted
from trueup.monitor.findings import Finding, MonitorConfig, plain
from trueup.monitor.recommend import Recommendation, recommend
from trueup.monitor.streams import FamilyStreams, gold_range, make_streams
from trueup.monitor.table import PairTable
from trueup.stats.agreement import within_group_residual
from trueup.stats.power import prevalence_visible, units_to_see_shift
from trueup.stats.sequential import clopper_pearson, rate_upper_bound, running_mean_bounds

__all__ = ["Audit", "FamilyAudit", "audit"]

FloatArray = NDArray[np.float64]

_ASSUMED_COST = "an all-gold run is taken to cost as much a rollout as the logged gold did"


@dataclass(frozen=True, slots=True)
class FamilyAudit:
    """One family's figures. None is unknown: too little was scored to say. Unit of gold where not a share."""

    family: str
    n_rows: int
    n_pairs: int
    n_groups: int  # with at least one pair
    newest_anchor_step: int | None
    score_source: str
    bias: float | None  # mean of gold − score, out of sample, weighted by 1/propensity
    bias_interval: tuple[float, float] | None  # confidence sequence over groups
    variance: float | None  # of gold − score within the groups
    within_slope: float | None  # residual on score, both centred: 0 right, −1 useless, −2 reversed
    gold_variance: float | None  # of gold within the groups
    mapped_variance: float | None  # of gold − cross-fitted isotonic map of the proxy, within the groups
    kendall_tau: float | None
    kendall_tau_lower: float | None  # holds at all times
    auroc_within: float | None
    auroc_within_lower: float | None
    auroc_pooled: float | None
    top1_regret: float | None
    exploit_rate: float | None
    exploit_upper: float  # Clopper-Pearson
    exploit_upper_sequential: float  # at all times at once
    n_exploit_groups: int
    winner_checks: dict[str, float | None]  # gold for the proxy's favourite alone; see `winner_checks`
    calibration: CalibrationReport | None
    findings: tuple[Finding, ...]
    power: dict[str, float | None]
    forecast: dict[str, Any]  # R(d) fits where KL was logged: form → fit or refusal

    def to_json(self) -> dict[str, Any]:
        """The published contract of `trueup audit --json`, no more and no less."""
        return {
            "n_pairs": self.n_pairs,
            "n_groups": self.n_groups,
            "bias": plain(self.bias),
            "variance": plain(self.variance),
            "kendall_tau": plain(self.kendall_tau),
            "auroc_within": plain(self.auroc_within),
            "exploit_rate": {"estimate": plain(self.exploit_rate), "upper": plain(self.exploit_upper)},
            "findings": [f.to_json() for f in self.findings],
        }

    def details(self) -> dict[str, Any]:
        """Everything, for `audit.json` and reports."""
        out = {
            name: getattr(self, name) for name in self.__slots__ if name not in ("findings", "calibration")
        }
        out["findings"] = [f.to_json() for f in self.findings]
        if self.calibration is not None:
            c = self.calibration
            out["calibration"] = {
                "ece": c.ece, "ece_error": c.ece_error, "ece_after": c.ece_after, "share_tied": c.share_tied,
                "share_clipped": c.share_clipped,
                "curve": [{"score": b.score, "gold": b.gold, "error": b.error, "n": b.n} for b in c.curve],
            }  # fmt: skip
        out_plain: dict[str, Any] = plain(out)
        return out_plain


@dataclass(frozen=True, slots=True)
class Audit:
    families: dict[str, FamilyAudit]
    overall: FamilyAudit  # all families as one; its findings have a budget of their own
    recommendation: Recommendation
    cost: dict[str, float | None]
    notes: tuple[str, ...]
    assumptions: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The published contract of `trueup audit --json`."""
        return {
            "families": {name: family.to_json() for name, family in self.families.items()},
            "recommendation": self.recommendation.to_json(),
        }

    def details(self) -> dict[str, Any]:
        return {
            "families": {name: family.details() for name, family in self.families.items()},
            "overall": self.overall.details(),
            "recommendation": self.recommendation.details(),
            "cost": plain(self.cost),
            "notes": list(self.notes),
            "assumptions": list(self.assumptions),
        }


def audit(table: PairTable, config: MonitorConfig | None = None) -> Audit:
    """Run every check on every family of a table.

    Raises:
        DataError: no row has both a proxy and a gold score.
    """
    config = config or MonitorConfig()
    if not table.paired.any():
        raise DataError(
            "A log must have rows with both a proxy and a gold score, got none. Nothing could be compared. "
            "Score some rollouts with both (anchors)."
        )
    low, high = gold_range(table.gold)
    streams = {}
    for index, name in enumerate(table.families):
        rows = table.take(np.flatnonzero(table.family == index))
        streams[name] = (rows, make_streams(rows, name, low, high, config.seed))
    tested = sum(_testable(s, config) for _, s in streams.values())
    last_step = int(table.step.max())
    families = {
        name: _family(rows, s, config.alpha / max(1, tested), last_step, config)
        for name, (rows, s) in streams.items()
    }
    if len(families) == 1:
        overall = next(iter(families.values()))
    else:
        whole = make_streams(table, "all families", low, high, config.seed)
        overall = _family(table, whole, config.alpha, last_step, config)
    recommendation, assumptions = recommend(families, config)
    n_thinned = sum(s.n_thinned for _, s in streams.values())
    notes = list(table.notes)
    if n_thinned:
        notes.append(
            "anchors were chosen with unequal propensities: alarms and rankings use a uniform sample of "
            f"them ({n_thinned} pairs left out), bias uses all, weighted"
        )
    notes += [
        f"{name}: gold was asked mostly for the proxy's favourite (winner checks), so bias, variance and "
        "calibration describe favourites only"
        for name, f in families.items()
        if (f.winner_checks["n"] or 0) >= 10 and (f.winner_checks["share_of_single_gold"] or 0) > 0.5
    ]
    notes.append(_ASSUMED_COST)
    notes.append(f"gold's range was taken to be [{low:g}, {high:g}]")
    return Audit(families, overall, recommendation, _cost(table), tuple(notes), assumptions)


def _testable(s: FamilyStreams, config: MonitorConfig) -> bool:
    """By counts alone, so that the split of the budget does not depend on what the scores say."""
    return s.n_units >= LEAST_UNITS or int((s.ranking.n >= 2).sum()) >= config.min_groups


def _family(
    rows: PairTable, s: FamilyStreams, alpha: float, last_step: int, config: MonitorConfig
) -> FamilyAudit:
    report = None
    scored = s.out_of_sample & ~np.isnan(s.score)
    if s.gold.size >= config.min_pairs and np.unique(s.unit[scored]).size >= config.min_groups:
        report = calibration_report(s.score[scored], s.gold[scored], s.unit[scored], config.seed)
    findings = checks.check_coverage(s, last_step, rows.has_steps, config)
    if _testable(s, config):
        findings += [
            *checks.check_drift(s, alpha, config),
            *checks.check_rank_reversal(s, alpha, config),
            *checks.check_exploit(s, alpha, config),
            *checks.check_over_optimisation(s, alpha, config),
            *checks.check_phase_change(s, alpha, config),
            *checks.check_miscalibration(s, report, alpha, config),
        ]
    return _figures(rows, s, scored, report, tuple(sorted(findings, key=lambda f: f.since_step)), config)


def _figures(
    rows: PairTable, s: FamilyStreams, scored: NDArray[np.bool_], report: CalibrationReport | None,
    findings: tuple[Finding, ...], config: MonitorConfig,
) -> FamilyAudit:  # fmt: skip
    residual = (s.gold - s.score)[scored]
    level = s.residual_unit
    one_sided = 2 * (1 - config.confidence)
    exploit = s.ranking.exploit[~np.isnan(s.ranking.exploit)]
    k, n = float(exploit.sum()), int(exploit.size)
    mapped = cross_fitted(s.proxy, s.gold, s.unit, config.seed)
    within = within_group_residual(s.score[scored], s.gold[scored], s.unit[scored])
    return FamilyAudit(
        family=s.family,
        n_rows=rows.n_rows,
        n_pairs=int(s.gold.size),
        n_groups=int(np.unique(s.unit).size),
        newest_anchor_step=int(s.step.max()) if s.n_units else None,
        score_source=s.score_source,
        bias=float(np.average(residual, weights=s.weight[scored])) if residual.size else None,
        bias_interval=_interval(level, -1.0, 1.0, 1 - config.confidence, s.width),
        variance=within_variance(residual, s.unit[scored]),
        within_slope=within.slope,
        gold_variance=within_variance(s.gold, s.unit),
        mapped_variance=within_variance(s.gold - mapped, s.unit),
        kendall_tau=_mean(s.ranking.tau),
        kendall_tau_lower=_lower(s.ranking.tau, -1.0, one_sided),
        auroc_within=_mean(s.ranking.auroc),
        auroc_within_lower=_lower(s.ranking.auroc, 0.0, one_sided),
        auroc_pooled=pooled_auroc(s.proxy, s.gold),
        top1_regret=_mean(s.ranking.regret),
        exploit_rate=k / n if n else None,
        exploit_upper=float(clopper_pearson(k, n, config.confidence)[1]),
        exploit_upper_sequential=float(rate_upper_bound(k, n, 1 - config.confidence)),
        n_exploit_groups=n,
        winner_checks=winner_checks(rows, s.low, config.confidence),
        calibration=report,
        findings=findings,
        power=_power(s, config),
        forecast=checks.forecast(s),
    )


def within_variance(x: FloatArray, unit: NDArray[np.int64]) -> float | None:
    """Pooled variance within groups, Σ (x − x̄_g)² / Σ (n_g − 1); None without a group of two."""
    if x.size == 0 or np.isnan(x).any():
        return None
    _, index = np.unique(unit, return_inverse=True)
    n = np.bincount(index)
    freedom = int((n - 1).sum())
    if freedom == 0:
        return None
    mean = np.bincount(index, weights=x) / n
    return float(((x - mean[index]) ** 2).sum() / freedom)


def pooled_auroc(proxy: FloatArray, gold: FloatArray) -> float | None:
    """AUROC over all pairs of a two-valued gold, groups ignored: the figure that hides a collapse."""
    values = np.unique(gold)
    if values.size != 2:
        return None
    _, index, count = np.unique(proxy, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2.0)[index]
    good = gold == values[1]
    n_good, n_bad = int(good.sum()), int((~good).sum())
    return float((rank[good].sum() - n_good * (n_good + 1) / 2.0) / (n_good * n_bad))


def winner_checks(rows: PairTable, low: float, confidence: float) -> dict[str, float | None]:
    """Groups in which gold was asked for the proxy's favourite only: how often it got gold's lowest value.

    The cheapest look for an exploit (one gold query a group), and a biased sample of everything else: such
    pairs serve the audit and must not train or calibrate.
    """
    seen = ~np.isnan(rows.proxy)
    _, index = np.unique(rows.unit, return_inverse=True)
    n_units = int(index.max()) + 1 if index.size else 0
    best = np.full(n_units, -np.inf)
    np.maximum.at(best, index[seen], rows.proxy[seen])
    n_proxy = np.bincount(index[seen], minlength=n_units)
    n_gold = np.bincount(index[rows.paired], minlength=n_units)
    checked = rows.paired & (n_gold[index] == 1) & (n_proxy[index] >= 2) & (rows.proxy == best[index])
    n, k = int(checked.sum()), int((rows.gold[checked] <= low).sum())
    upper = float(clopper_pearson(k, n, confidence)[1])
    share = n / max(1, int((n_gold == 1).sum()))
    return {"n": n, "n_worst": k, "rate": k / n if n else None, "upper": upper, "share_of_single_gold": share}


def _mean(x: FloatArray) -> float | None:
    seen = x[~np.isnan(x)]
    return float(seen.mean()) if seen.size else None


def _lower(x: FloatArray, low: float, alpha: float) -> float | None:
    seen = x[~np.isnan(x)]
    return float(running_mean_bounds(seen, alpha, low=low, high=1.0)[0][-1]) if seen.size else None


def _interval(
    x: FloatArray, low: float, high: float, alpha: float, width: float
) -> tuple[float, float] | None:
    if x.size == 0:
        return None
    lower, upper = running_mean_bounds(np.clip(x, low, high), alpha, low=low, high=high)
    return float(lower[-1]) * width, float(upper[-1]) * width


def _power(s: FamilyStreams, config: MonitorConfig) -> dict[str, float | None]:
    """What so many anchors can show: the least visible exploit, groups until a shift of .1 or .2 is seen."""
    sd = float(s.residual_unit.std(ddof=1)) if s.n_units > 1 else 0.5
    horizon = max(config.horizon or s.n_units, 1)
    settings = {"band": config.drift_band, "alpha": config.alpha, "horizon": horizon}
    return {
        "exploit_prevalence_visible": prevalence_visible(int(s.gold.size), config.confidence),
        "groups_to_see_shift_0.1": units_to_see_shift(0.1, sd, **settings),  # type: ignore[arg-type]
        "groups_to_see_shift_0.2": units_to_see_shift(0.2, sd, **settings),  # type: ignore[arg-type]
    }


def _cost(table: PairTable) -> dict[str, float | None]:
    """Gold queries and costs, beside an all-gold run in which every rollout had cost as much as these did.

    Costs that grow with gold (`sandbox_s`, the log's `cost` column) are scaled up; others are as they were.
    """
    n_rollouts = table.totals.get("n_rollouts", float(table.n_rows))
    n_gold = table.totals.get("n_gold_queries", float((~np.isnan(table.gold)).sum()))
    out: dict[str, float | None] = {
        "n_rollouts": n_rollouts,
        "n_gold": n_gold,
        "gold_fraction": n_gold / n_rollouts,
        "gold_queries_saved": n_rollouts - n_gold,
    }
    paid = {name: value for name, value in table.totals.items() if not name.startswith("n_")}
    if table.cost is not None:
        paid["cost"] = float(np.nansum(table.cost[~np.isnan(table.gold)]))
    for name, value in paid.items():
        out[name] = value
        if name in ("cost", "sandbox_s"):
            out[f"{name}_all_gold"] = value / n_gold * n_rollouts if n_gold else None
    return out
