"""Endurance: thousands of runs while workers and judges are killed at random."""

import os
import random
import resource
import signal
import threading
import time
from pathlib import Path

import pytest

from trueup.sandbox import Limits, Sandbox

LIMITS = Limits(cpu_s=0.5, wall_s=10.0, memory_mb=256)
KINDS = [
    "def solve(x): return x * x",
    "def solve(x): return x * x if x % 2 else -1",
    "def solve(x): return str(x)",
    "import os\ndef solve(x): os._exit(0)",
    "def solve(x): raise ValueError(x)",
    "def solve(x): return object()",
    "import os\ndef solve(x):\n    os.write(3, b'junk')\n    return x * x",
    "def solve(x): print('y' * 400000)",
    "import threading\nthreading.Thread(target=print, args=('hi',)).start()\ndef solve(x): return x * x",
    "open('/tmp/x', 'w').write('x' * 1000)\ndef solve(x): return x * x",
]


_BATCH = 100  # a multiple of the kinds, so that position i is kind i % len(KINDS)


def work(n: int) -> list[dict]:
    return [
        {
            "source": KINDS[i % len(KINDS)] + f"\n# {i}",
            "inputs": [[x] for x in range(4)],
            "expected": [0, 1, 4, 9],
            "limits": LIMITS,
        }
        for i in range(n)
    ]


def verdicts(grades) -> list:
    return [(g.score.value, [c.reason for c in g.calls], g.suspect) for g in grades]


def descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in task.read_text().split()]
        except OSError:
            continue
    return found + [below for child in found for below in descendants(child)]


def census() -> dict[str, int]:
    return {
        "processes": len(descendants(os.getpid())),
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
        "threads": threading.active_count(),
    }


def kill_at_random(
    box: Sandbox, stop: threading.Event, killed: list[str], pause_s: tuple[float, float]
) -> None:
    rng = random.Random(0)
    while not stop.wait(rng.uniform(*pause_s)):
        kind = rng.choice(["zygote", "slot", "judge"])
        workers = [w.worker for w in list(box._pool._workers) if hasattr(w.worker, "pid")]
        pids = box._judges.pids()
        if kind == "zygote" and workers:
            pid = rng.choice(workers).pid
        elif kind == "slot" and workers:
            pid = rng.choice(workers)._process.pid  # bubblewrap itself
        elif kind == "judge" and pids:
            pid = rng.choice(pids)
        else:
            continue
        try:
            os.kill(pid, signal.SIGKILL)
            killed.append(kind)
        except ProcessLookupError:
            continue


def soak(n_runs: int, pause_s: tuple[float, float], min_kills: int) -> None:
    before = census()
    period = len(KINDS)
    with Sandbox(slots=2) as box:
        quiet = verdicts(box.grade_many(work(period)))
        warm = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        stop, killed, grades = threading.Event(), [], []
        killer = threading.Thread(target=kill_at_random, args=(box, stop, killed, pause_s))
        killer.start()
        try:
            while len(grades) < n_runs or len(killed) < min_kills:
                done: list[int] = []
                grades += box.grade_many(work(_BATCH), progress=lambda d, t, done=done: done.append(d))
                assert done == list(range(1, _BATCH + 1))
        finally:
            stop.set()
            killer.join()
        loud = verdicts(grades)
        different = [(i, got, quiet[i % period]) for i, got in enumerate(loud) if got != quiet[i % period]]
        assert different == []
        grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - warm) / 1024
    assert grown_mb < 100, grown_mb
    for _ in range(50):  # a killed bubblewrap's zygote leaves once it sees its socket closed
        if census() == before:
            break
        time.sleep(0.1)
    assert census() == before


def test_random_kills_change_no_verdict_and_leave_nothing_behind():
    soak(300, (0.3, 0.6), 3)


@pytest.mark.slow
def test_five_thousand_runs_with_random_kills_change_no_verdict_and_leave_nothing_behind():
    soak(5000, (0.3, 0.6), 60)
