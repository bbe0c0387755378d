"""TensorBoard event files, behind the extra `tensorboard` (tensorboardX: no TensorFlow, no torch)."""

from __future__ import annotations

import os

from trueup.errors import MissingExtraError

__all__ = ["TensorBoardSink"]


class TensorBoardSink:
    """Writes event files into `folder`."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise MissingExtraError("The TensorBoard sink", "tensorboard", "tensorboardX") from None
        self._writer = SummaryWriter(logdir=os.fspath(folder), write_to_disk=True)

    def log(self, step: int, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, global_step=step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
