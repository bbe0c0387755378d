"""Checks of tasks, as an author would write them; the judge imports them in its own process."""

import trueup
from trueup.sandbox import Limits


def uses_trueup(stdin: str, stdout: str) -> bool:
    """Needs names of the whole package."""
    return trueup.Score(1.0).is_scored and Limits().cpu_s > 0 and stdout == "1\n"
