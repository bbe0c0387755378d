"""The checks. Each takes one family's streams and its share of the false-alarm budget, and gives findings.

A level `alpha` is the chance that a check raises anything over the whole log while nothing is wrong; where a
check asks several questions it splits alpha between them. Evidence names the test, what it saw and when.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from trueup.errors import DataError
from trueup.monitor.alarms import (
    EXPLOIT_MARGIN,
    LEAST_UNITS,
    alarm_around_own_level,
    alarm_around_zero,
    alarm_fall,
    alarm_own_past,
    alarm_rate_above,
    alarm_reversed,
    alarm_second_choice,
)
from trueup.monitor.calibration import CalibrationReport
from trueup.monitor.findings import Finding, MonitorConfig
from trueup.monitor.streams import FamilyStreams
from trueup.stats.overopt import Form, fit_overoptimisation
from trueup.stats.running_best import jump_down
from trueup.stats.sequential import BETS, clopper_pearson, first_crossing, running_mean_bounds

__all__ = [
    "check_coverage",
    "check_drift",
    "check_exploit",
    "check_miscalibration",
    "check_over_optimisation",
    "check_phase_change",
    "check_rank_reversal",
]

FloatArray = NDArray[np.float64]

JUMP = 0.1  # least fall of gold between adjacent blocks that counts as a jump, in units of its range


def _horizon(n: int, config: MonitorConfig) -> int:
    return max(n, config.horizon or n, 1)


def check_coverage(s: FamilyStreams, last_step: int, has_steps: bool, config: MonitorConfig) -> list[Finding]:
    """Too few anchors to say anything, or none for too long."""
    n_ranked = int((s.ranking.n >= 2).sum())
    evidence = {"n_pairs": int(s.gold.size), "n_groups_with_two": n_ranked}
    newest = int(s.step.max()) if s.n_units else None
    if s.gold.size < config.min_pairs or n_ranked < config.min_groups:
        limits = {"min_pairs": config.min_pairs, "min_groups": config.min_groups}
        since = int(s.step.min()) if s.n_units else 0
        return [Finding("coverage", s.family, since, {"test": "too_few", **evidence, **limits})]
    if has_steps and newest is not None and last_step - newest > config.max_anchor_age:
        age = {
            "newest_anchor_step": newest,
            "age_steps": last_step - newest,
            "max_age": config.max_anchor_age,
        }
        since = newest + config.max_anchor_age
        return [Finding("coverage", s.family, since, {"test": "too_old", **evidence, **age})]
    return []


def check_drift(s: FamilyStreams, alpha: float, config: MonitorConfig) -> list[Finding]:
    """Mean residual outside its band: around 0 for a calibrated log, around its own start for a raw one."""
    if s.n_units < LEAST_UNITS:
        return []
    x, horizon = s.residual_unit, _horizon(s.n_units, config)
    if s.n_reference:
        log_e, level, band = alarm_around_own_level(x, config.drift_band, horizon)
    else:
        log_e = alarm_around_zero(x, config.drift_band, horizon)
        level, band = np.zeros(x.size), np.full(x.size, config.drift_band)
    at = int(first_crossing(log_e, alpha))
    if at < 0:
        return []
    onset = _onset((x - level)[: at + 1], band[: at + 1], 1.0 + np.abs(level[: at + 1]))
    after = x[onset:]
    low, high = running_mean_bounds(after, 1 - config.confidence, low=-1.0, high=1.0)
    return [
        Finding("drift", s.family, int(s.step[at]), {
            "test": "restarting_e_process", "e_value": _e(log_e[at]), "threshold": 1 / alpha,
            "band": float(band[at]) * s.width, "reference_level": float(level[at]) * s.width,
            "mean_residual_since": float(after.mean()) * s.width,
            "interval_since": [float(low[-1]) * s.width, float(high[-1]) * s.width],
            "estimated_onset_step": int(s.step[onset]), "n_groups_since": int(after.size),
            "score": s.score_source,
        })
    ]  # fmt: skip


def _onset(x: FloatArray, band: FloatArray | float = 0.0, bound: FloatArray | float = 1.0) -> int:
    """Where the bet that won began to pay: the start time of the largest product up to the end of x."""
    best, start = -np.inf, 0
    for sign in (1.0, -1.0):
        for bet in BETS:
            log_p = np.cumsum(np.log1p(bet * (sign * x - band) / (bound + band)))
            before = np.concatenate([[0.0], log_p[:-1]])
            s = int(np.argmin(before))
            if log_p[-1] - before[s] > best:
                best, start = log_p[-1] - before[s], s
    return start


def check_rank_reversal(s: FamilyStreams, alpha: float, config: MonitorConfig) -> list[Finding]:
    """Within the groups the proxy orders against gold, or has lost much of the order it had."""
    found = []
    seen = ~np.isnan(s.ranking.tau)
    tau, steps = s.ranking.tau[seen], s.step[seen]
    log_e = alarm_reversed(tau, _horizon(tau.size, config))
    at = int(first_crossing(log_e, alpha / 2)) if tau.size else -1
    if at >= 0:
        onset = _onset(-tau[: at + 1])
        low, high = running_mean_bounds(tau[onset:], 1 - config.confidence, low=-1.0, high=1.0)
        found.append(Finding("rank_reversal", s.family, int(steps[at]), {
            "test": "reversed", "e_value": _e(log_e[at]), "threshold": 2 / alpha,
            "kendall_tau_since": float(tau[onset:].mean()),
            "interval_since": [float(low[-1]), float(high[-1])],
            "estimated_onset_step": int(steps[onset]), "n_groups_since": int(tau.size - onset),
        }))  # fmt: skip
    seen = ~np.isnan(s.ranking.auroc)
    auroc, steps = s.ranking.auroc[seen], s.step[seen]
    fallen = _fall(auroc, config.agreement_margin, alpha / 2, config)
    if fallen is not None:
        at, e_value, best = fallen
        found.append(Finding("rank_reversal", s.family, int(steps[at]), {
            "test": "collapse", "e_value": e_value, "threshold": 4 / alpha, "margin": config.agreement_margin,
            "best_auroc_within": best, "auroc_within_lately": float(auroc[max(0, at - 49) : at + 1].mean()),
        }))  # fmt: skip
    return found


def _fall(
    x: FloatArray, margin: float, alpha: float, config: MonitorConfig
) -> tuple[int, float, float] | None:
    """Crossing, e-value and best earlier mean of 50 for a fall of x in [0, 1]; None without one."""
    if x.size < LEAST_UNITS:
        return None
    crossing, log_e = alarm_fall(x, margin, alpha, _horizon(x.size, config))
    at = int(crossing)
    if at < 0:
        return None
    blocks = x[: (at + 1) // 50 * 50].reshape(-1, 50).mean(axis=1)
    return at, _e(log_e[at]), float(blocks.max())


def check_exploit(s: FamilyStreams, alpha: float, config: MonitorConfig) -> list[Finding]:
    """The proxy's favourite of a group is gold's worst: more often than its second choice is, than a stated
    limit, or than in the log's own beginning."""
    third, found = alpha / 3, []
    both = ~np.isnan(s.ranking.runner_up)
    if both.any():
        excess = (s.ranking.exploit - s.ranking.runner_up)[both]
        log_e = alarm_second_choice(excess, _horizon(excess.size, config))
        at = int(first_crossing(log_e, third))
        if at >= 0:
            onset = _onset((excess[: at + 1] - EXPLOIT_MARGIN) / (1.0 + EXPLOIT_MARGIN))
            rate, second = s.ranking.exploit[both][onset:], s.ranking.runner_up[both][onset:]
            found.append(("second_choice", int(s.step[both][at]), _e(log_e[at]), {
                "exploit_rate_since": float(rate.mean()), "second_choice_rate_since": float(second.mean()),
                "estimated_onset_step": int(s.step[both][onset]), "margin": EXPLOIT_MARGIN,
            }))  # fmt: skip
    seen = ~np.isnan(s.ranking.exploit)
    rate, steps = s.ranking.exploit[seen], s.step[seen]
    if config.exploit_limit is not None and rate.size:
        log_e = alarm_rate_above(rate, config.exploit_limit, _horizon(rate.size, config))
        at = int(first_crossing(log_e, third))
        if at >= 0:
            found.append(("limit", int(steps[at]), _e(log_e[at]), {"limit": config.exploit_limit}))
    jump = _exploit_jump(s, third, config)
    if jump is not None:
        found.append(("own_past", *jump))
    if not found:
        return []
    test, since, e_value, detail = min(found, key=lambda f: f[1])
    total, n = float(rate.sum()), int(rate.size)
    low, high = clopper_pearson(total, n, config.confidence)
    return [
        Finding("exploit", s.family, since, {
            "test": test, "also": sorted({f[0] for f in found} - {test}), "e_value": e_value,
            "threshold": 1 / (third / 2 if test == "own_past" else third),
            "n_groups": n, "n_exploited": total, "rate_bounds": [float(low), float(high)], **detail,
        })
    ]  # fmt: skip


