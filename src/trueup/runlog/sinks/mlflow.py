"""MLflow, behind the extra `mlflow` (the client alone: mlflow-skinny)."""

from __future__ import annotations

import time
from typing import Any

from trueup.errors import MissingExtraError

__all__ = ["MlflowSink"]


class MlflowSink:
    """Logs to the run `run_id`, or to a new one in `experiment`; `tracking_uri` None is MLflow's default."""

    def __init__(
        self, experiment: str = "trueup", *, run_id: str | None = None, tracking_uri: str | None = None
    ) -> None:
        try:
            from mlflow.entities import Metric
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise MissingExtraError("The MLflow sink", "mlflow", "mlflow-skinny") from None
        self._metric: Any = Metric
        self._client = MlflowClient(tracking_uri)
        self._owned = run_id is None
        if run_id is None:
            found = self._client.get_experiment_by_name(experiment)
            at = found.experiment_id if found else self._client.create_experiment(experiment)
            run_id = self._client.create_run(at).info.run_id
        self.run_id: str = run_id

    def log(self, step: int, metrics: dict[str, float]) -> None:
        now = int(time.time() * 1000)
        batch = [self._metric(name, value, now, step) for name, value in metrics.items()]
        self._client.log_batch(self.run_id, metrics=batch)

    def close(self) -> None:
        if self._owned:
            self._client.set_terminated(self.run_id)
