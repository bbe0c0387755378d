"""Gold for the catalogue: every program is run on every unit test, in the sandbox.

Twenty programs are few enough to run at the start and to remember: within one experiment a program's verdict
does not change, and `measure_pass_rates` sees to that by running everything twice. What an arm would have
paid without that memory is its number of gold queries times the measured seconds per run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trueup.errors import DataError, SandboxUnavailable
from trueup.tasks.catalogue.candidates import Program
from trueup.tasks.catalogue.unit_tests import FUNCTION, UNIT_TESTS

__all__ = ["PassRates"]


@dataclass(frozen=True, slots=True)
class PassRates:
    """What the sandbox found. Everything here was measured."""

    pass_rate: tuple[float, ...]  # share of the unit tests passed, per program
    n_runs: int
    seconds_total: float  # of the runs' own wall time
    backend: str

    @property
    def seconds_per_run(self) -> float:
        """Mean wall seconds of grading one program on all unit tests."""
        return self.seconds_total / self.n_runs
