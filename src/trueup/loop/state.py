"""What a run has learned, in one object that is replaced and never half changed.

A step learns into a copy and the copy takes the place of the original at the very end. So whatever interrupts a step,
its own faults included, finds either the state before it or the state after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trueup.errors import StateError
from trueup.loop.batch import Batch, FamilyIndex
from trueup.loop.calibration import Calibrator
from trueup.loop.config import AnchorConfig
from trueup.loop.guard import Guard
from trueup.loop.learning import Predictables
from trueup.loop.schedule import scheduled_fraction
from trueup.types import BoolArray

__all__ = ["LoopState"]

STATE_VERSION = 1


class LoopState:
    """Step counter, families, calibration, predictable quantities and guard of one run."""

    def __init__(self, config: AnchorConfig) -> None:
        self.config = config
        self.step = 0
        self.next_group = 0  # a number that no group of the run has had
        self.families = FamilyIndex()
        self.calibrator = Calibrator(
            config.calibration, config.proxy_range or config.gold_range, config.gold_range
        )
        self.predictables = Predictables(config)
        self.guard = None if config.guard is None else Guard(config.guard)

    def copy(self) -> LoopState:
        """An independent copy; arrays are shared, because they are replaced and not written to."""
        other = LoopState.__new__(LoopState)
        other.config, other.step, other.next_group = self.config, self.step, self.next_group
        other.families = self.families.copy()
        other.calibrator = self.calibrator.copy()
        other.predictables = self.predictables.copy()
        other.guard = None if self.guard is None else self.guard.copy()
        return other

    @property
    def fraction(self) -> float:
        """Fraction of units that the schedule wants anchored at this step."""
        if self.config.schedule == "adaptive":
            return self.predictables.anchor_fraction
        return scheduled_fraction(self.config, self.step)

    def shut(self, batch: Batch, proxy_version: str | None) -> BoolArray:
        """Rollouts whose proxy the guard leaves out of this step."""
        if self.guard is None:
            return np.zeros(batch.n_rollouts, np.bool_)
        if self.guard.version_changed(proxy_version):
            return np.ones(batch.n_rollouts, np.bool_)
        return self.guard.closed(batch.family_P)

    def to_plain(self) -> dict[str, Any]:
        """Plain data that survives JSON bit for bit."""
        return {
            "version": STATE_VERSION,
            "config": self.config.model_dump(mode="json"),
            "step_index": self.step,
            "next_group": self.next_group,
            "families": self.families.names,
            "calibrator": self.calibrator.state_dict(),
            "predictables": self.predictables.state_dict(),
            "guard": None if self.guard is None else self.guard.state_dict(),
        }

    @classmethod
    def from_plain(cls, config: AnchorConfig, plain: Mapping[str, Any]) -> LoopState:
        """Read what `to_plain` wrote.

        Raises:
            StateError: another version, another configuration, or not such a state at all.
        """
        version = plain.get("version") if isinstance(plain, Mapping) else plain
        if version != STATE_VERSION:
            raise StateError(
                f"The state must be of version {STATE_VERSION}, got {version!r}. It could be read wrongly without "
                "notice. Resume it with the version of trueup that wrote it."
            )
        state = cls(config)
        try:
            mine, theirs = config.model_dump(mode="json"), dict(plain["config"])
            changed = [name for name, value in mine.items() if theirs.get(name) != value]
            if not changed:
                state.step, state.next_group = int(plain["step_index"]), int(plain["next_group"])
                state.families = FamilyIndex(plain["families"])
                state.calibrator.load_state_dict(plain["calibrator"])
                state.predictables.load_state_dict(plain["predictables"])
                if state.guard is not None:
                    state.guard.load_state_dict(plain["guard"])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise StateError(
                f"The state must be what state_dict() returned, got one that cannot be read ({error!r}). "
                "Nothing was changed. Load another checkpoint."
            ) from error
        if changed:
            raise StateError(
                f"The state must come from the same configuration, got different {', '.join(changed)}. The run "
                "would not be the one that was stopped. Build AnchoredReward with the saved config."
            )
        return state
