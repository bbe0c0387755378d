"""A candidate can walk up the frames of its own process; nothing of an earlier run may be there."""

import pytest

from trueup.sandbox import Sandbox

WALKER = """
import sys

def solve(x):
    found, frame = [], sys._getframe(1)
    while frame is not None:
        found.append([frame.f_code.co_name, sorted(frame.f_locals)])
        frame = frame.f_back
    return repr(found)
"""


@pytest.mark.parametrize("backend", ["zygote", "bwrap"])
def test_the_second_run_of_a_slot_sees_the_frames_that_the_first_one_saw(backend):
    with Sandbox(slots=1, backend=backend) as sandbox:
        first, second, third = (sandbox.run(WALKER, [[1]], function="solve").calls[0].value for _ in range(3))
    assert "_run_calls" in first
    assert first == second == third
