"""A step's rollouts as arrays: who belongs where, and a key per unit for the draw.

This is the only place that walks over rollouts in Python, to read four attributes of each. Everything after it is
array code over either flat vectors (`_P`, in the order of the groups) or grids (`_GN`, ragged groups padded).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import GroupError
from trueup.stats.sampling import hash_keys, mix_keys
from trueup.types import BoolArray, Group, IntArray, Rollout

__all__ = ["Batch", "FamilyIndex"]


class FamilyIndex:
    """Family names and their codes, in the order of first appearance in the run."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._code = {name: code for code, name in enumerate(names)}

    @property
    def names(self) -> list[str]:
        return list(self._code)

    def copy(self) -> FamilyIndex:
        return FamilyIndex(self._code)

    def codes(self, families: Sequence[str]) -> IntArray:
        """Codes of the given names; new names are added."""
        distinct = set(families)
        if not all(isinstance(name, str) for name in distinct):
            wrong = next(name for name in families if not isinstance(name, str))
            raise GroupError(
                f"A rollout's family must be a str, got {wrong!r}. Reports are sliced by its name."
            )
        for name in families if len(distinct - self._code.keys()) else ():
            self._code.setdefault(name, len(self._code))
        if len(distinct) == 1:
            return np.full(len(families), self._code[families[0]])
        return np.fromiter(map(self._code.__getitem__, families), np.int64, len(families))


@dataclass(frozen=True)
class Batch:
    """One step's rollouts. `rollouts` is None when only arrays were given."""

    group_ids: Sequence[Hashable]
    sizes_G: IntArray
    family_P: IntArray
    rollouts: Sequence[Rollout] | None
    rollout_ids: tuple[Hashable, ...] | None  # only if the caller gave them

    @classmethod
    def from_groups(cls, groups: Iterable[Group | Sequence[Rollout]], families: FamilyIndex) -> Batch:
        """Check and flatten groups of rollouts."""
        if isinstance(groups, (str, bytes, dict)) or not isinstance(groups, Iterable):
            raise GroupError(
                f"groups must be a list of groups of Rollout, got {type(groups).__name__}. Nothing was scored."
            )
        members: list[Sequence[Rollout]] = []
        ids: list[Hashable] = []
        named = False
        for index, group in enumerate(groups):
            if isinstance(group, Group):
                members.append(group.rollouts)
                ids.append(index if group.id is None else group.id)
                named = named or group.id is not None
            else:
                members.append(_checked(group, index))
                ids.append(index)
        if named:
            _refuse_duplicates(ids, "Group")
        if not members:
            raise GroupError(
                "A step must hold at least one group, got none. Nothing was scored. Skip empty steps."
            )
        flat = [rollout for group in members for rollout in group]
        if not all(type(rollout) is Rollout for rollout in flat):
            wrong = next(rollout for rollout in flat if not isinstance(rollout, Rollout))
            raise GroupError(
                f"A group must hold trueup.Rollout objects, got {type(wrong).__name__}. Nothing was scored. "
                "Wrap prompt and completion: trueup.Rollout(prompt, completion, task)."
            )
        rollout_ids = [rollout.id for rollout in flat]
        given = [i for i in rollout_ids if i is not None]
        if given and len(given) < len(flat):
            raise GroupError(
                f"Either all rollouts of a step or none must have an id, got {len(given)} of {len(flat)}. "
                "Anchors are chosen by id. Give every rollout one."
            )
        _refuse_duplicates(given, "Rollout")
        return cls(
            group_ids=tuple(ids) if named else range(len(ids)),
            sizes_G=np.array([len(group) for group in members]),
            family_P=families.codes([rollout.family for rollout in flat]),
            rollouts=flat,
            rollout_ids=tuple(given) if given else None,
        )

    @property
    def n_groups(self) -> int:
        return len(self.group_ids)

    @property
    def n_rollouts(self) -> int:
        return int(self.family_P.size)

    @cached_property
    def group_P(self) -> IntArray:
        """Index of each rollout's group."""
        return np.repeat(np.arange(self.n_groups), self.sizes_G)

    @cached_property
    def starts_G(self) -> IntArray:
        """Flat index of each group's first rollout."""
        starts: IntArray = np.cumsum(self.sizes_G) - self.sizes_G
        return starts

    @cached_property
    def _width(self) -> int | None:
        """The common group size, or None for ragged groups."""
        return int(self.sizes_G[0]) if (self.sizes_G == self.sizes_G[0]).all() else None

    @cached_property
    def _mask_GN(self) -> BoolArray:
        return np.arange(int(self.sizes_G.max())) < self.sizes_G[:, None]

    def grid(self, flat_P: NDArray[Any], fill: Any = np.nan) -> NDArray[Any]:
        """Flat to (n_groups, largest group), padded with `fill`."""
        if self._width is not None:
            return flat_P.reshape(self.n_groups, self._width)
        out = np.full(self._mask_GN.shape, fill, dtype=flat_P.dtype)
        out[self._mask_GN] = flat_P
        return out

    def flat(self, grid_GN: NDArray[Any]) -> NDArray[Any]:
        """Grid to flat, without the padding."""
        return grid_GN.reshape(-1) if self._width is not None else grid_GN[self._mask_GN]

    def shaped(self, flat_P: NDArray[Any]) -> NDArray[Any] | list[NDArray[Any]]:
        """What a caller gets: an (n_groups, group_size) array, or a list of arrays for ragged groups."""
        if self._width is not None:
            return flat_P.reshape(self.n_groups, self._width)
        return np.split(flat_P, np.cumsum(self.sizes_G)[:-1])

    @cached_property
    def group_keys(self) -> NDArray[np.uint64]:
        return hash_keys(self.group_ids)

    @cached_property
    def rollout_keys(self) -> NDArray[np.uint64]:
        """A key per rollout: from its id, else from its group's id and its place there."""
        if self.rollout_ids is not None:
            return hash_keys(self.rollout_ids)
        place = (np.arange(self.n_rollouts) - self.starts_G[self.group_P]).astype(np.uint64)
        return mix_keys(self.group_keys[self.group_P] + place)


def _checked(group: Any, index: int) -> Sequence[Rollout]:
    if isinstance(group, Rollout) or not isinstance(group, Sequence) or isinstance(group, (str, bytes)):
        raise GroupError(
            f"groups must be a list of groups of Rollout, got {type(group).__name__} as group {index}. "
            "Nothing was scored. Put the rollouts of one prompt into one list."
        )
    if not group:
        raise GroupError(f"A group must hold at least one rollout, got none in group {index}. Leave it out.")
    return group


def _refuse_duplicates(ids: Sequence[Hashable], what: str) -> None:
    for i in ids:
        if type(i).__repr__ is object.__repr__:
            raise GroupError(
                f"{what} ids must be strings, numbers or tuples of them, got {i!r}. Anchors are chosen by what an id "
                "prints as, and this one prints its address: another process would choose others. Give a name."
            )
    if len(set(ids)) < len(ids):
        seen: set[Hashable] = set()
        twice = next(i for i in ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
        raise GroupError(
            f"{what} ids must be unique within a step, got {twice!r} twice. Their scores could be mixed up and "
            "anchors are chosen by id. Merge the two, or give them different ids."
        )
