"""A real loop writes a real log, and the audit of it says what is wrong with the proxy."""

from __future__ import annotations

import numpy as np
import pytest

from trueup import AnchoredReward
from trueup.monitor import audit, load_table, table_from_records
from trueup.runlog import RunLog, RunReader, step_metrics
from trueup.tasks.contextual import FAMILIES, REVERSED_FAMILY, make_contextual_task, read_proxy


def _steps(exploit, n_steps, **settings):
    """Records of a loop over the contextual task under a uniform policy, 32 groups of 8 a step."""
    task = make_contextual_task()
    mean = task.exploit if exploit else task.benign
    reward = AnchoredReward(None, None, seed=0, **settings)
    rng = np.random.default_rng(0)
    for _ in range(n_steps):
        prompts = rng.permutation(task.n_prompts)[:32]
        picks = rng.integers(0, task.n_completions, (32, 8))
        proxy = read_proxy(mean[prompts[:, None], picks], rng.standard_normal(picks.shape))
        yield reward.step_arrays(
            proxy, task.gold[prompts[:, None], picks],
            families=[FAMILIES[f] for f in task.family[prompts]], group_ids=[int(p) for p in prompts],
        ).record  # fmt: skip


@pytest.mark.parametrize("exploit", [False, True])
def test_the_reversed_family_is_found_in_the_log_of_a_loop_and_an_honest_proxy_is_not_accused(
    tmp_path, exploit
):
    records = list(_steps(exploit, 60, anchor_fraction=0.3))
    with RunLog(tmp_path) as log:
        for record in records:
            log.append(record)
    result = audit(load_table(tmp_path))
    reversed_family = FAMILIES[REVERSED_FAMILY]
    found = {name: {f.kind for f in family.findings} for name, family in result.families.items()}
    assert set(found) == set(FAMILIES)
    assert ("rank_reversal" in found[reversed_family]) == exploit
    if exploit:
        assert reversed_family in result.recommendation.all_gold_families
        assert result.families[reversed_family].kendall_tau < -0.3
        assert all(result.families[f].kendall_tau > 0.1 for f in FAMILIES[:REVERSED_FAMILY])
    else:
        assert all(not kinds & {"rank_reversal", "exploit", "over_optimisation"} for kinds in found.values())
        assert result.recommendation.anchor
    assert result.cost["n_rollouts"] == 60 * 256
    assert result.cost["n_gold"] == sum(r.n_gold_queries for r in records)


def test_figures_by_family_of_the_log_equal_those_of_the_records(tmp_path):
    records = list(_steps(False, 5, anchor_fraction=0.2))
    with RunLog(tmp_path, rollouts="all") as log:
        for record in records:
            log.append(record)
    with RunReader(tmp_path) as reader:
        logged = {row["family"]: row["n_pairs"] for row in reader.family_totals()}
    table = table_from_records(records)
    for name, n in logged.items():
        rows = table.take(np.flatnonzero(table.family == table.families.index(name)))
        assert n == rows.paired.sum()


@pytest.mark.parametrize("estimator", ["corrected", "control_variate", "wmrl", "gold_budget"])
def test_what_the_loop_reports_has_names_that_every_trainer_reduces_as_meant(estimator):
    for record in _steps(True, 3, anchor_fraction=0.3, estimator=estimator):
        metrics = step_metrics(record, per_family=True)
        assert np.isfinite(list(metrics.values())).all()
        assert metrics["trueup/anchor/fraction"] == pytest.approx(record.realised_fraction)
