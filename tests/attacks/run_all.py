"""Run every attack on one backend and print what each was paid, as JSON lines.

    python tests/attacks/run_all.py BACKEND [--fast]

A program of its own so that the tests can run it as another user and in other circumstances.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.attacks.attacks import ATTACKS, EXPECTED, INPUTS, Attack
from trueup.sandbox import Limits, Sandbox

HONEST = "def solve(x):\n    return x * x + 1\n"


def limits_of(attack: Attack) -> Limits:
    """Tight limits, so that the bombs are quick; `timeout` ones have less wall time."""
    wall_s = 1.0 if attack.reasons == {"timeout"} or attack.name == "stop_self" else 6.0
    return Limits(cpu_s=0.4, wall_s=wall_s, memory_mb=256, tmp_mb=8, n_processes=8 if attack.processes else 1)


def run_attack(sandbox: Sandbox, attack: Attack) -> dict[str, object]:
    """What one attack was paid and why, and what an honest program was paid right after it."""
    grade = sandbox.grade_calls(attack.source, inputs=INPUTS, expected=EXPECTED, limits=limits_of(attack))
    honest = sandbox.grade_calls(HONEST, inputs=INPUTS, expected=EXPECTED)
    return {
        "name": attack.name,
        "score": grade.score.value,
        "unscored": grade.score.reason if not grade.score.is_scored else None,
        "detail": grade.score.detail or next((c.detail for c in grade.calls if not c.passed), ""),
        "reason": grade.reason,
        "suspect": grade.suspect,
        "honest_after": honest.score.value,
    }


def main(backend: str, fast: bool) -> None:
    with Sandbox(slots=1, backend=backend, limits=Limits(cpu_s=2.0, wall_s=20.0)) as sandbox:
        for attack in ATTACKS:
            if fast and attack.slow:
                continue
            if backend == "landlock" and attack.processes:
                continue
            print(json.dumps(run_attack(sandbox, attack)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], "--fast" in sys.argv)
