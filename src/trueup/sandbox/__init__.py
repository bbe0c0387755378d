"""Run untrusted programs behind real walls; judge them outside.

The policy is optimised against the grader, so the grader is under attack by construction. Expected values
never enter the process that runs the candidate, and what comes back is plain data that is compared with
exact types. `docs/sandbox.md` says what is covered and what is not.
"""

from trueup.sandbox.backends import BackendReport, probe
from trueup.sandbox.base import FAILURES, CallResult, CallsResult, CallVerdict, ExecResult, Grade, Limits
from trueup.sandbox.judge import Tolerance
from trueup.sandbox.sandbox import Sandbox

__all__ = [
    "FAILURES",
    "BackendReport",
    "CallResult",
    "CallVerdict",
    "CallsResult",
    "ExecResult",
    "Grade",
    "Limits",
    "Sandbox",
    "Tolerance",
    "probe",
]
