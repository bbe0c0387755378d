"""How much the same attacks are paid by graders that share a process with the candidate.

    python tests/attacks/in_process.py

Each attack is run together with the tests inside one isolated process, in the two usual ways: the asserts
appended to the program and the exit code believed, and `exec` of the program by a grader that compares with
`==`. Isolation is on in both, so this shows what isolation alone does not solve.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.attacks.attacks import ATTACKS, EXPECTED, INPUTS, Attack
from tests.attacks.run_all import limits_of
from trueup.sandbox import Sandbox

_EXIT_CODE = "\n{source}\n" + "".join(
    f"assert solve({x}) == {wanted}\n" for (x,), wanted in zip(INPUTS, EXPECTED, strict=True)
)

_EXEC = """
def grade(source, inputs, expected):
    space = {{'__name__': 'candidate'}}
    try:
        exec(source, space)
        passed = all(space['solve'](*x) == wanted for x, wanted in zip(inputs, expected))
    except BaseException:
        passed = False
    return passed

import os
verdict = grade({source!r}, {inputs!r}, {expected!r})
os._exit(0 if verdict else 7)
"""


def paid(sandbox: Sandbox, attack: Attack) -> dict[str, bool]:
    """Whether each kind of grader pays an attack in full."""
    found = {}
    programs = {
        "exit code": _EXIT_CODE.format(source=attack.source),
        "exec and ==": _EXEC.format(source=attack.source, inputs=INPUTS, expected=EXPECTED),
    }
    for style, program in programs.items():
        result = sandbox.run_script(program, limits=limits_of(attack))
        found[style] = result.exit == 0 and result.reason is None
    return found


def main() -> None:
    totals: dict[str, dict[str, int]] = {}
    names: list[str] = []
    with Sandbox(slots=1) as sandbox:
        for attack in ATTACKS:
            row = totals.setdefault(attack.family, {"attacks": 0, "exit code": 0, "exec and ==": 0})
            row["attacks"] += 1
            if attack.slow:
                continue  # they end by their limits, whoever grades
            found = paid(sandbox, attack)
            for style, yes in found.items():
                row[style] += yes
            if any(found.values()):
                names.append(attack.name)
    print(
        "| family | attacks | paid by exit code | paid by exec and == | paid by trueup |\n|---|---|---|---|---|"
    )
    for family, row in totals.items():
        print(f"| {family} | {row['attacks']} | {row['exit code']} | {row['exec and ==']} | 0 |")
    sums = [sum(row[key] for row in totals.values()) for key in ("attacks", "exit code", "exec and ==")]
    print(f"| all | {sums[0]} | {sums[1]} | {sums[2]} | 0 |")
    print("\npaid by at least one:", ", ".join(names))


if __name__ == "__main__":
    main()
