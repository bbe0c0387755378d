"""Which backend is taken, and what happens where the better ones are blocked."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import trueup
from trueup.sandbox import Limits, Sandbox, probe
from trueup.sandbox.guest.isolate import landlock_version

WORKING = [report.name for report in probe() if report.works]

# What Docker's default profile does to a container without CAP_SYS_ADMIN: no new namespaces, no mounts.
_BLOCK = """
import struct, sys
from trueup.sandbox.guest import isolate
from trueup.sandbox.seccomp import ALLOW, EPERM, ERRNO, ENOSYS, _JEQ, _JSET, _Program, _low, _only_for
from trueup.sandbox.seccomp import machine
from trueup.sandbox.syscalls import TABLES
table = TABLES[machine()]
out = _Program([])
out.load(0)
for call in ("unshare", "setns", "mount", "umount2", "pivot_root"):
    out.when(_JEQ, table[call], ERRNO | EPERM)
out.when(_JEQ, table["clone3"], ERRNO | ENOSYS)
body = _Program([])
body.load(_low(0))
body.when(_JSET, 0x7E020000, ERRNO | EPERM)
body.returns(ALLOW)
_only_for(out, table["clone"], body)
out.returns(ALLOW)
isolate._libc.prctl(38, 1, 0, 0, 0)
isolate.install_filter(b"".join(struct.pack("<HBBI", *i) for i in out.code))
"""


def run_blocked(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _BLOCK + program], capture_output=True, text=True, check=False, timeout=120
    )


needs_landlock = pytest.mark.skipif(landlock_version() < 1, reason="this kernel offers no Landlock")


@needs_landlock
def test_landlock_is_taken_where_namespaces_are_blocked_and_still_grades():
    done = run_blocked(
        "from trueup.sandbox import Sandbox\n"
        "with Sandbox(slots=1) as box:\n"
        "    grades = [box.grade_calls(s, inputs=[[3]], expected=[9]).score.value for s in\n"
        "              ('def solve(x): return x * x', 'def solve(x): return x',\n"
        "               'def solve(x): return 9 if open(\"/etc/passwd\") else 0')]\n"
        "    print(box.backend, grades)\n"
    )
    assert done.stdout.split(None, 1) == ["landlock", "[1.0, 0.0, 0.0]\n"], done.stderr


@needs_landlock
def test_doctor_says_which_backend_and_why_the_better_ones_failed():
    done = run_blocked("from trueup.cli import main\nmain(['doctor', '--json'])\n")
    found = json.loads(done.stdout)["sandbox"]
    assert found["backend"] == "landlock"
    for backend in found["backends"][:2]:
        assert not backend["works"]
        assert "ermission" in backend["why"] or "not permitted" in backend["why"]
        assert "user namespaces" in backend["remedy"]


def test_doctor_exits_with_three_where_nothing_isolates(monkeypatch):
    done = run_blocked(
        "from trueup.sandbox import backends\nbackends.landlock_version = lambda: 0\n"
        "from trueup.cli import main\nmain(['doctor'])\n"
    )
    assert done.returncode == 3
    assert "nothing can isolate" in done.stdout


@pytest.mark.parametrize("backend", ["zygote", "bwrap", "landlock"])
def test_every_backend_gives_the_same_answers(backend):
    if backend not in WORKING:
        pytest.skip(f"{backend} does not work here")
    source = "def solve(a, b=2):\n    return {(a, b): [a / b, {a}, b'x', 2 ** 80, None]}"
    with Sandbox(slots=1, backend=backend) as box:
        result = box.run(source, inputs=[[3], [4, 5]])
        assert [call.value for call in result.calls] == [
            {(3, 2): [1.5, {3}, b"x", 2**80, None]},
            {(4, 5): [0.8, {4}, b"x", 2**80, None]},
        ]
        assert box.backend == backend


@pytest.mark.parametrize("backend", ["zygote", "landlock"])
def test_equal_runs_give_equal_bytes_across_zygotes(backend):
    if backend not in WORKING:
        pytest.skip(f"{backend} does not work here")
    source = (
        "import random\nprint({f'k{i}' for i in range(50)}, random.random(), hash('x'))\n"
        "def solve(n): return [random.random(), list({str(i) for i in range(n)}), hash(('a', n))]"
    )
    seen = set()
    for runs in (70, 70, 60):
        with Sandbox(slots=1, backend=backend) as box:
            for _ in range(runs):
                result = box.run(source, inputs=[[20]])
                seen.add((repr(result.calls), result.stdout))
    assert len(seen) == 1


def test_only_the_named_packages_can_be_imported():
    if WORKING[:1] == []:
        pytest.skip("nothing isolates here")
    source = "import importlib.util\ndef solve(n): return importlib.util.find_spec(n) is not None"
    with Sandbox(slots=1, packages=["numpy"]) as box:
        result = box.run("import numpy\ndef solve(n): return int(numpy.arange(n).sum())", inputs=[[5]])
        assert result.calls[0].value == 10, result
        found = box.run(source, inputs=[["scipy"], ["trueup"], ["pydantic"]])
        assert [call.value for call in found.calls] == [False, False, False]


def test_processes_work_where_they_are_granted():
    source = (
        "import subprocess, sys\n"
        "print(subprocess.run([sys.executable, '-c', 'print(6 * 7)'], capture_output=True, text=True).stdout)"
    )
    with Sandbox(slots=1, limits=Limits(n_processes=4)) as box:
        if box.backend == "landlock":
            pytest.skip("Landlock has no process namespace to clean up")
        assert box.run_script(source).stdout.split() == [b"42"]


def test_the_candidate_is_nobody_even_when_trueup_runs_as_root():
    if os.geteuid() != 0 or "zygote" not in WORKING:
        pytest.skip("needs root and user namespaces")
    script = (
        "import threading, time, pathlib\nfrom trueup.sandbox import Sandbox\n"
        "def below(pid):\n"
        "    kids = pathlib.Path(f'/proc/{pid}/task/{pid}/children').read_text().split()\n"
        "    return [int(k) for k in kids] + [d for k in kids for d in below(int(k))]\n"
        "with Sandbox(slots=1) as box:\n"
        "    box.run_script('pass')\n"
        "    (worker,) = box._pool._workers\n"
        "    t = threading.Thread(target=box.run_script, args=('import time\\ntime.sleep(2)',))\n"
        "    t.start()\n"
        "    while not (found := below(worker.worker.pid)): time.sleep(.05)\n"
        "    time.sleep(.5)\n"
        "    for pid in found:\n"
        "        status = open(f'/proc/{pid}/status').read().splitlines()\n"
        "        print([line.split()[1] for line in status if line.startswith('Uid')][0])\n"
        "    t.join()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    uids = {int(line) for line in done.stdout.split()}
    assert uids
    assert 0 not in uids


@pytest.mark.parametrize("backend", ["zygote", "bwrap", "landlock"])
def test_a_run_has_four_descriptors_however_many_its_host_has(backend):
    if backend not in WORKING:
        pytest.skip(f"{backend} does not work here")
    # fstat asks for each number without opening anything
    source = (
        "import os\ndef solve(n):\n    found = []\n    for fd in range(n):\n"
        "        try: os.fstat(fd)\n        except OSError: continue\n        found.append(fd)\n    return found"
    )
    files = [open(os.devnull) for _ in range(400)]  # noqa: PTH123, SIM115
    try:
        with Sandbox(slots=1, backend=backend) as box:
            assert box.run(source, inputs=[[2000]]).calls[0].value == [0, 1, 2, 3]
            if backend != "landlock":
                script = box.run_script(source + "\nprint(solve(2000))", artefacts=["x"])
                assert script.stdout == b"[0, 1, 2, 3]\n"
    finally:
        for file in files:
            file.close()


def test_a_forked_child_of_the_host_uses_workers_of_its_own():
    with Sandbox(slots=1) as box:
        job = {"source": "def solve(x): return x", "inputs": [[1]], "expected": [1]}
        assert box.grade_calls(**job).score.value == 1.0
        script = (
            "import os, sys\nfrom trueup.sandbox import Sandbox\nbox = Sandbox(slots=1)\n"
            f"job = {job!r}\nbox.grade_calls(**job)\npid = os.fork()\n"
            "values = [box.grade_calls(**job).score.value for _ in range(3)]\nbox.close()\n"
            "if not pid: os._exit(0 if values == [1.0] * 3 else 1)\n"
            "sys.exit(os.waitpid(pid, 0)[1] or values != [1.0] * 3)\n"
        )
        assert subprocess.run([sys.executable, "-c", script], check=False, timeout=120).returncode == 0


def test_named_packages_are_deterministic_too():
    if not WORKING:
        pytest.skip("nothing isolates here")
    seen = set()
    for _ in range(2):
        with Sandbox(slots=1, packages=["numpy"]) as box:
            source = "import numpy as np\ndef solve(n): return np.random.rand(n).tolist()"
            seen |= {repr(box.run(source, inputs=[[3]]).calls) for _ in range(2)}
    assert len(seen) == 1


def test_the_package_of_the_guest_imports_the_standard_library_only():
    folder = Path(trueup.__file__).parent / "sandbox" / "guest"
    for file in folder.glob("*.py"):
        for line in file.read_text().splitlines():
            if line.strip().startswith(("import ", "from ")):
                name = line.split()[1].split(".")[0]
                assert name == "" or name in sys.stdlib_module_names, (file, line)


def test_this_machine_is_one_that_the_filter_knows():
    assert platform.machine().lower() in ("x86_64", "amd64", "aarch64", "arm64")
