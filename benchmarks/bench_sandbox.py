"""One graded program of ten calls on each backend that works here. `trueup bench sandbox` has the floors."""

import pytest

from trueup.sandbox import Sandbox, probe

INPUTS = [[x] for x in range(10)]
EXPECTED = [x * x + 1 for x in range(10)]


@pytest.mark.parametrize("backend", [report.name for report in probe() if report.works])
def test_one_graded_program(benchmark, backend):
    with Sandbox(slots=1, backend=backend) as sandbox:
        grade = benchmark(
            sandbox.grade_calls, "def solve(x): return x * x + 1", inputs=INPUTS, expected=EXPECTED
        )
    assert grade.score.value == 1.0
