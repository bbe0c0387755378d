"""The sandbox's commands, as a person or a script calls them."""

import json
import subprocess
import sys

import pytest

from trueup.sandbox import probe

WORKING = [report.name for report in probe() if report.works]


def trueup(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trueup.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_doctor_prints_json_alone_and_names_every_extra():
    done = trueup("doctor", "--json")
    found = json.loads(done.stdout)
    assert found["sandbox"]["backend"] == (WORKING[0] if WORKING else None)
    assert done.returncode == (0 if WORKING else 3)
    assert {"report", "serve", "ray"} <= set(found["extras"])
    for extra in found["extras"].values():
        assert extra["installed"] or "pip install" in extra["remedy"]


def test_serving_to_the_world_without_a_token_is_one_clear_line_and_exit_code_two(monkeypatch):
    pytest.importorskip("fastapi", reason="needs the extra 'serve'")
    if not WORKING:
        pytest.skip("nothing isolates here")
    monkeypatch.delenv("TRUEUP_TOKEN", raising=False)
    done = trueup("serve", "sandbox", "--host", "0.0.0.0", "--slots", "1")
    assert done.returncode == 2
    assert "must have a token" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "arguments", [["serve", "sandbox", "--slots", "0"], ["bench", "sandbox", "--runs", "1"]]
)
def test_bad_arguments_get_exit_code_two(arguments):
    assert trueup(*arguments).returncode == 2


@pytest.mark.slow
def test_the_benchmark_prints_json_alone_with_every_backend_beside_its_floors():
    if not WORKING:
        pytest.skip("nothing isolates here")
    done = trueup("bench", "sandbox", "--runs", "20", "--busy", "0", "--json")
    rows = {row["name"]: row for row in json.loads(done.stdout)["rows"]}
    assert set(rows) == {"bare interpreter start", "subprocess + rlimits (unsafe)", *WORKING}
    assert all(row["runs_per_s"] > 0 and row["cpu_ms"] > 0 for row in rows.values())
