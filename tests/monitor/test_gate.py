"""Non-inferiority: how often it is wrong, and how soon it is right."""

from __future__ import annotations

import numpy as np
import pytest

from trueup.errors import ConfigError, DataError
from trueup.monitor import gate


def _logs(rng, n, effect, paired=True):
    prompt = rng.beta(2, 2, n)
    a = np.clip(prompt + rng.normal(0, 0.1, n), 0, 1)
    b = np.clip(prompt + effect + rng.normal(0, 0.1, n), 0, 1)
    names = [f"g{i}" for i in range(n)]
    others = names if paired else [f"h{i}" for i in range(n)]
    return dict(zip(names, a.tolist(), strict=True)), dict(zip(others, b.tolist(), strict=True))


def test_a_candidate_worse_by_the_margin_is_passed_no_more_often_than_stated():
    rng = np.random.default_rng(0)
    results = []
    for _ in range(300):
        n, margin = 300, 0.05
        d = np.clip(rng.normal(-margin, 0.15, n), -0.5, 0.5)
        base = np.full(n, 0.5)
        a = {str(i): float(v) for i, v in enumerate(base)}
        b = {str(i): float(v) for i, v in enumerate(base + d)}
        results.append(gate(a, b, margin=margin, alpha=0.1).verdict)
    slack = 2.6 * np.sqrt(0.09 / 300)
    assert 0 < results.count("passed") / 300 <= 0.1 + slack
    assert results.count("failed") / 300 <= 0.1 + slack


def test_an_equal_candidate_passes_a_bad_one_fails_and_little_data_cannot_tell():
    rng = np.random.default_rng(1)
    same = gate(*_logs(rng, 600, 0.0), margin=0.05)
    assert (same.verdict, same.exit_code, same.paired) == ("passed", 0, True)
    assert same.decided_after < 600
    assert same.interval[0] <= same.difference <= same.interval[1]
    worse = gate(*_logs(rng, 600, -0.2), margin=0.05)
    assert (worse.verdict, worse.exit_code) == ("failed", 1)
    few = gate(*_logs(rng, 5, 0.0), margin=0.05)
    assert (few.verdict, few.exit_code, few.decided_after) == ("undecided", 3, None)


def test_different_groups_are_compared_unpaired_and_need_more():
    rng = np.random.default_rng(2)
    paired = gate(*_logs(rng, 3000, 0.0), margin=0.05)
    unpaired = gate(*_logs(rng, 3000, 0.0, paired=False), margin=0.05)
    assert not unpaired.paired
    assert unpaired.verdict == "passed"
    assert unpaired.decided_after > paired.decided_after


def test_the_answer_does_not_depend_on_the_unit_of_gold():
    rng = np.random.default_rng(3)
    a, b = _logs(rng, 400, 0.0)
    plain = gate(a, b, margin=0.05)
    scaled = gate(
        {k: 10 * v - 5 for k, v in a.items()},
        {k: 10 * v - 5 for k, v in b.items()},
        margin=0.5,
        low=-5,
        high=5,
    )
    assert scaled.verdict == plain.verdict
    assert scaled.difference == pytest.approx(10 * plain.difference)
    assert scaled.decided_after == plain.decided_after


def test_wrong_input_is_refused():
    with pytest.raises(ConfigError, match="margin"):
        gate({"a": 0.5}, {"a": 0.5}, margin=0.0)
    with pytest.raises(DataError, match="at least one group"):
        gate({}, {"a": 0.5}, margin=0.1)
    with pytest.raises(DataError, match=r"lie in \[0, 1\], got 3"):
        gate({"a": 3.0}, {"a": 0.5}, margin=0.1)
