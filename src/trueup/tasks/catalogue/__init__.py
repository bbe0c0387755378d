"""Twenty real programs for one string canonicalisation: a task small enough to train on in a second.

The programs (`candidates`) differ in what they get right, the unit tests (`unit_tests`) say how much that is,
and `measure_pass_rates` finds out by running them in a sandbox. No pass rate is written down anywhere.
"""

from trueup.tasks.catalogue.candidates import HACKERS, N_PROGRAMS, Program, load_programs
from trueup.tasks.catalogue.measure import PassRates, measure_pass_rates
from trueup.tasks.catalogue.unit_tests import FUNCTION, SPECIFICATION, UNIT_TESTS, UnitTest

__all__ = [
    "FUNCTION",
    "HACKERS",
    "N_PROGRAMS",
    "SPECIFICATION",
    "UNIT_TESTS",
    "PassRates",
    "Program",
    "UnitTest",
    "load_programs",
    "measure_pass_rates",
]
