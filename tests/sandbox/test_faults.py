"""Whose fault it was: failing machines, killed workers and judges, candidates that try to cause it."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from trueup.errors import ConfigError, SandboxUnavailable
from trueup.sandbox import Limits, Sandbox
from trueup.sandbox.judging import JudgePool, SuspectError
from trueup.sandbox.pool import Pool
from trueup.sandbox.wire import Call, Job, RawRun

BUSY = """
import time
def solve(x):
    end = time.process_time() + 0.4
    while time.process_time() < end:
        pass
    return x
"""


class Scripted:
    """A worker that answers as told: real ones cannot be made to fail on demand."""

    def __init__(self, answers):
        self.answers = answers
        self.closed = False

    def run(self, job):
        return self.answers(job)

    def close(self):
        self.closed = True


GOOD = RawRun(True, b"", b"", b'\0\0\0\x0b[0,"ok",42]\0\0\0\x07["end"]', 0, None, None, 0.0, 0.0, {})
JOB = Job("calls", "the job", Limits(), "solve", (Call((1,), {}),))


def test_a_job_that_kills_every_worker_is_answered_as_suspect_when_known_programs_run_well():
    started = []

    def start():
        worker = Scripted(lambda job: RawRun.faulty("died") if job.source == "the job" else GOOD)
        started.append(worker)
        return worker

    pool = Pool(1, start)
    ran = pool.execute(JOB)
    pool.close()
    assert ran.suspect
    assert ran.run is None
    assert len(started) == 4
    assert all(worker.closed for worker in started)


def test_a_job_is_unscored_when_known_programs_fail_too(monkeypatch):
    monkeypatch.setattr("trueup.sandbox.pool.PATIENCE_S", 0.5)
    pool = Pool(1, lambda: Scripted(lambda job: RawRun.faulty("the machine is broken")))
    ran = pool.execute(JOB)
    pool.close()
    assert not ran.suspect
    assert ran.unavailable == "the machine is broken"


def test_a_worker_that_cannot_be_started_leaves_the_job_unscored_and_the_slot_usable(monkeypatch):
    monkeypatch.setattr("trueup.sandbox.pool.PATIENCE_S", 0.5)
    working = []

    def start():
        if not working:
            raise SandboxUnavailable("no memory for a worker")
        return Scripted(lambda job: GOOD)

    pool = Pool(1, start)
    assert pool.execute(JOB).unavailable == "no memory for a worker"
    working.append(1)
    assert pool.execute(JOB).run is GOOD
    pool.close()


def test_a_kill_from_outside_is_not_the_candidates_fault():
    answers = iter([RawRun(True, b"", b"", b"", None, signal.SIGKILL, None, 0.0, 0.0, {}), GOOD, GOOD])
    pool = Pool(1, lambda: Scripted(lambda job: next(answers)))
    assert pool.execute(JOB).run is GOOD
    pool.close()


@pytest.fixture
def sandbox():
    with Sandbox(slots=1, limits=Limits(cpu_s=2.0, wall_s=20.0)) as box:
        if box.backend not in ("zygote", "landlock"):
            pytest.skip("needs a zygote")
        yield box


def test_a_zygote_killed_in_the_middle_of_a_run_costs_nobody_anything(sandbox):
    sandbox.grade_calls("def solve(x): return x", inputs=[[1]], expected=[1])
    (worker,) = sandbox._pool._workers
    timer = threading.Timer(0.15, os.kill, (worker.worker.pid, signal.SIGKILL))
    timer.start()
    grade = sandbox.grade_calls(BUSY, inputs=[[1]], expected=[1])
    timer.join()
    assert (grade.score.value, grade.suspect) == (1.0, False)
    assert worker not in sandbox._pool._workers


def test_a_judge_killed_between_two_verdicts_costs_nobody_anything(sandbox):
    for _ in range(3):
        grade = sandbox.grade_calls("def solve(x): return x", inputs=[[1]], expected=[1])
        assert grade.score.value == 1.0
        for pid in sandbox._judges.pids():
            os.kill(pid, signal.SIGKILL)


def slow_check(stdin: str, stdout: str) -> bool:
    while True:
        pass


def dying_check(stdin: str, stdout: str) -> bool:
    os._exit(0)


def test_a_judge_that_dies_every_time_makes_the_run_suspect_and_zero(sandbox):
    grade = sandbox.grade_script("print(1)", [""], check="tests.sandbox.test_faults:dying_check")
    assert (grade.score.value, grade.suspect, grade.reason) == (0.0, True, "suspect")


def test_where_no_judge_can_start_the_run_is_unscored(sandbox, monkeypatch):
    monkeypatch.setattr("trueup.sandbox.judging._BOOT", "/dev/null")
    monkeypatch.setattr("trueup.sandbox.judging.PATIENCE_S", 0.5)
    grade = sandbox.grade_calls("def solve(x): return x", inputs=[[1]], expected=[1])
    assert (grade.score.value, grade.score.reason) == (None, "scorer_error")


def test_a_judge_starts_light_and_a_check_still_finds_all_of_trueup(sandbox):
    sandbox.grade_calls("def solve(x): return x", inputs=[[1]], expected=[1])
    (pid,) = sandbox._judges.pids()
    maps = Path(f"/proc/{pid}/maps").read_text()
    assert "scipy" not in maps
    assert "numpy" not in maps
    grade = sandbox.grade_script("print(1)", [""], check="tests.sandbox.checks:uses_trueup")
    assert grade.score.value == 1.0, grade


def test_a_judge_that_hangs_is_killed(monkeypatch):
    monkeypatch.setattr("trueup.sandbox.judging._CPU_S", 0.2)
    pool = JudgePool(1)
    request = {"stdout": b"", "ended": None, "exit": 0, "need_exit": 0, "stdin": b"", "expected": None}
    try:
        with pytest.raises(SuspectError):
            pool.ask(
                "script",
                **request,
                comparator="tokens",
                check="tests.sandbox.test_faults:slow_check",
                rel=0.0,
                abs=0.0,
            )
    finally:
        pool.close()


def test_a_check_that_cannot_be_imported_is_the_programmers_fault(sandbox):
    with pytest.raises(ConfigError, match="importable"):
        sandbox.grade_script("print(1)", [""], check="no.such.module:check")
    with pytest.raises(ConfigError, match="importable"):
        sandbox.grade_script("print(1)", [""], check=lambda stdin, stdout: True)


def test_closing_leaves_no_process_and_no_descriptor_behind():
    def children() -> set[str]:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:  # noqa: PTH123
            return set(file.read().split())

    before, fds = children(), len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(3):
        with Sandbox(slots=2) as box:
            box.grade_many([{"source": "def solve(x): return x", "inputs": [[1]], "expected": [1]}] * 4)
    assert children() == before
    assert len(os.listdir("/proc/self/fd")) == fds  # noqa: PTH208


def test_a_zygote_does_not_outlive_a_host_that_is_killed():
    script = (
        "import os, time\nfrom trueup.sandbox import Sandbox\n"
        "box = Sandbox(slots=1)\nbox.start()\nbox.run_script('print(1)')\n"
        "(worker,) = box._pool._workers\nprint(getattr(worker.worker, 'pid', 0), flush=True)\n"
        "time.sleep(60)\n"
    )
    host = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    pid = int(host.stdout.readline())
    host.kill()
    host.wait()
    host.stdout.close()
    if not pid:
        pytest.skip("needs a zygote")
    for _ in range(200):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            if file.read().rpartition(")")[2].split()[0] == "Z":
                return
        time.sleep(0.05)
    pytest.fail("the zygote is still there ten seconds after its host was killed")


def starved(n_busy: int, sandbox) -> float | None:
    burn = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(burn) for _ in range(n_busy)]
    try:
        limits = Limits(cpu_s=2.0, wall_s=2.0)
        return sandbox.grade_calls(
            BUSY, inputs=[[i] for i in range(3)], expected=[0, 1, 2], limits=limits
        ).score.value
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_a_loaded_machine_fails_no_honest_program(sandbox):
    # 1.2 CPU seconds with 2 wall seconds, against twice as many busy processes as there are processors
    assert starved(2 * (os.cpu_count() or 1), sandbox) == 1.0


@pytest.mark.slow
def test_a_heavily_loaded_machine_fails_no_honest_program(sandbox):
    assert starved(4 * (os.cpu_count() or 1), sandbox) == 1.0
