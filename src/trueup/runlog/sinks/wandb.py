"""Weights & Biases, behind the extra `wandb`."""

from __future__ import annotations

from typing import Any

from trueup.errors import MissingExtraError

__all__ = ["WandbSink"]


class WandbSink:
    """Logs to the run given, or to a new one made with `init` (project, mode="offline", ...).

    The step is sent as the metric `trueup/step` and made the x-axis, because a trainer that logs to the same
    run counts W&B's own step differently and W&B drops what seems to go backwards.
    """

    def __init__(self, run: Any = None, **init: Any) -> None:
        try:
            import wandb
        except ImportError:
            raise MissingExtraError("The W&B sink", "wandb", "wandb") from None
        self._owned = run is None
        self._run = wandb.init(**init) if run is None else run
        self._run.define_metric("trueup/step")
        self._run.define_metric("trueup/*", step_metric="trueup/step")

    def log(self, step: int, metrics: dict[str, float]) -> None:
        self._run.log({**metrics, "trueup/step": step})

    def close(self) -> None:
        if self._owned:
            self._run.finish()
