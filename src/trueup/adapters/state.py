"""The loop's state beside a trainer's checkpoint: one JSON file, written whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

from trueup.errors import StateError
from trueup.loop import AnchoredReward

__all__ = ["STATE_NAME", "load_state", "save_state"]

STATE_NAME = "trueup_state.json"


def save_state(anchored: AnchoredReward, checkpoint: str | os.PathLike[str]) -> None:
    """Write the loop's state into a checkpoint's folder, which is made if missing."""
    folder = Path(checkpoint)
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"{STATE_NAME}.part"
    draft.write_text(json.dumps(anchored.state_dict()), encoding="utf-8")
    draft.replace(folder / STATE_NAME)


def load_state(anchored: AnchoredReward, checkpoint: str | os.PathLike[str]) -> None:
    """Resume the loop from a checkpoint's folder.

    Raises:
        StateError: there is no state in it, or one of another configuration.
    """
    path = Path(checkpoint) / STATE_NAME
    if not path.exists():
        raise StateError(
            f"A checkpoint must hold {STATE_NAME}, got none in {checkpoint}. Calibration and the draw of anchors would "
            "start anew in the middle of a run. To want just that, write one first: "
            "trueup.adapters.state.save_state(AnchoredReward(...), checkpoint)."
        )
    anchored.load_state_dict(json.loads(path.read_text(encoding="utf-8")))
