"""The commands as a person calls them: output, exit codes, one clear line for a mistake."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from trueup.cli import bench_estimators as bench_module
from trueup.cli import main
from trueup.cli.demo import results_table
from trueup.cli.tables import wide_console
from trueup.experiments.estimator_sweep import SWEEP_ARMS, SweepPoint


def _call(*args: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main([*args])
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--seeds", "0"], "'--seeds'"),
        (["--steps", "many"], "'--steps'"),
        (["--anchor-fraction", "0"], "'--anchor-fraction'"),
        (["--anchor-fraction", "1.01"], "'--anchor-fraction'"),
        (["--schedule", "sometimes"], "'--schedule'"),
        (["--jobs", "-1"], "'--jobs'"),
        (["--sedes", "3"], "--sedes"),
        (["--out", __file__], "is a file"),
        (["--out", "/proc/nothing/here"], "--out must be a folder that can be written to"),
    ],
)
def test_a_bad_argument_gets_one_clear_line_and_exit_code_2(args, says, capsys) -> None:  # type: ignore[no-untyped-def]
    assert _call("demo", *args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("trueup: ")
    assert says in err
    assert err.count("\n") == 1


def test_demo_prints_json_alone_and_writes_results_and_report(tmp_path, capsys, rates) -> None:  # type: ignore[no-untyped-def]
    assert _call("demo", "--out", str(tmp_path), "--seeds", "2", "--steps", "2", "--jobs", "1", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "results.json").read_text())
    assert printed["config"]["n_steps"] == 2
    assert "<html" in (tmp_path / "report.html").read_text()[:200].lower()

    for name, arms in printed["scenarios"].items():
        wide_console().print(results_table(printed, name))
        table = capsys.readouterr().out
        assert name in table
        for arm, row in arms.items():
            line = next(line for line in table.splitlines() if line.strip().startswith(arm + " "))
            assert f"{row['final_gold_reward']['mean']:.4f} ± {row['final_gold_reward']['se']:.4f}" in line
            assert f" {row['gold_queries']:.0f} " in line


def test_bench_prints_a_row_per_point_and_arm(capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    points = (SweepPoint(n_groups=4), SweepPoint(rank_correlation=-0.3, n_groups=4))
    monkeypatch.setattr(bench_module, "default_points", lambda: points)
    args = ["bench", "estimators", "--seeds", "2", "--steps", "3", "--jobs", "1"]
    assert _call(*args, "--json") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["arm"] for row in rows] == list(SWEEP_ARMS) * 2
    assert [row["rank_correlation"] for row in rows[:: len(SWEEP_ARMS)]] == [0.6, -0.3]

    assert _call(*args) == 0
    out = capsys.readouterr().out
    assert f"{rows[0]['final_gold_reward']['mean']:.3f}(" in out
    assert "…" not in out  # nothing is cut off where there is no terminal


def test_bench_needs_two_seeds_for_an_error(capsys) -> None:  # type: ignore[no-untyped-def]
    assert _call("bench", "estimators", "--seeds", "1") == 2
    assert "'--seeds'" in capsys.readouterr().err


@pytest.mark.slow
def test_control_c_ends_the_demo_with_130_and_no_half_file(tmp_path, rates) -> None:  # type: ignore[no-untyped-def]
    process = subprocess.Popen(
        [sys.executable, "-m", "trueup.cli", "demo", "--out", str(tmp_path), "--seeds", "20", "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    cells = tmp_path / "cells"
    deadline = time.monotonic() + 300
    while not (cells.exists() and any(cells.glob("*.json"))):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err
    assert not (tmp_path / "results.json").exists()
    for path in cells.iterdir():
        json.loads(path.read_text())
