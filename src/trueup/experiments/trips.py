"""What the trips environment is measured by: the mutation table and the verification speed."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trueup.tasks.trips.mutate import AIMS, STAGE_AIMS, compare, mutate, mutate_stage
from trueup.verifiers.plan import PlanVerifier, TripTask

__all__ = ["MutationTable", "mutation_table", "plans_per_second"]


@dataclass(frozen=True, slots=True)
class MutationTable:
    """Per check: `cases` in which exactly this check was broken, `flips` in which exactly it flipped.
    `compared` mutations in all, `disagreements` those where the two implementations named different sets."""

    cases: dict[str, int]
    flips: dict[str, int]
    compared: int
    disagreements: tuple[str, ...]
    seconds: float

    @property
    def misses(self) -> dict[str, int]:
        return {name: self.cases[name] - self.flips[name] for name in self.cases}

    def to_json(self) -> dict[str, Any]:
        return {
            "checks": {
                name: {"cases": n, "flips": self.flips[name], "misses": n - self.flips[name]}
                for name, n in self.cases.items()
            },
            "compared": self.compared,
            "disagreements": list(self.disagreements),
            "seconds": round(self.seconds, 1),
        }

    def to_text(self) -> str:
        rows = [f"{'check':<16}{'cases':>8}{'flips':>8}{'misses':>8}"]
        rows += [f"{n:<16}{c:>8}{self.flips[n]:>8}{c - self.flips[n]:>8}" for n, c in self.cases.items()]
        total, flips = sum(self.cases.values()), sum(self.flips.values())
        rows.append(f"{'all':<16}{total:>8}{flips:>8}{total - flips:>8}")
        return "\n".join(rows)


def mutation_table(
    tasks: Sequence[TripTask], n_per_check: int, seed: int = 0, progress: Callable[[int], None] | None = None
) -> MutationTable:
    """Break gold plans `n_per_check` times per check and stage and count. Truth for the constraint checks is
    the CP-SAT twin; the stages are broken by construction."""
    rng = random.Random(seed)
    cases, flips = Counter[str](), Counter[str]()
    compared, disagreements = 0, []
    begun = time.perf_counter()
    for _ in range(n_per_check):
        for aim in AIMS:
            task = rng.choice(tasks)
            mutation = mutate(rng, task, aim)
            if mutation is not None:
                outcome = compare(mutation)
                if not outcome.staged:
                    compared += 1
                    if not outcome.agrees:
                        said = f"twin {sorted(outcome.broken)}, checks {sorted(outcome.failed)}"
                        disagreements.append(f"{task.id}, aim {aim}: {said}")
                    if len(outcome.broken) == 1:
                        name = _check_of(next(iter(outcome.broken)))
                        cases[name] += 1
                        flips[name] += outcome.failed == outcome.broken
            if progress is not None:
                progress(1)
        for task in tasks[:1] if n_per_check > 1 else tasks:
            _count_stages(rng, task, cases, flips)
    order = [*STAGE_AIMS, *AIMS]
    return MutationTable(
        {name: cases[name] for name in order},
        {name: flips[name] for name in order},
        compared,
        tuple(disagreements),
        time.perf_counter() - begun,
    )


def _count_stages(rng: random.Random, task: TripTask, cases: Counter[str], flips: Counter[str]) -> None:
    verifier = PlanVerifier(task)
    for stage, plan in mutate_stage(rng, task):
        cases[stage] += 1
        flips[stage] += verifier.verify(plan).failed == (stage,)


def _check_of(name: str) -> str:
    """A line's own name back to its check, for lines that exist once per city."""
    return "min_stay" if name.startswith("min_stay") else name


def plans_per_second(task: TripTask, n: int = 2000, seed: int = 0) -> float:
    """Fully verified plans per CPU second of one core, from JSON text to the last check (CPU time, so that
    other work on the machine does not count). The plans are the gold
    plan and shifted copies of it, all of which reach the last check; parsing is part of it, loading the task
    is not."""
    rng = random.Random(seed)
    texts = [json.dumps(task.gold)]
    while len(texts) < 16:
        mutation = mutate(rng, task, rng.choice(("dwell", "overlap", "transit")))
        if mutation is not None:
            texts.append(json.dumps(mutation.plan))
    verifier = PlanVerifier(task)
    for text in texts:
        verifier.verify(text)
    begun = time.process_time()
    for i in range(n):
        verifier.verify(texts[i % len(texts)])
    return n / (time.process_time() - begun)
