"""Identity, resolved once: which row of the tables does a plan's word mean?

A plan may name a thing by id, by name or by alias. Words are compared after NFKC, case folding, trimming and
joining of white space, because a model writes "Café  Mélange" where the table says "cafe\u0301 mélange" in
another composition. Nothing looser: accents and punctuation stay, since dropping them merges places that are
not the same. A word that fits two rows is ambiguous, which is unknown and not a guess.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["AMBIGUOUS", "MISSING", "NameTable", "normalise_name"]

MISSING = -1
AMBIGUOUS = -2
_CACHE_LIMIT = 20_000


def normalise_name(text: str) -> str:
    """NFKC, casefold, trim, single spaces; folded twice because case folding can undo NFKC."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split())


@dataclass(frozen=True, slots=True)
class NameTable:
    """Row index by id (exact) or by normalised name; `AMBIGUOUS` where several rows share the name."""

    by_id: Mapping[str, int]
    by_name: Mapping[str, int]
    cache: dict[str, int]

    @classmethod
    def build(cls, rows: Iterable[tuple[str, Iterable[str]]]) -> NameTable:
        """`rows` are (id, names and aliases), in table order. An id wins over any name."""
        by_id: dict[str, int] = {}
        by_name: dict[str, int] = {}
        for index, (row_id, names) in enumerate(rows):
            by_id[row_id] = index
            for name in {normalise_name(n) for n in (row_id, *names)}:
                by_name[name] = index if by_name.get(name, index) == index else AMBIGUOUS
        return cls(by_id, by_name, {})

    def find(self, word: str) -> int:
        """Row index, `MISSING` or `AMBIGUOUS`. Answers are kept: rollouts of a task repeat their words."""
        found = self.cache.get(word)
        if found is None:
            found = self.by_id.get(word, MISSING)
            if found == MISSING:
                found = self.by_name.get(normalise_name(word), MISSING)
            if len(self.cache) >= _CACHE_LIMIT:
                self.cache.clear()
            self.cache[word] = found
        return found
