"""The audit finds what was planted, from when on, and nothing else; and its JSON is the published one."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import roc_auc_score

from tests.monitor.logs import columns_of, make_rows
from trueup.errors import ConfigError, DataError
from trueup.monitor import KINDS, MonitorConfig, audit, build_table
from trueup.monitor.audit import pooled_auroc, within_variance
from trueup.monitor.calibration import calibration_report, cross_fitted, fit_isotonic


def _audit(rows, **settings):
    return audit(build_table(columns_of(rows), source="x"), MonitorConfig(**settings))


def _kinds(result, family):
    return {f.kind for f in result.families[family].findings}


def test_an_honest_proxy_raises_nothing_and_is_ready_to_anchor():
    result = _audit(make_rows())
    assert [f.findings for f in result.families.values()] == [(), ()]
    assert result.overall.findings == ()
    assert result.recommendation.anchor
    assert 0 < result.recommendation.fraction < 0.5
    assert result.recommendation.all_gold_families == ()


def test_honest_logs_raise_an_alarm_no_more_often_than_stated():
    alarms = []
    for seed in range(24):
        result = _audit(make_rows(120, seed=seed), alpha=0.05)
        alarms += [f.kind for family in result.families.values() for f in family.findings]
    for kind in set(alarms):  # each kind at 5 % a log: more than 5 of 24 has probability 0.1 %
        assert alarms.count(kind) <= 5, kind


@pytest.mark.parametrize("shift", [0.2, -0.2])
def test_a_shift_is_drift_since_after_it_began(shift):
    result = _audit(make_rows(shift=shift, start=200))
    (drift,) = [f for f in result.families["bad"].findings if f.kind == "drift"]
    assert 25 <= drift.since_step <= 40
    assert 20 <= drift.evidence["estimated_onset_step"] <= 30
    assert np.sign(drift.evidence["mean_residual_since"] - drift.evidence["reference_level"]) == -np.sign(
        shift
    )
    low, high = drift.evidence["interval_since"]
    assert low <= drift.evidence["mean_residual_since"] <= high
    assert drift.evidence["e_value"] >= drift.evidence["threshold"]
    assert _kinds(result, "good") == set()


def test_a_reversed_proxy_is_found_and_its_family_stays_all_gold():
    result = _audit(make_rows(reverse=True))
    assert "rank_reversal" in _kinds(result, "bad")
    assert result.families["bad"].kendall_tau < 0 < result.families["good"].kendall_tau
    assert result.families["bad"].auroc_within < 0.5
    assert result.recommendation.all_gold_families == ("bad",)
    assert result.recommendation.anchor  # the other family still can


def test_a_collapse_within_the_groups_is_found_though_pooled_agreement_stays_high():
    rng = np.random.default_rng(1)
    rows = []
    for g in range(900):
        level = rng.normal(0, 3)
        good = level + rng.normal(0, 1, 8)
        proxy = level + (0.8 * (good - level) if g < 450 else 0) + rng.normal(0, 0.4, 8)
        rows += [
            {"group": g, "family": "f", "step": g // 9, "proxy": float(p), "gold": float(q > 0)}
            for p, q in zip(proxy, good, strict=True)
        ]
    result = _audit(rows)
    found = [f for f in result.families["f"].findings if f.kind == "rank_reversal"]
    assert [f.evidence["test"] for f in found] == ["collapse"]
    assert 50 <= found[0].since_step <= 90
    assert result.families["f"].auroc_pooled > 0.9
    assert found[0].evidence["auroc_within_lately"] < found[0].evidence["best_auroc_within"] - 0.1


def test_an_exploit_is_found_from_the_start_and_when_it_comes_late():
    early = _audit(make_rows(exploit=0.05))
    assert "exploit" in _kinds(early, "bad")
    assert "exploit" in early.recommendation.reasons["bad"]
    late = _audit(make_rows(exploit=0.05, start=240))
    (found,) = [f for f in late.families["bad"].findings if f.kind == "exploit"]
    assert found.since_step >= 30
    assert "phase_change" in _kinds(late, "bad")
    assert _kinds(early, "good") == _kinds(late, "good") == set()


def test_a_stated_limit_finds_a_rare_exploit_sooner():
    rows = make_rows(exploit=0.01)
    assert "exploit" not in _kinds(_audit(rows), "bad")
    (found,) = [f for f in _audit(rows, exploit_limit=0.02).families["bad"].findings if f.kind == "exploit"]
    assert found.evidence["test"] == "limit"


def test_the_exploit_bound_is_clopper_pearson():
    family = _audit(make_rows(exploit=0.05)).families["bad"]
    k = int(np.ceil(family.exploit_rate * family.n_exploit_groups - 1e-9))
    exact = stats.binomtest(k, family.n_exploit_groups, alternative="less").proportion_ci(0.95, "exact").high
    assert family.exploit_upper == pytest.approx(exact)
    assert family.exploit_rate <= family.exploit_upper <= family.exploit_upper_sequential


def _trajectory(gold_mean, proxy_mean, n_groups=1600, seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for g in range(n_groups):
        t = g / n_groups
        gold = (rng.random(8) < gold_mean(t)).astype(float)
        proxy = np.clip(proxy_mean(t) + 0.3 * (gold - gold_mean(t)) + rng.normal(0, 0.1, 8), 0, 1)
        rows += [
            {"group": g, "family": "f", "step": g // 16, "proxy": p, "gold": r, "kl": 4 * t * t}
            for p, r in zip(proxy.tolist(), gold.tolist(), strict=True)
        ]
    return rows


def test_a_rising_proxy_over_falling_gold_is_over_optimisation_with_a_forecast():
    rows = _trajectory(lambda t: 0.3 + 1.6 * t * (1 - t), lambda t: 0.3 + 0.5 * t)
    (found,) = [f for f in _audit(rows).families["f"].findings if f.kind == "over_optimisation"]
    assert found.since_step > 50  # gold is best half way, at step 50
    assert found.evidence["score_change"] > 0 > found.evidence["gold_change"]
    assert set(found.evidence["forecast"]) == {"rl", "best_of_n"}
    peak = found.evidence["forecast"]["best_of_n"]["peak"]
    assert peak is None or 0.6 < peak < 1.4  # the truth is 1


@pytest.mark.parametrize("both", [lambda t: 0.3 + 0.4 * t, lambda t: 0.7 - 0.4 * t])
def test_proxy_and_gold_that_go_together_are_no_over_optimisation_and_no_phase_change(both):
    kinds = _kinds(_audit(_trajectory(both, both)), "f")
    assert not kinds & {"over_optimisation", "phase_change", "exploit", "rank_reversal"}


def test_a_sudden_fall_of_gold_is_a_phase_change():
    rows = _trajectory(lambda t: 0.6 if t < 0.6 else 0.2, lambda t: 0.6)
    found = [f for f in _audit(rows).families["f"].findings if f.kind == "phase_change"]
    assert "gold_jumped" in {f.evidence["test"] for f in found}
    assert all(f.since_step >= 60 for f in found)


def test_a_score_that_is_off_is_miscalibrated_and_the_map_mends_it():
    rows = [{**row, "proxy": row["proxy"] ** 3} for row in make_rows(noise=0.05, families=("f",))]
    (found,) = _audit(rows).families["f"].findings
    assert found.kind == "miscalibration"
    assert found.evidence["ece_after_monotone_map"] < 0.3 * found.evidence["ece"]


def test_too_few_pairs_and_old_anchors_are_coverage():
    few = _audit(make_rows(10))
    assert _kinds(few, "good") == {"coverage"}
    assert not few.recommendation.anchor
    assert few.recommendation.fraction == 1.0
    rows = make_rows()
    old = [row for row in rows if row["family"] == "good" or row["step"] < 25]
    (found,) = _audit(old, max_anchor_age=20).families["bad"].findings
    assert found.kind == "coverage"
    assert found.evidence["age_steps"] == 25
    assert found.since_step == 44


def test_one_group_of_one_is_unknown_not_zero():
    result = _audit([{"group": "g", "family": "f", "proxy": 0.5, "gold": 1.0}])
    got = result.to_json()["families"]["f"]
    assert got["n_pairs"] == got["n_groups"] == 1
    assert got["bias"] == 0.5
    assert got["variance"] is got["kendall_tau"] is got["auroc_within"] is None
    assert got["exploit_rate"] == {"estimate": None, "upper": 1.0}
    assert [f["kind"] for f in got["findings"]] == ["coverage"]
    assert not result.recommendation.anchor


def test_a_log_without_a_single_pair_is_refused():
    rows = [
        {"group": 0, "family": "f", "proxy": 0.5, "gold": None},
        {"group": 0, "family": "f", "proxy": None, "gold": 1},
    ]
    with pytest.raises(DataError, match="both a proxy and a gold score"):
        _audit(rows)


def test_the_json_has_exactly_the_published_keys():
    result = json.loads(json.dumps(_audit(make_rows(exploit=0.05)).to_json(), allow_nan=False))
    assert set(result) == {"families", "recommendation"}
    assert set(result["recommendation"]) == {"anchor", "fraction", "all_gold_families"}
    for family in result["families"].values():
        assert set(family) == {
            "n_pairs", "n_groups", "bias", "variance", "kendall_tau", "auroc_within", "exploit_rate", "findings"
        }  # fmt: skip
        assert set(family["exploit_rate"]) == {"estimate", "upper"}
        for finding in family["findings"]:
            assert set(finding) == {"kind", "since_step", "evidence"}
            assert finding["kind"] in KINDS


def test_bias_and_variance_are_those_of_gold_minus_proxy_within_groups():
    rows = make_rows(60, families=("f",))
    result = _audit(rows).families["f"]
    residual = np.array([r["gold"] - r["proxy"] for r in rows]).reshape(60, 8)
    assert result.bias == pytest.approx(residual.mean())
    assert result.variance == pytest.approx(residual.var(axis=1, ddof=1).mean())
    assert result.bias_interval[0] <= residual.mean() <= result.bias_interval[1]


def test_a_calibrated_column_is_what_is_judged():
    rows = [{**row, "calibrated": row["proxy"], "proxy": 100 * row["proxy"]} for row in make_rows()]
    result = _audit(rows)
    assert result.families["good"].score_source == "calibrated column"
    assert abs(result.families["good"].bias) < 0.02


def test_a_proxy_on_another_scale_is_mapped_on_the_first_groups_and_judged_on_the_rest():
    rows = [{**row, "proxy": 1 + 9 * row["proxy"]} for row in make_rows()]
    result = _audit(rows).families["good"]
    assert result.score_source == "isotonic on the first 40 groups"
    assert abs(result.bias) < 0.05
    assert result.findings == ()


def test_active_anchors_are_weighted_in_the_bias_and_thinned_for_the_alarms():
    rng = np.random.default_rng(5)
    rows = make_rows(600, families=("f",))
    kept = []
    for row in rows:
        p = 0.9 if row["gold"] - row["proxy"] > 0.1 else 0.2  # anchors go where the residual is large
        if rng.random() < p:
            kept.append({**row, "propensity": p})
    plain = _audit([{k: v for k, v in row.items() if k != "propensity"} for row in kept]).families["f"].bias
    result = _audit(kept)
    assert plain > 0.05
    assert abs(result.families["f"].bias) < 0.02
    assert any("unequal propensities" in note for note in result.notes)
    assert result.families["f"].findings == ()


def test_winner_checks_are_counted_apart_with_an_exact_bound():
    rng = np.random.default_rng(6)
    rows = []
    for g in range(299):
        proxy = rng.random(8)
        top = int(np.argmax(proxy))
        rows += [
            {"group": g, "family": "f", "proxy": float(p), "gold": 1.0 if i == top else None}
            for i, p in enumerate(proxy)
        ]
    result = _audit(rows)
    checks = result.families["f"].winner_checks
    assert any("favourites only" in note for note in result.notes)
    assert checks["n"] == 299
    assert checks["n_worst"] == 0
    assert checks["upper"] == pytest.approx(0.01, abs=2e-4)  # 299 checks see 1 % with 95 %


def test_auroc_pooled_and_within_variance_against_outside_truth():
    rng = np.random.default_rng(7)
    proxy = rng.integers(0, 6, 500) / 5
    gold = (rng.random(500) < proxy).astype(float)
    assert pooled_auroc(proxy, gold) == pytest.approx(roc_auc_score(gold, proxy))
    assert pooled_auroc(proxy, proxy) is None
    x, unit = rng.normal(size=90), np.arange(90) % 7
    frame = [x[unit == u] for u in range(7)]
    anova = sum(((v - v.mean()) ** 2).sum() for v in frame) / (90 - 7)
    assert within_variance(x, unit) == pytest.approx(anova)


def test_the_isotonic_map_is_scikit_learns_and_cross_fitting_never_sees_its_own_group():
    rng = np.random.default_rng(8)
    score = rng.integers(0, 20, 400) / 20
    gold = (rng.random(400) < score).astype(float)
    x, y = fit_isotonic(score, gold)
    assert y == pytest.approx(IsotonicRegression().fit(score, gold).predict(x))
    unit = np.arange(400) // 8
    before = cross_fitted(score, gold, unit)
    changed = gold.copy()
    changed[unit == 11] = 1 - changed[unit == 11]
    after = cross_fitted(score, changed, unit)
    np.testing.assert_array_equal(before[unit == 11], after[unit == 11])
    assert (before != after).any()


def test_the_calibration_error_is_near_zero_for_a_calibrated_score_and_right_for_a_shifted_one():
    rng = np.random.default_rng(9)
    score = rng.uniform(0.1, 0.7, 8000)
    gold = (rng.random(8000) < score).astype(float)
    unit = np.arange(8000) // 8
    honest = calibration_report(score, gold, unit)
    assert honest.ece < 0.012  # a plain binned estimate would be near 0.013 here by noise alone
    shifted = calibration_report(score + 0.2, gold, unit)
    assert shifted.ece == pytest.approx(0.2, abs=0.02)
    assert abs(shifted.ece - 0.2) < 4 * shifted.ece_error
    for b in honest.curve:
        assert abs(b.gold - b.score) < 4.5 * b.error


_N = 400
_RNG = np.random.default_rng(10)


@pytest.mark.parametrize(
    "change",
    [
        {"gold": [1.0] * _N},
        {"proxy": [0.5] * _N},
        {"group": list(range(_N))},
        {"group": [0] * _N},
        {
            "gold": [*_RNG.random(_N // 2), *[None] * (_N // 2)],
            "family": ["a"] * (_N // 2) + ["b"] * (_N // 2),
        },
        {"calibrated": [None, 0.5] * (_N // 2)},
        {"kl": [None, *[0.1] * (_N - 1)], "step": [i // 40 for i in range(_N)]},
        {"kl": [None] * _N},
        {"cost": [2.0] * _N, "step": [-7] * _N},
        {"proxy": (1e12 * _RNG.normal(size=_N)).tolist(), "gold": (1e9 * _RNG.normal(size=_N)).tolist()},
        {"family": [str(i // 4) for i in range(_N)]},
    ],
    ids=lambda change: "+".join(change),
)
def test_an_odd_log_is_audited_without_a_warning_and_without_nan(change):
    columns = {
        "group": [i // 8 for i in range(_N)],
        "family": ["a"] * _N,
        "proxy": np.linspace(0, 1, _N).tolist(),
        "gold": np.linspace(1, 0, _N).round().tolist(),
    } | change
    result = audit(build_table(columns, source="x"))
    json.dumps(result.to_json(), allow_nan=False)
    json.dumps(result.details(), allow_nan=False)
    r = result.recommendation
    assert set(r.all_gold_families) <= set(result.families)
    assert r.anchor == (len(r.all_gold_families) < len(result.families))


def test_a_proxy_that_says_nothing_is_not_anchored_on():
    rows = [{**row, "proxy": 0.5} for row in make_rows(families=("f",))]
    result = _audit(rows).recommendation
    assert (result.anchor, result.fraction, result.all_gold_families) == (False, 1.0, ("f",))
    assert "explains nothing" in result.reasons["f"]


def test_costs_are_set_beside_an_all_gold_run():
    rows = make_rows(100, families=("f",))
    for i, row in enumerate(rows):
        row["cost"] = 2.0
        if i % 4:
            row["gold"] = None
    cost = _audit(rows).cost
    assert cost == {
        "n_rollouts": 800, "n_gold": 200, "gold_fraction": 0.25, "gold_queries_saved": 600, "cost": 400.0,
        "cost_all_gold": 1600.0,
    }  # fmt: skip


def test_settings_out_of_range_are_refused():
    for wrong in (
        {"alpha": 0},
        {"confidence": 1.5},
        {"drift_band": -1},
        {"exploit_limit": 0.0},
        {"horizon": 0},
    ):
        with pytest.raises(ConfigError):
            MonitorConfig(**wrong)
