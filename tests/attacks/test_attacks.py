"""No attack is paid more than what it honestly answers, none is unscored, none hurts the next run."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import site
import subprocess
import sys
from pathlib import Path

import pytest

import trueup
from tests.attacks.attacks import ATTACKS, Attack
from tests.attacks.in_process import paid
from tests.attacks.run_all import run_attack
from trueup.sandbox import Limits, Sandbox, probe

ORDINARY_UID = 12_345  # needs no entry in the user database
WORKING = [report.name for report in probe() if report.works]
QUICK = [attack for attack in ATTACKS if not attack.slow]

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the attacks name system calls by their x86-64 numbers"
)


def check(attack: Attack, result: dict[str, object]) -> None:
    assert result["unscored"] is None, result
    assert result["score"] == attack.share, result
    assert result["reason"] in attack.reasons, result
    assert not result["suspect"] or "suspect" in attack.reasons, result
    assert result["honest_after"] == 1.0, result


def test_there_are_at_least_sixty_attacks_of_every_family():
    assert len(ATTACKS) >= 60
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
    families = {attack.family for attack in ATTACKS}
    assert families == {
        "exit", "equality", "hunt", "forge", "serialise", "read", "network", "persist", "bomb", "signals",
        "walls", "source",
    }  # fmt: skip


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(slots=1, limits=Limits(cpu_s=2.0, wall_s=20.0)) as box:
        yield box


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: f"{attack.family}-{attack.name}")
def test_no_attack_is_paid_on_the_best_backend_here(sandbox, attack):
    check(attack, run_attack(sandbox, attack))


def run_all(
    backend: str, *, fast: bool, uid: int | None = None, python: str = sys.executable
) -> dict[str, dict]:
    """Every attack on one backend in a process of its own, as another user if `uid` is given."""
    paths = [str(Path(trueup.__file__).parents[1]), *site.getsitepackages()]
    command = [python, str(Path(__file__).with_name("run_all.py")), backend, *(["--fast"] if fast else [])]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.defpath, "PYTHONPATH": ":".join(paths), "PYTHONDONTWRITEBYTECODE": "1"},
        **({} if uid is None else {"user": uid, "group": uid, "extra_groups": []}),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return {result["name"]: result for result in map(json.loads, done.stdout.splitlines())}


def ordinary_python() -> str:
    """An interpreter of this version that an ordinary user may run, with this project readable to him."""
    names = [sys.executable, os.path.realpath(sys.executable)]
    names += [found for name in ("python3", "python3.11") if (found := shutil.which(name, path="/usr/bin"))]
    test = f"import sys, trueup; sys.exit(sys.version_info[:2] != {tuple(sys.version_info[:2])})"
    for name in names:
        paths = [str(Path(trueup.__file__).parents[1]), *site.getsitepackages()]
        with contextlib.suppress(PermissionError):
            done = subprocess.run(
                [name, "-c", test],
                capture_output=True,
                check=False,
                env={"PATH": os.defpath, "PYTHONPATH": ":".join(paths), "PYTHONDONTWRITEBYTECODE": "1"},
                user=ORDINARY_UID,
                group=ORDINARY_UID,
                extra_groups=[],
                cwd="/",
            )
            if done.returncode == 0:
                return name
    pytest.skip(
        "no interpreter of this version with trueup's dependencies is readable to an ordinary user here"
    )


@pytest.fixture(scope="module")
def paid_to_ordinary_user():
    """The same attacks when trueup itself runs as an ordinary user: other capabilities, one user id."""
    if os.geteuid() != 0:
        pytest.skip("the tests run as an ordinary user already")
    return run_all("auto", fast=True, uid=ORDINARY_UID, python=ordinary_python())


@pytest.mark.parametrize("attack", QUICK, ids=lambda attack: f"{attack.family}-{attack.name}")
def test_no_attack_is_paid_when_trueup_runs_as_an_ordinary_user(paid_to_ordinary_user, attack):
    check(attack, paid_to_ordinary_user[attack.name])


@pytest.fixture(scope="module")
def paid_behind_landlock():
    if "landlock" not in WORKING:
        pytest.skip("Landlock does not work here")
    return run_all("landlock", fast=True)


@pytest.mark.parametrize(
    "attack", [a for a in QUICK if not a.processes], ids=lambda attack: f"{attack.family}-{attack.name}"
)
def test_no_attack_is_paid_behind_landlock(paid_behind_landlock, attack):
    check(attack, paid_behind_landlock[attack.name])


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["zygote", "bwrap", "landlock"])
def test_no_attack_is_paid_on_any_backend(backend):
    if backend not in WORKING:
        pytest.skip(f"{backend} does not work here")
    results = run_all(backend, fast=False)
    for attack in ATTACKS:
        if attack.name in results:
            check(attack, results[attack.name])


def test_a_grader_in_the_same_process_is_robbed_by_the_same_programs(sandbox):
    names = (
        "os_exit_zero",
        "os_exit_in_call",
        "equal_to_all",
        "equal_int_subclass",
        "metaclass_lies",
        "frames",
    )
    robbers = [attack for attack in ATTACKS if attack.name in names]
    assert len(robbers) == len(names)
    for attack in robbers:
        assert any(paid(sandbox, attack).values()), attack.name
