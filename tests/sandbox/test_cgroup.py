"""A control group per slot, where one can be made."""

import pytest

from trueup.sandbox import Limits, Sandbox
from trueup.sandbox.cgroup import make_group


@pytest.fixture
def group():
    made = make_group()
    if made is None:
        pytest.skip("this process may not make a control group that bounds memory and tasks")
    yield made
    made.close()


def test_a_group_is_made_bounded_and_removed(group):
    folder = group._memory
    assert folder.is_dir()
    group.limit(64, 10)
    assert (group._tasks / "pids.max").read_text().strip() == "10"
    assert group.oom_kills() == 0
    group.close()
    assert not folder.exists()


def test_groups_of_hosts_that_were_killed_are_swept_away(group):
    left = group._memory.with_name("trueup-4194305-0")  # beyond the largest process id
    left.mkdir()
    other = make_group()
    other.close()
    assert not left.exists()


def test_memory_of_all_processes_together_is_bounded_by_the_slots_group(group):
    # four processes of 80 MiB each are within their own limit of 100 MiB, but not within that of one process
    source = (
        "import os\nfor _ in range(3):\n    if os.fork() == 0: break\n"
        "block = bytearray(80 << 20)\nfor i in range(0, len(block), 4096): block[i] = 1\n"
        "import time; time.sleep(0.5)\nprint('survived', flush=True)\n"
        "try:\n    while True: os.wait()\nexcept ChildProcessError: pass"
    )
    with Sandbox(slots=1) as box:
        if box.backend != "zygote":
            pytest.skip("needs a zygote")
        box.run_script("pass")
        (worker,) = box._pool._workers
        real = worker.worker.group
        assert real is not None
        limits = Limits(memory_mb=100, n_processes=4)
        assert box.run_script(source, limits=limits).stdout.count(b"survived") == 4
        real.limit, tight = (lambda *_: None), real.limit
        tight(200, 60)
        result = box.run_script(source, limits=limits)
        assert result.stdout.count(b"survived") < 4
        assert result.unscored is None
