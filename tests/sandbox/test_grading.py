"""What counts as right: values, scripts, assert-style tests, files; and what a grade never depends on."""

import json
import math

import numpy as np
import pytest

from tests.sandbox.humaneval_shaped import LIAR, MBPP_SHAPED, PROBLEMS
from trueup.errors import ConfigError
from trueup.sandbox import Limits, Sandbox, Tolerance
from trueup.sandbox.artefacts import ArtefactError, parse
from trueup.sandbox.compare import same

SQUARE = "def solve(x): return x * x"


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(slots=1, limits=Limits(cpu_s=2.0, wall_s=10.0)) as box:
        yield box


def test_values_are_compared_with_exact_types_all_the_way_down():
    assert same({"a": [1, (2.0, {3})]}, {"a": [1, (2.0, {3})]})
    for other in (
        {"a": [1, [2.0, {3}]]},
        {"a": [True, (2.0, {3})]},
        {"a": [1, (2, {3})]},
        {"a": [1, (2.0, {3.0})]},
    ):
        assert not same({"a": [1, (2.0, {3})]}, other)
    assert same(math.nan, math.nan)
    assert same({(1, frozenset({2})): 0.1}, {(1, frozenset({2})): 0.1000001}, rel_tol=1e-3)
    assert not same({1: 0}, {True: 0})
    assert not same({1}, {True})
    assert not same(0.1, 0.1000001)
    assert not same([1, 2], [1, 2, 3])


def test_floats_may_differ_by_the_stated_tolerance_only(sandbox):
    source = "def solve(x): return x / 3 + 1e-9"
    plain = sandbox.grade_calls(source, inputs=[[1.0]], expected=[1 / 3])
    loose = sandbox.grade_calls(source, inputs=[[1.0]], expected=[1 / 3], tolerance=Tolerance(rel=1e-6))
    assert (plain.score.value, loose.score.value) == (0.0, 1.0)
    with pytest.raises(ConfigError, match="rel in"):
        Tolerance(rel=2.0)


def test_a_program_that_changes_its_inputs_does_not_change_the_next_call(sandbox):
    shared = [1, 2]
    source = "def solve(xs):\n    xs.append(9)\n    return len(xs)"
    grade = sandbox.grade_calls(source, inputs=[[shared], [shared]], expected=[3, 3])
    assert grade.score.value == 1.0
    assert shared == [1, 2]


def test_calls_can_have_a_process_or_a_time_limit_each(sandbox):
    source = "n = 0\ndef solve(x):\n    global n\n    n += 1\n    while x == 1: pass\n    return n"
    together = sandbox.grade_calls(
        source, inputs=[[0], [1], [0]], expected=[1, 2, 3], limits=Limits(call_cpu_s=0.1)
    )
    assert [c.reason for c in together.calls] == [None, "call_timeout", None]
    apart = sandbox.grade_calls(
        source,
        inputs=[[0], [1], [0]],
        expected=[1, 1, 1],
        limits=Limits(cpu_s=0.2),
        one_process_per_call=True,
    )
    assert [c.reason for c in apart.calls] == [None, "cpu_limit", None]


def test_all_or_nothing_stops_at_the_first_failure(sandbox):
    inputs, right = [[x] for x in range(20)], [x * x for x in range(20)]
    grade = sandbox.grade_calls(SQUARE, inputs=inputs, expected=right, all_or_nothing=True)
    assert grade.score.value == 1.0
    wrong = sandbox.grade_calls("def solve(x): return 0", inputs=inputs, expected=right, all_or_nothing=True)
    assert wrong.score.value == 0.0
    assert wrong.calls[-1].reason == "not_run"


