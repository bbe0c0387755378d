"""The public names, and what importing them costs."""

import subprocess
import sys

import trueup

PUBLIC = [
    "AnchorConfig",
    "AnchoredReward",
    "CalibrationConfig",
    "Group",
    "GuardConfig",
    "Rollout",
    "Score",
    "StepRecord",
    "StepResult",
    "Verdict",
    "VerifierResult",
    "__version__",
    "errors",
]


def test_the_public_surface_is_these_names():
    assert sorted(trueup.__all__) == sorted(PUBLIC)
    assert all(hasattr(trueup, name) for name in PUBLIC)


def test_import_pulls_in_nothing_heavier_than_numpy_scipy_and_pydantic():
    code = (
        "import sys, trueup; "
        "print([m for m in ('torch', 'matplotlib', 'click', 'rich', 'jinja2', 'sklearn') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
