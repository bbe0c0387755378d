"""Which rollouts are worth training on: hard verdicts first, then too-much-of-the-same.

The order matters. A rollout that broke a hard constraint is dropped however well it reads, one whose verdict
is unknown is dropped as well (kept, it would be a label that nobody checked), and only among what is left are
near-duplicates and known exploits capped: capping first would let a bad copy push out a good one.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConfigError, DataError
from trueup.types import Verdict, VerifierResult
from trueup.verifiers.base import Report

__all__ = ["Filtered", "feasible_by_group", "filter_rollouts", "near_duplicates", "read_checks"]

_N_HASHES = 64
_BANDS = 16  # of 4 rows: finds a pair of similarity .8 with probability .9998, one of .5 with .64
_SHINGLE = 3  # words
_PRIME = (1 << 61) - 1


@dataclass(frozen=True)
class Filtered:
    """Indices that were kept, and for every rollout what became of it ("kept" or why not)."""

    kept: list[int]
    outcome: list[str]
    families: Sequence[str]
    signatures: Mapping[str, int] = field(default_factory=dict)  # kept rollouts per exploit signature

    def composition(self) -> dict[str, dict[str, int]]:
        """Family -> outcome -> count."""
        table: dict[str, Counter[str]] = {}
        for family, outcome in zip(self.families, self.outcome, strict=True):
            table.setdefault(family, Counter())[outcome] += 1
        return {family: dict(sorted(counts.items())) for family, counts in sorted(table.items())}


def read_checks(row: Mapping[str, Any], where: str) -> Report:
    """The verdicts that a rollout's line carries. Raises `DataError` when there are none that can be read:
    a rollout without verdicts is not one that passed."""
    checks = row.get("checks")
    if not isinstance(checks, list) or not checks:
        raise DataError(
            f"{where} must carry a list `checks`, got {type(checks).__name__}. Nothing says that the rollout "
            "obeys anything. Verify it first, or pass --task."
        )
    try:
        return Report(
            tuple(
                VerifierResult(str(c["name"]), Verdict(c["verdict"]), hard=_as_bool(c.get("hard", True)))
                for c in checks
            )
        )
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(f"{where} must have checks with name and verdict, got {error!r}. Mend it.") from None


def _as_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"hard must be true or false, got {value!r}")
    return value


def filter_rollouts(
    reports: Sequence[Report],
    texts: Sequence[str],
    families: Sequence[str],
    *,
    exploits: Mapping[str, str] | None = None,
    max_similar: int = 2,
    similarity: float = 0.85,
    max_per_exploit: int = 0,
) -> Filtered:
    """Decide for n rollouts, in order: hard failure, unknown, near-duplicates beyond `max_similar` per
    cluster, exploit signatures beyond `max_per_exploit` each. `exploits` maps a name to a regular
    expression. `similarity` is the Jaccard similarity of word triples from which two texts count as one."""
    n = len(reports)
    if not n == len(texts) == len(families):
        raise ConfigError(f"There must be {n} texts and families, got {len(texts)} and {len(families)}.")
    if not 0.0 < similarity <= 1.0 or max_similar < 1 or max_per_exploit < 0:
        raise ConfigError(
            "similarity must be in (0, 1], max_similar from 1, max_per_exploit from 0. Mend it."
        )
    patterns = _compile(exploits or {})
    outcome = [_verdict_outcome(report) for report in reports]
    alive = [i for i, what in enumerate(outcome) if what == "kept"]
    clusters = near_duplicates([texts[i] for i in alive], similarity)
    seen, signatures = Counter[int](), Counter[str]()
    for i, cluster in zip(alive, clusters, strict=True):
        if seen[cluster] >= max_similar:
            outcome[i] = "near_duplicate"
            continue
        hits = [name for name, pattern in patterns.items() if pattern.search(texts[i])]
        if any(signatures[name] >= max_per_exploit for name in hits):
            outcome[i] = "exploit"
            continue
        seen[cluster] += 1
        signatures.update(hits)
    return Filtered([i for i, what in enumerate(outcome) if what == "kept"], outcome, families, signatures)


def _compile(exploits: Mapping[str, str]) -> dict[str, re.Pattern[str]]:
    try:
        return {name: re.compile(pattern) for name, pattern in exploits.items()}
    except re.error as error:
        raise ConfigError(
            f"An exploit signature must be a regular expression, got {error}. Mend it."
        ) from None


def _verdict_outcome(report: Report) -> str:
    if report.feasible is None:
        return "unknown"
    return "kept" if report.feasible else "infeasible"


def feasible_by_group(reports: Sequence[Report], groups: Sequence[str]) -> dict[str, float]:
    """Group -> share of its decided rollouts that are feasible; groups without any are left out.

    In this form verdicts can decide whether a new policy replaces an old one: give the two dictionaries to
    `trueup.monitor.gate.gate` as baseline and candidate.
    """
    if len(reports) != len(groups):
        raise ConfigError(f"There must be {len(reports)} groups, got {len(groups)}. Pass one per report.")
    counts: dict[str, list[int]] = {}
    for report, group in zip(reports, groups, strict=True):
        if report.feasible is not None:
            row = counts.setdefault(group, [0, 0])
            row[0] += report.feasible
            row[1] += 1
    return {group: good / n for group, (good, n) in counts.items()}


def near_duplicates(texts: Sequence[str], similarity: float) -> list[int]:
    """Cluster number per text. Texts are joined when their sets of word triples have at least this Jaccard
    similarity to the first text of the cluster; candidates come from MinHash bands, the comparison itself is
    exact, so nothing is joined by chance of a hash."""
    shingles = [_shingles(text) for text in texts]
    buckets: dict[tuple[int, bytes], list[int]] = {}
    cluster = list(range(len(texts)))
    for i, mine in enumerate(shingles):
        keys = [(b, part.tobytes()) for b, part in enumerate(np.split(_minhash(mine), _BANDS))]
        for j in sorted({j for key in keys for j in buckets.get(key, ())}):
            union = len(mine | shingles[j])
            if len(mine & shingles[j]) >= similarity * union:
                cluster[i] = j
                break
        else:
            for key in keys:
                buckets.setdefault(key, []).append(i)
    return cluster


def _shingles(text: str) -> frozenset[int]:
    words = re.findall(r"\w+", text.casefold())
    n = max(len(words) - _SHINGLE + 1, 1)
    return frozenset(zlib.crc32(" ".join(words[i : i + _SHINGLE]).encode()) for i in range(n))


_RNG = np.random.default_rng(20260115)
_A: NDArray[np.uint64] = _RNG.integers(1, 1 << 31, _N_HASHES, dtype=np.uint64)
_B: NDArray[np.uint64] = _RNG.integers(0, 1 << 31, _N_HASHES, dtype=np.uint64)


def _minhash(shingles: frozenset[int]) -> NDArray[np.uint64]:
    values = np.fromiter(shingles, np.uint64, len(shingles))
    hashed: NDArray[np.uint64] = ((values[:, None] * _A + _B) % np.uint64(_PRIME)).min(axis=0)
    return hashed
