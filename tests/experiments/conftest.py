"""Gold is measured once for all tests of the experiments, in the real sandbox."""

from __future__ import annotations

import pytest

from trueup.errors import SandboxUnavailable
from trueup.sandbox import Sandbox
from trueup.tasks.catalogue import PassRates, load_programs, measure_pass_rates


@pytest.fixture(scope="session")
def rates() -> PassRates:
    try:
        with Sandbox(slots=2) as sandbox:
            return measure_pass_rates(sandbox, load_programs())
    except SandboxUnavailable as error:
        pytest.skip(str(error))