def _exploit_jump(
    s: FamilyStreams, alpha: float, config: MonitorConfig
) -> tuple[int, float, dict[str, float | int]] | None:
    """A rise of the exploit rate above the sharpest upper bound that its own past has given so far.

    The bound holds at all times at once with probability 1 − alpha/2, so its running minimum does as well.
    """
    seen = ~np.isnan(s.ranking.exploit)
    rate, steps = s.ranking.exploit[seen], s.step[seen]
    if rate.size < LEAST_UNITS:
        return None
    crossing, log_e, baseline = alarm_own_past(rate, alpha, _horizon(rate.size, config))
    at = int(crossing)
    if at < 0:
        return None
    lately, n = rate[max(0, at - 49) : at + 1], max(1, at - 49)
    detail = {"rate_before": float(rate[:n].mean()), "bound_on_past": float(baseline[at])}
    return int(steps[at]), _e(log_e[at]), {**detail, "rate_lately": float(lately.mean())}


def check_over_optimisation(s: FamilyStreams, alpha: float, config: MonitorConfig) -> list[Finding]:
    """Gold has fallen from its best, or no longer follows a rising score; the score did not fall with it."""
    if s.n_units < LEAST_UNITS:
        return []
    found = []
    fall = _fall(np.clip(s.gold_unit, 0, 1), config.drop_margin, alpha / 2, config)
    if fall is not None and _change(s.score_unit, s.gold_unit, fall[0])[0] > -config.drop_margin / 2:
        found.append(("gold_fell", *fall))
    gap = (s.residual_unit + 1.0) / 2.0
    lost = _fall(np.clip(gap, 0, 1), config.drop_margin / 2, alpha / 2, config)
    if lost is not None:
        score_change, gold_change = _change(s.score_unit, s.gold_unit, lost[0])
        if score_change > config.drop_margin and gold_change < config.drop_margin / 2:
            found.append(("score_rose_alone", *lost))
    if not found:
        return []
    test, at, e_value, _ = min(found, key=lambda f: f[1])
    score_change, gold_change = _change(s.score_unit, s.gold_unit, at)
    return [
        Finding("over_optimisation", s.family, int(s.step[at]), {
            "test": test, "e_value": e_value, "threshold": 4 / alpha, "margin": config.drop_margin * s.width,
            "score_change": score_change * s.width, "gold_change": gold_change * s.width,
            "forecast": forecast(s),
        })
    ]  # fmt: skip


