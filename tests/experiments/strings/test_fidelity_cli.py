"""`trueup fidelity` on other people's logs."""

from __future__ import annotations

import json

import pytest

from trueup.cli import main


def call(*args):
    with pytest.raises(SystemExit) as ended:
        main([*args])
    return int(ended.value.code or 0)


ROWS = [
    {"group": "a", "family": "f", "proxy": 0.9, "gold": 1.0},
    {"group": "a", "family": "f", "proxy": 0.2, "gold": 0.0},
    {"group": "b", "family": "g", "proxy": None, "gold": 1.0, "proxy_reason": "unparsable_verdict"},
    {"group": "b", "family": "g", "proxy": 0.6, "gold": None},
]


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def test_parse_failures_are_counted_and_enter_no_mean(log, capsys):
    assert call("fidelity", str(log), "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["proxy_unscored_reasons"] == {"unparsable_verdict": 1}
    assert report["all"]["proxy_unscored"] == 1
    assert report["all"]["n_both"] == 2
    assert report["all"]["mae"] == pytest.approx(0.15)
    assert report["by_family"]["f"]["auroc"] == 1.0
    assert report["by_family"]["g"]["mae"] is None


def test_the_tables_name_families_and_reasons(log, capsys):
    assert call("fidelity", str(log)) == 0
    shown = capsys.readouterr().out
    assert "unparsable_verdict: 1" in shown
    assert "–" in shown


@pytest.mark.parametrize("args", [["nowhere.jsonl"], ["{log}", "--gold-range", "1", "0"]])
def test_bad_input_gets_one_line_and_exit_code_2(log, args, capsys):
    assert call("fidelity", *(arg.format(log=log) for arg in args)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("trueup: ")
    assert err.count("\n") == 1
