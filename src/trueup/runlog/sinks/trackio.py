"""trackio (local-first, W&B's calls), behind the extra `trackio`."""

from __future__ import annotations

from typing import Any

from trueup.errors import MissingExtraError

__all__ = ["TrackioSink"]


class TrackioSink:
    """Starts a trackio run in `project`; further settings go to `trackio.init`."""

    def __init__(self, project: str = "trueup", **init: Any) -> None:
        try:
            import trackio
        except ImportError:
            raise MissingExtraError("The trackio sink", "trackio", "trackio") from None
        self._trackio = trackio
        self._run: Any = trackio.init(project=project, **init)

    def log(self, step: int, metrics: dict[str, float]) -> None:
        self._run.log(metrics, step=step)

    def close(self) -> None:
        self._run.finish()