def _change(score: FloatArray, gold: FloatArray, at: int) -> tuple[float, float]:
    """Change of score and gold from the block of 50 with the best gold to the 50 groups before `at`."""
    n = (at + 1) // 50
    if n == 0:
        return 0.0, 0.0
    golds = gold[: n * 50].reshape(n, 50).mean(axis=1)
    scores = score[: n * 50].reshape(n, 50).mean(axis=1)
    best, late = int(np.argmax(golds)), slice(max(0, at - 49), at + 1)
    return float(score[late].mean() - scores[best]), float(gold[late].mean() - golds[best])


def forecast(s: FamilyStreams) -> dict[str, object]:
    """R(d) fits over steps, where KL was logged: a plot and a forecast, never the decision. Form → fit."""
    if s.kl is None:
        return {}
    known = np.isfinite(s.kl)
    steps, index = np.unique(s.step[known], return_inverse=True)
    n = np.bincount(index, minlength=steps.size)
    d = np.sqrt(np.maximum(np.bincount(index, weights=s.kl[known], minlength=steps.size) / n, 0.0))
    gold = np.bincount(index, weights=s.gold_unit[known], minlength=steps.size) / n * s.width + s.low
    out: dict[str, object] = {}
    forms: tuple[Form, ...] = ("rl", "best_of_n")
    for form in forms:
        try:
            fit = fit_overoptimisation(d, gold, form)
        except DataError as error:
            out[form] = {"refusal": str(error)}
            continue
        out[form] = {
            "alpha": fit.alpha, "beta": fit.beta, "r_squared": fit.r_squared, "peak": fit.peak,
            "peak_interval": fit.peak_interval, "refusal": fit.refusal or None,
        }  # fmt: skip
    return out


def check_phase_change(s: FamilyStreams, alpha: float, config: MonitorConfig) -> list[Finding]:
    """A jump: of the exploit rate above its own past, or of gold below what its trend foretold."""
    found = []
    jump = _exploit_jump(s, alpha / 3, config)
    if jump is not None:
        since, e_value, detail = jump
        evidence = {"test": "exploit_rate_jumped", "e_value": e_value, "threshold": 6 / alpha, **detail}
        found.append(Finding("phase_change", s.family, since, evidence))
    if s.n_units >= LEAST_UNITS:
        at = int(jump_down(s.gold_unit, 2 * alpha / 3, JUMP))
        if at >= 0:
            late, early = (
                s.gold_unit[max(0, at - 49) : at + 1],
                s.gold_unit[max(0, at - 99) : max(1, at - 49)],
            )
            found.append(Finding("phase_change", s.family, int(s.step[at]), {
                "test": "gold_jumped", "least_jump": JUMP * s.width, "alpha": 2 * alpha / 3,
                "gold_before": float(early.mean()) * s.width + s.low,
                "gold_after": float(late.mean()) * s.width + s.low,
            }))  # fmt: skip
    return found


def check_miscalibration(
    s: FamilyStreams, report: CalibrationReport | None, alpha: float, config: MonitorConfig
) -> list[Finding]:
    """The score in use is off by more than the tolerance, on average over its bins."""
    if report is None:
        return []
    tolerance = config.calibration_tolerance * s.width
    low = report.ece - float(stats.norm.ppf(1 - alpha)) * report.ece_error
    if low <= tolerance:
        return []
    return [
        Finding("miscalibration", s.family, int(s.step.min()), {
            "test": "expected_calibration_error", "ece": report.ece, "lower_bound": low,
            "tolerance": tolerance, "ece_after_monotone_map": report.ece_after, "score": s.score_source,
        })
    ]  # fmt: skip


def _e(log_e: float) -> float:
    return float(np.exp(min(float(log_e), 700.0)))