def test_remembered_grades_depend_on_all_that_a_grade_depends_on():
    with Sandbox(slots=1, verdict_cache=100) as box:
        first = box.grade_calls(SQUARE, inputs=[[2]], expected=[4])
        again = box.grade_calls(SQUARE, inputs=[[2]], expected=[4])
        assert (first.cached, again.cached) == (False, True)
        assert again.score == first.score
        others = [
            box.grade_calls(SQUARE + " ", inputs=[[2]], expected=[4]),
            box.grade_calls(SQUARE, inputs=[[3]], expected=[4]),
            box.grade_calls(SQUARE, inputs=[[2]], expected=[4.0]),
            box.grade_calls(SQUARE, inputs=[[2]], expected=[4], limits=Limits(memory_mb=256)),
            box.grade_calls(SQUARE, inputs=[[2]], expected=[4], tolerance=Tolerance(rel=0.1)),
        ]
        assert not any(grade.cached for grade in others)
        slow = "def solve(x):\n    while True: pass"
        for _ in range(2):
            grade = box.grade_calls(slow, inputs=[[2]], expected=[4], limits=Limits(cpu_s=0.1))
            assert not grade.cached


@pytest.mark.parametrize(
    ("comparator", "expected", "right", "wrong"),
    [
        ("exact", "1 2\n", "1 2\n", "1  2\n"),
        ("tokens", "1 2", "1\n2\n", "12"),
        ("lines", "a b\nc", "a b  \nc\n\n", "a\nb c\n"),
        ("unordered_lines", "a\nb", "b\na\n", "b\nb\n"),
        ("floats", "0.333333 x", "0.3333331 x", "0.334 x"),
        ("floats", "1e3", "1000.0", "nan"),
    ],
)
def test_every_comparator_of_scripts(sandbox, comparator, expected, right, wrong):
    for printed, score in ((right, 1.0), (wrong, 0.0)):
        source = f"import sys\nsys.stdout.write({printed!r})"
        grade = sandbox.grade_script(
            source, [""], [expected], comparator=comparator, tolerance=Tolerance(rel=1e-5)
        )
        assert grade.score.value == score, grade


def test_a_script_must_end_well_but_ending_well_is_not_enough(sandbox):
    crash = "print(input())\nraise RuntimeError"
    assert sandbox.grade_script(crash, ["7"], ["7"]).calls[0].reason == "exit_code"
    assert sandbox.grade_script(crash, ["7"], ["7"], exit_code=None).score.value == 1.0
    assert sandbox.grade_script("raise SystemExit(0)", ["7"], ["7"]).calls[0].reason == "wrong_value"
    shares = sandbox.grade_script("print(int(input()) * 2)", ["1", "2", "x"], ["2", "5", "1"])
    assert shares.score.value == pytest.approx(1 / 3)


def near_enough(stdin: str, stdout: str) -> float:
    return 1.0 if abs(float(stdout) - float(stdin)) < 1 else 0.25


def table_check(files: dict) -> bool:
    assert files["rows.csv"] == [["a", "1"], ["b", "2"]]
    assert files["answer.json"] == {"n": 2}
    return bool(files["m.npy"].sum() == 6 and files["raw.bin"] == b"\x00\x01")


def test_a_tasks_own_check_is_run_by_the_judge(sandbox):
    check = "tests.sandbox.test_grading:near_enough"
    assert sandbox.grade_script("print(float(input()) + .5)", ["3"], check=check).score.value == 1.0
    assert sandbox.grade_script("print(9)", ["3"], check=near_enough).score.value == 0.25
    broken = sandbox.grade_script("print('x')", ["3"], check=check)
    # a program must not be able to make itself unscored by making the check stumble
    assert (broken.score.value, broken.reason) == (0.0, "check_error")


def test_files_are_read_by_descriptor_parsed_without_code_and_judged_outside():
    source = (
        "import numpy as np, json, csv\n"
        "np.save('/tmp/m.npy', np.arange(4))\njson.dump({'n': 2}, open('/tmp/answer.json', 'w'))\n"
        "csv.writer(open('/tmp/rows.csv', 'w')).writerows([['a', 1], ['b', 2]])\n"
        "open('/tmp/raw.bin', 'wb').write(b'\\0\\1')"
    )
    names = ["m.npy", "rows.csv", "answer.json", "raw.bin"]
    with Sandbox(slots=1, packages=["numpy"]) as box:
        if box.backend == "landlock":
            pytest.skip("Landlock has no private /tmp")
        assert box.grade_files(source, names, table_check).score.value == 1.0
        for trick in (
            "import os; os.symlink('/etc/passwd', '/tmp/answer.json')",
            "import os; os.mkdir('/tmp/answer.json')",
            "import os; os.mkfifo('/tmp/answer.json')",
            "import os; os.link('/proc/self/status', '/tmp/answer.json')",
            "open('/tmp/answer.json', 'w').write('x' * 300000)",
            "open('/tmp/answer.json', 'w').write('{')",
            "pass",
        ):
            source = f"try:\n    {trick}\nexcept OSError: pass"
            grade = box.grade_files(source, ["answer.json"], table_check)
            assert (grade.score.value, grade.reason) == (0.0, "missing_artefact"), trick
        with pytest.raises(ConfigError, match="plain file names"):
            box.run_script("pass", artefacts=["../etc/passwd"])


