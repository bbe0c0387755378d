"""Where the scalars of each step go besides the run log. Each sink is one file behind one extra.

    sinks = [TensorBoardSink(folder)]
    ...
    send(result.record, sinks)

A sink that fails must not stop a training run: `send` turns its exception into one warning and goes on. What
matters is in the run log.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Protocol

from trueup.runlog.names import step_metrics
from trueup.types import StepRecord

__all__ = ["MetricsSink", "send"]


class MetricsSink(Protocol):
    """Takes one step's scalars. Names are `trueup/...`, values finite."""

    def log(self, step: int, metrics: dict[str, float]) -> None: ...

    def close(self) -> None: ...


def send(record: StepRecord, sinks: Iterable[MetricsSink], *, per_family: bool = False) -> dict[str, float]:
    """Compute the scalars once and give them to every sink; returns them."""
    metrics = step_metrics(record, per_family=per_family)
    for sink in sinks:
        try:
            sink.log(record.step, metrics)
        except Exception as error:
            warnings.warn(
                f"{type(sink).__name__} could not take step {record.step} ({error!r}). The run goes on; "
                "the run log has the step.",
                RuntimeWarning,
                stacklevel=2,
            )
    return metrics
