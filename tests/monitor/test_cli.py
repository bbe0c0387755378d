"""The commands: JSON alone on standard output, exit codes, one clear line for wrong input."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.monitor.logs import make_rows, write_csv, write_jsonl
from tests.runlog.records import make_record
from trueup.cli import main
from trueup.runlog import RunLog


def _run(capsys, *args):
    with pytest.raises(SystemExit) as exit_:
        main([str(a) for a in args])
    out, err = capsys.readouterr()
    return exit_.value.code, out, err


def test_audit_prints_json_alone_or_a_table(capsys, tmp_path):
    log = write_jsonl(tmp_path / "log.jsonl", make_rows(exploit=0.05))
    code, out, err = _run(capsys, "audit", log, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["recommendation"]["all_gold_families"] == ["bad"]
    code, out, _ = _run(capsys, "audit", log)
    assert code == 0
    assert "exploit in bad since step" in out
    assert "All gold for bad" in out


def test_audit_writes_every_figure_and_a_plot_per_family(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    log = write_csv(tmp_path / "log.csv", make_rows(100, families=("../evil", "good")))
    code, _, _ = _run(capsys, "audit", log, "--out", tmp_path / "out", "--json")
    assert code == 0
    written = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert written == ["audit.json", "reliability-00.png", "reliability-01.png"]
    assert (tmp_path / "out" / "reliability-00.png").read_bytes().startswith(b"\x89PNG")
    figures = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert set(figures["families"]) == {"../evil", "good"}
    assert len(figures["families"]["good"]["calibration"]["curve"]) == 10
    assert figures["assumptions"]


def test_audit_of_a_run_folder(capsys, tmp_path):
    with RunLog(tmp_path / "run") as log:
        for step in range(60):
            log.append(make_record(step, n_groups=8))
    code, out, _ = _run(capsys, "audit", tmp_path / "run", "--json")
    assert code == 0
    assert set(json.loads(out)["families"]) == {"code", "plans"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "empty file"),
        ("group,family,proxy\n1,f,0.5\n", "missing: gold"),
        ("group,family,proxy,gold\n1,f,high,0.5\n", "got 'high' in row 2"),
        ("group,family,proxy,gold\n1,f,nan,0.5\n", "both a proxy and a gold"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(capsys, tmp_path, content, words):
    path = tmp_path / "log.csv"
    path.write_text(content)
    code, out, err = _run(capsys, "audit", path, "--json")
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1


def test_power_gives_the_published_keys_and_unknown_is_null(capsys):
    code, out, _ = _run(capsys, "power", "--prevalence", 0.01, "--confidence", 0.95, "--json")
    assert code == 0
    assert json.loads(out) == {"anchors": 299, "rollouts": None, "steps": None}
    size = ("--anchor-fraction", 0.1, "--groups", 16, "--group-size", 8)
    _, out, _ = _run(capsys, "power", "--prevalence", 0.01, "--confidence", 0.95, *size, "--json")
    assert json.loads(out) == {"anchors": 299, "rollouts": 2990, "steps": 24}  # 2990 / 128 = 23.4
    _, out, _ = _run(capsys, "power", "--prevalence", 0.01, *size, "--shift", 0.1)
    assert "299" in out
    assert "38 groups of 8" in out
    assert "shift" in out


@pytest.mark.parametrize("wrong", [("--prevalence", 0), ("--prevalence", 0.1, "--anchor-fraction", 2), ()])
def test_power_refuses_what_has_no_answer(capsys, wrong):
    code, out, err = _run(capsys, "power", *wrong, "--json")
    assert (code, out) == (2, "")
    assert err.startswith("trueup: ")


def test_gate_answers_by_its_exit_code(capsys, tmp_path):
    rng = np.random.default_rng(0)

    def log(name, effect, n=500):
        golds = np.clip(0.5 + effect + rng.normal(0, 0.1, n), 0, 1)
        return write_jsonl(tmp_path / name, [{"group": i, "gold": float(g)} for i, g in enumerate(golds)])

    base, same, worse = log("base.jsonl", 0), log("same.jsonl", 0), log("worse.jsonl", -0.2)
    few = log("few.jsonl", 0, n=3)
    answers = {}
    for name, candidate in {"same": same, "worse": worse, "few": few}.items():
        code, out, _ = _run(
            capsys, "gate", "--baseline", base, "--candidate", candidate, "--margin", 0.05, "--json"
        )
        answers[name] = (code, json.loads(out)["verdict"])
    assert answers == {"same": (0, "passed"), "worse": (1, "failed"), "few": (3, "undecided")}
    code, _, err = _run(capsys, "gate", "--baseline", base, "--candidate", tmp_path / "none.csv")
    assert code == 2
    assert "nothing there" in err
    code, out, _ = _run(capsys, "gate", "--baseline", base, "--candidate", same, "--margin", 0.05)
    assert (code, out.startswith("passed: candidate − baseline")) == (0, True)


def test_an_exported_run_is_audited_like_the_run_itself(capsys, tmp_path):
    with RunLog(tmp_path / "run") as log:
        for step in range(40):
            log.append(make_record(step, n_groups=12))
    answers = [_run(capsys, "audit", tmp_path / "run", "--json")[1]]
    for suffix in ("jsonl", "csv"):
        code, out, err = _run(capsys, "export", tmp_path / "run", tmp_path / f"pairs.{suffix}")
        assert (code, out) == (0, "")
        assert "rollouts written" in err
        answers.append(_run(capsys, "audit", tmp_path / f"pairs.{suffix}", "--json")[1])
    assert answers[0] == answers[1] == answers[2]


def _write_verdicts(path, share_feasible, *, n_groups=200, unknown=0):
    rng = np.random.default_rng(3)
    rows = []
    for group in range(n_groups):
        for _ in range(4):
            verdict = "pass" if rng.random() < share_feasible else "fail"
            rows.append(
                {"group": f"p{group}", "checks": [{"name": "budget", "verdict": verdict, "hard": True}]}
            )
    rows += [{"group": "p0", "checks": [{"name": "budget", "verdict": "unknown", "hard": True}]}] * unknown
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_gate_compares_shares_of_feasible_rollouts(capsys, tmp_path):
    base = _write_verdicts(tmp_path / "base.jsonl", 0.8)
    worse = _write_verdicts(tmp_path / "worse.jsonl", 0.5, unknown=3)
    same = _write_verdicts(tmp_path / "same.jsonl", 0.8)
    options = ("gate", "--compare", "feasible", "--margin", 0.1, "--baseline", base, "--json", "--candidate")
    code, out, err = _run(capsys, *options, worse)
    assert (code, json.loads(out)["verdict"]) == (1, "failed")
    assert "3 of 803 rollouts have an unknown verdict" in err
    code, out, err = _run(capsys, *options, same)
    assert (code, json.loads(out)["verdict"], err) == (0, "passed", "")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"checks": [{"name": "a", "verdict": "pass"}]}', "must name its `group`"),
        ('{"group": "a"}', "must carry a list `checks`"),
        ('{"group": "a", "checks": [{"name": "a", "verdict": "unknown"}]}', "whose hard checks are decided"),
        ("not json", "must be JSON"),
    ],
)
def test_gate_on_verdicts_explains_wrong_input(capsys, tmp_path, line, says):
    log = tmp_path / "log.jsonl"
    log.write_text(line + "\n", encoding="utf-8")
    code, out, err = _run(capsys, "gate", "--compare", "feasible", "--baseline", log, "--candidate", log)
    assert (code, out) == (2, "")
    assert says in err