def test_arrays_with_objects_or_false_shapes_are_refused_before_they_are_built(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ArtefactError, match="pickled"):
        parse("a.npy", path.read_bytes())
    np.save(path, np.arange(3))
    honest = path.read_bytes()
    with pytest.raises(ArtefactError, match="claims"):
        parse("a.npy", honest.replace(b"(3,)", b"(9,)"))
    with pytest.raises(ArtefactError):
        parse("a.npy", honest[:20])
    with pytest.raises(ArtefactError):
        parse("a.json", b"[" * 100_000)
    assert parse("a.npy", honest).tolist() == [0, 1, 2]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p["entry_point"])
def test_every_reference_solution_passes_and_no_liar_does(sandbox, problem):
    options = {"function": problem["entry_point"], "tests": problem["test"], "helpers": problem["prompt"]}
    right = sandbox.grade_asserts(problem["prompt"] + problem["solution"], **options)
    assert right.score.value == 1.0, right
    liar = sandbox.grade_asserts(LIAR.replace("{name}", problem["entry_point"]), **options)
    assert liar.score.value == 0.0, liar
    lazy = sandbox.grade_asserts(problem["prompt"] + "    return None\n", **options)
    assert lazy.score.value == 0.0, lazy
    leaves = sandbox.grade_asserts("import os\nos._exit(0)", **options)
    assert leaves.score.value == 0.0, leaves


def test_mbpp_shaped_asserts_give_a_share(sandbox):
    name, tests = MBPP_SHAPED["entry_point"], MBPP_SHAPED["tests"]
    assert sandbox.grade_asserts(MBPP_SHAPED["solution"], name, tests).score.value == 1.0
    assert sandbox.grade_asserts(MBPP_SHAPED["half_right"], name, tests).score.value == 0.5


def test_the_asserts_never_enter_the_sandbox(sandbox):
    spy = "import gc\ndef f(x):\n    return [o for o in gc.get_objects() if type(o) is str and 'needle' in o]"
    grade = sandbox.grade_asserts(spy, "f", ["assert f(1) == ['needle'] or f(2) == []"])
    assert grade.score.value == 1.0  # it found nothing, both times


def test_a_test_that_calls_nothing_is_refused(sandbox):
    with pytest.raises(ConfigError, match="calls neither"):
        sandbox.grade_asserts("def f(x): return x", "f", ["assert True"])


def test_nothing_to_compare_is_the_programmers_fault(sandbox):
    for arguments in ({}, {"inputs": [[1]], "expected": []}, {"inputs": [3], "expected": [9]}):
        with pytest.raises(ConfigError):
            sandbox.grade_calls(SQUARE, **arguments)
    with pytest.raises(ConfigError, match="plain data"):
        sandbox.grade_calls(SQUARE, inputs=[[object()]], expected=[1])
    with pytest.raises(ConfigError, match="plain data"):
        sandbox.grade_calls(SQUARE, inputs=[[1]], expected=[object()])
    with pytest.raises(ConfigError, match="positive"):
        Limits(cpu_s=0)
    with pytest.raises(ConfigError, match="at least cpu_s"):
        Limits(cpu_s=3, wall_s=2)
    with pytest.raises(ConfigError, match="slots"):
        Sandbox(slots=0)


def test_a_grade_can_be_written_to_a_file(sandbox):
    grade = sandbox.grade_calls(SQUARE, inputs=[[2]], expected=[5])
    assert json.loads(json.dumps(grade.score.to_json())) == {"value": 0.0, "status": "scored"}
