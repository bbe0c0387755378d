"""The data filter: hard verdicts decide, the rest is capped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.errors import ConfigError, DataError
from trueup.monitor.gate import gate as monitor_gate
from trueup.rewards.filter import feasible_by_group, filter_rollouts, near_duplicates, read_checks
from trueup.types import Verdict, VerifierResult
from trueup.verifiers.base import Report

TEXT = "we walk from the museum to the harbour and eat noodles near the old bridge before the night train"


def report(*verdicts, hard=True):
    return Report(tuple(VerifierResult(str(i), Verdict(v), hard=hard) for i, v in enumerate(verdicts)))


@given(st.lists(st.lists(st.sampled_from(list(Verdict)), min_size=1, max_size=4), min_size=1, max_size=20))
def test_only_what_is_known_to_be_feasible_is_kept(verdicts):
    reports = [report(*v) for v in verdicts]
    texts = [f"{i} " * 9 for i in range(len(reports))]
    result = filter_rollouts(reports, texts, ["f"] * len(reports))
    assert all(reports[i].feasible is True for i in result.kept)
    assert len(result.outcome) == len(reports)
    assert sum(sum(c.values()) for c in result.composition().values()) == len(reports)


def test_a_bad_copy_never_pushes_out_a_good_one():
    reports = [report("fail"), report("unknown"), report("pass"), report("pass")]
    result = filter_rollouts(reports, [TEXT] * 4, ["f"] * 4, max_similar=1)
    assert result.outcome == ["infeasible", "unknown", "kept", "near_duplicate"]


def test_near_copies_are_capped_and_different_texts_are_not():
    texts = [TEXT, TEXT + ".", TEXT.upper(), "a quite different plan with a castle and two long dinners"]
    result = filter_rollouts([report("pass")] * 4, texts, ["f"] * 4, max_similar=2)
    assert result.outcome == ["kept", "kept", "near_duplicate", "kept"]


def test_an_exploit_signature_is_capped_per_signature():
    texts = [f"{w} lovely must-see highlight {w} {w} {w}" for w in ("alpha", "beta", "gamma")] + [
        "plain text"
    ]
    cases = {0: ["exploit"] * 3 + ["kept"], 2: ["kept", "kept", "exploit", "kept"]}
    for cap, outcome in cases.items():
        result = filter_rollouts(
            [report("pass")] * 4, texts, ["f"] * 4, exploits={"flattery": "must-see"}, max_per_exploit=cap
        )
        assert result.outcome == outcome


@given(st.lists(st.text("abc ", max_size=40), max_size=15))
def test_clusters_are_exact_whatever_the_hashes_say(texts):
    clusters = near_duplicates(texts, 1.0)
    words = [tuple(t.split()) for t in texts]
    for i, j in enumerate(clusters):
        if i != j:
            grams = [{w[k : k + 3] for k in range(max(len(w) - 2, 1))} for w in (words[i], words[j])]
            assert grams[0] == grams[1]
    for i in range(len(texts)):
        for j in range(i):
            if words[i] == words[j]:
                assert clusters[i] == clusters[j], "equal texts always meet"


@pytest.mark.parametrize(
    "row",
    [{}, {"checks": []}, {"checks": "pass"}, {"checks": [{"name": "a"}]},
     {"checks": [{"name": "a", "verdict": "good"}]},
     {"checks": [{"name": "a", "verdict": "pass", "hard": 1}]}],
)  # fmt: skip
def test_a_rollout_without_readable_verdicts_is_refused_and_not_kept(row):
    with pytest.raises(DataError):
        read_checks(row, "line 1")


@pytest.mark.parametrize(
    "bad", [{"similarity": 0.0}, {"max_similar": 0}, {"max_per_exploit": -1}, {"exploits": {"a": "("}}]
)
def test_settings_that_mean_nothing_are_refused(bad):
    with pytest.raises(ConfigError):
        filter_rollouts([report("pass")], ["a"], ["f"], **bad)


def test_verdicts_decide_whether_a_new_policy_replaces_an_old_one():
    """A policy that breaks a quarter more constraints does not pass; unknowns count for neither side."""
    groups = [f"g{i // 8}" for i in range(8 * 400)]
    sound = [report("fail" if i % 8 == 0 else "pass") for i in range(len(groups))]
    broken = [report("fail" if i % 8 < 3 else "pass") for i in range(len(groups))]
    unsure = [report("unknown") if i % 8 == 1 else r for i, r in enumerate(sound)]
    baseline = feasible_by_group(sound, groups)
    assert baseline["g0"] == 7 / 8
    assert feasible_by_group(unsure, groups)["g0"] == 6 / 7
    assert "g0" not in feasible_by_group([report("unknown")], ["g0"])
    assert monitor_gate(baseline, feasible_by_group(unsure, groups), margin=0.1).verdict == "passed"
    assert monitor_gate(baseline, feasible_by_group(broken, groups), margin=0.1).verdict == "failed"
