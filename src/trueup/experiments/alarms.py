"""How often does each alarm cry wolf, and how soon does it see a change?

Stationary data first: every alarm of the monitor on streams drawn where its null just holds (the hardest
stationary case), beside a repeated z-test, a windowed one, Page-Hinkley and ADWIN on the same residuals. Then
the same streams with a change of 0.1 and 0.2 in their mean after a quarter of the time.

A unit is one anchored group. Residuals follow a Beta distribution scaled to [−1, 1], standard deviation 0.25.
All streams are seeded; runs are vectorised in chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import stats

from trueup.experiments import river_alarms
from trueup.monitor import MonitorConfig, alarms
from trueup.monitor.calibration import calibration_report
from trueup.stats.running_best import jump_down
from trueup.stats.sequential import first_crossing, restarting_band_log_e

__all__ = ["ALARMS", "Alarm", "measure", "run"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_DEFAULTS = MonitorConfig()
BAND = _DEFAULTS.drift_band
DROP_MARGIN = _DEFAULTS.drop_margin
AGREEMENT_MARGIN = _DEFAULTS.agreement_margin
TOLERANCE = _DEFAULTS.calibration_tolerance
EXPLOIT_LIMIT = 0.02
_ROLLOUTS = 8


# --- streams: (runs, time), stationary with mean as named, and moved by `shift` from `start` on -----------


def _move(mean: float, shift: float, start: int, shape: tuple[int, int]) -> FloatArray:
    moved = np.full(shape[1], mean)
    moved[start:] += shift
    return np.broadcast_to(moved, shape)


def residuals(rng: Generator, shape: tuple[int, int], shift: float, start: int) -> FloatArray:
    """Group-mean residuals in [−1, 1] with mean 0 and standard deviation 0.25."""
    return _bounded(rng, _move(0.0, shift, start, shape), 0.25)


def edge_residuals(rng: Generator, shape: tuple[int, int], shift: float, start: int) -> FloatArray:
    """The same with their mean on the edge of the band, the worst that is still no drift."""
    return _bounded(rng, _move(BAND, shift, start, shape), 0.25)


def _bounded(rng: Generator, mean: FloatArray, sd: float) -> FloatArray:
    """Values in [−1, 1] with the given mean and about the given standard deviation: a scaled Beta."""
    half = (mean + 1.0) / 2.0
    size = half * (1.0 - half) / (sd / 2.0) ** 2 - 1.0
    return np.asarray(2.0 * rng.beta(half * size, (1.0 - half) * size) - 1.0)


def taus(rng: Generator, shape: tuple[int, int], shift: float, start: int) -> FloatArray:
    """Within-group τ of a proxy that knows nothing (mean 0): the edge of reversal."""
    return _bounded(rng, _move(0.0, -shift, start, shape), 0.3)


def aurocs(rng: Generator, shape: tuple[int, int], shift: float, start: int) -> FloatArray:
    """Within-group AUROC of mean 0.8. A fall of 0.1 is within the margin and must not be seen."""
    return (_bounded(rng, _move(0.6, -2.0 * shift, start, shape), 0.4) + 1.0) / 2.0


def golds(rng: Generator, shape: tuple[int, int], shift: float, start: int) -> FloatArray:
    """Mean gold of groups: 8 coin flips of a prompt's own difficulty, mean 0.6."""
    mean = _move(0.6, -shift, start, shape)
    return np.asarray(rng.binomial(_ROLLOUTS, rng.beta(6 * mean, 6 * (1 - mean))) / _ROLLOUTS)


def gaps(rng: Generator, shape: tuple[int, int], shift: float, start: int) -> FloatArray:
    """(1 + residual)/2, which the score-rose-alone question watches."""
    return (residuals(rng, shape, -shift, start) + 1.0) / 2.0


def choices(rng: Generator, shape: tuple[int, int], shift: float, start: int) -> FloatArray:
    """Favourite is the worst minus second choice is, both 5 % plus the margin's edge at the start."""
    favourite = rng.random(shape) < _move(0.05 + alarms.EXPLOIT_MARGIN, shift, start, shape)
    return favourite.astype(np.float64) - (rng.random(shape) < 0.05)


def rates(rng: Generator, shape: tuple[int, int], shift: float, start: int) -> FloatArray:
    """Exploited or not, at the stated limit."""
    return (rng.random(shape) < _move(EXPLOIT_LIMIT, shift, start, shape)).astype(np.float64)


def clustered(rng: Generator, shape: tuple[int, int], shift: float, start: int) -> FloatArray:
    """Residuals of single rollouts, 8 a group, sharing their group's effect: for the wrong unit of evidence."""
    n_groups = -(-shape[1] // _ROLLOUTS)
    effect = np.repeat(rng.normal(0, 0.4, (shape[0], n_groups)), _ROLLOUTS, axis=1)[:, : shape[1]]
    noise = rng.normal(0, 0.2, shape)
    return np.clip(effect + noise + _move(0.0, shift, start, shape), -1, 1)


def scored(rng: Generator, shape: tuple[int, int], shift: float, start: int) -> FloatArray:
    """(runs, 800, 2) scores and coin-flip golds of 100 groups of 8; the score is off by the tolerance."""
    true = rng.uniform(0.1, 0.6, (shape[0], 800))
    return np.stack([true + TOLERANCE + shift, (rng.random(true.shape) < true).astype(np.float64)], axis=-1)


# --- what is measured -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Alarm:
    """A stream and the alarm on it. `detect` gives (runs,) first times, -1 for none."""

    name: str
    stream: Callable[[Generator, tuple[int, int], float, int], FloatArray]
    detect: Callable[[FloatArray, float, int], IntArray]
    ours: bool = True
    note: str = ""
    max_runs: int | None = None  # for alarms that run one at a time


def _e(evidence: Callable[[FloatArray, int], FloatArray]) -> Callable[[FloatArray, float, int], IntArray]:
    return lambda x, alpha, horizon: first_crossing(evidence(x, horizon), alpha)


def repeated_z(x: FloatArray, alpha: float, horizon: int) -> IntArray:
    """A two-sided z-test of mean 0 over all that has come, asked again at every unit from the 20th on."""
    n = np.arange(1, x.shape[1] + 1)
    mean = np.cumsum(x, axis=1) / n
    sd = np.sqrt(np.maximum(np.cumsum(x * x, axis=1) / n - mean**2, 1e-12))
    hit = np.abs(mean) * np.sqrt(n) / sd > stats.norm.ppf(1 - alpha / 2)
    hit[:, :19] = False
    return np.where(hit.any(axis=1), hit.argmax(axis=1), -1).astype(np.int64)


def windowed_z(x: FloatArray, alpha: float, horizon: int, window: int = 50) -> IntArray:
    """The same over the last 50 units only."""

    def rolling(v: FloatArray) -> FloatArray:
        total = np.cumsum(np.concatenate([np.zeros((v.shape[0], 1)), v], axis=1), axis=1)
        return np.asarray((total[:, window:] - total[:, :-window]) / window)

    mean = rolling(x)
    sd = np.sqrt(np.maximum(rolling(x * x) - mean**2, 1e-12))
    hit = np.abs(mean) * np.sqrt(window) / sd > stats.norm.ppf(1 - alpha / 2)
    return np.where(hit.any(axis=1), hit.argmax(axis=1) + window - 1, -1).astype(np.int64)


def miscalibrated(x: FloatArray, alpha: float, horizon: int) -> IntArray:
    """The monitor's question on each run: is the lower bound of the calibration error above the tolerance?"""
    unit = np.arange(x.shape[1]) // _ROLLOUTS
    reports = [calibration_report(run[:, 0], run[:, 1], unit) for run in x]
    quantile = float(stats.norm.ppf(1 - alpha))
    return np.array([horizon - 1 if r.ece - quantile * r.ece_error > TOLERANCE else -1 for r in reports])


ALARMS: tuple[Alarm, ...] = (
    Alarm("drift: residual outside its band", residuals, _e(lambda x, h: alarms.alarm_around_zero(x, BAND, h))),
    Alarm(
        "drift, mean on the band's edge", edge_residuals, _e(lambda x, h: alarms.alarm_around_zero(x, BAND, h)),
        note="a shift is from the edge outwards",
    ),
    Alarm(
        "drift around the log's own level", residuals,
        _e(lambda x, h: alarms.alarm_around_own_level(x, BAND, h)[0]), note="for raw logs",
    ),
    Alarm("rank reversal: τ below 0", taus, _e(alarms.alarm_reversed)),
    Alarm(
        "rank reversal: AUROC fell by > 0.1", aurocs,
        lambda x, a, h: alarms.alarm_fall(x, AGREEMENT_MARGIN, a, h)[0], note="0.1 is within the margin",
    ),
    Alarm("exploit: favourite against second choice", choices, _e(alarms.alarm_second_choice)),
    Alarm("exploit: above a limit of 0.02", rates, _e(lambda x, h: alarms.alarm_rate_above(x, EXPLOIT_LIMIT, h))),
    Alarm(
        "exploit, phase change: above its own past", rates, lambda x, a, h: alarms.alarm_own_past(x, a, h)[0]
    ),
    Alarm(
        "over-optimisation: gold fell by > 0.05", golds, lambda x, a, h: alarms.alarm_fall(x, DROP_MARGIN, a, h)[0]
    ),
    Alarm(
        "over-optimisation: score rose alone", gaps, lambda x, a, h: alarms.alarm_fall(x, DROP_MARGIN / 2, a, h)[0],
        note="asked only where the score rose and gold did not",
    ),
    Alarm("phase change: gold jumped by > 0.1", golds, lambda x, a, h: jump_down(x, a, 0.1)),
    Alarm(
        "miscalibration: error above 0.1", scored, miscalibrated, note="asked once, at the end; 100 groups of 8",
        max_runs=400,
    ),
    Alarm("repeated z-test", residuals, repeated_z, ours=False),
    Alarm("z-test over the last 50", residuals, windowed_z, ours=False),
    Alarm(
        "our drift alarm on rollouts", clustered, _e(lambda x, h: restarting_band_log_e(x, BAND, h)), ours=False,
        note="the wrong unit: rollouts of a group are not independent",
    ),
    Alarm("Page-Hinkley (river)", residuals, lambda x, a, h: river_alarms.river_alarm("page_hinkley", x), ours=False,
          max_runs=100),
    Alarm("ADWIN (river)", residuals, lambda x, a, h: river_alarms.river_alarm("adwin", x), ours=False, max_runs=100),
)  # fmt: skip


def measure(
    alarm: Alarm, *, n_steps: int, n_seeds: int, alpha: float, seed: int, chunk: int = 50
) -> Iterator[dict[str, Any] | int]:
    """Yields the number of runs done after each chunk, and at last the alarm's row of the table."""
    start = n_steps // 4
    n_seeds = min(n_seeds, alarm.max_runs or n_seeds)
    false: list[IntArray] = []
    seen: dict[float, list[IntArray]] = {0.1: [], 0.2: []}
    for number, done in enumerate(range(0, n_seeds, chunk)):
        shape = (min(chunk, n_seeds - done), n_steps)
        false.append(alarm.detect(alarm.stream(_rng(seed, number, 0), shape, 0.0, start), alpha, n_steps))
        yield shape[0]
        for k, shift in enumerate(seen, start=1):
            x = alarm.stream(_rng(seed, number, k), shape, shift, start)
            seen[shift].append(alarm.detect(x, alpha, n_steps))
            yield shape[0]
    row: dict[str, Any] = {"alarm": alarm.name, "ours": alarm.ours, "note": alarm.note}
    row |= _false_alarms(np.concatenate(false))
    for shift, times in seen.items():
        row[f"shift_{shift}"] = _delays(np.concatenate(times), start)
    yield row


def _rng(seed: int, number: int, kind: int) -> Generator:
    return np.random.default_rng([seed, number, kind])


def _false_alarms(first: IntArray) -> dict[str, Any]:
    n, k = int(first.size), int((first >= 0).sum())
    low, high = stats.binomtest(k, n).proportion_ci(0.95, "exact")
    return {"n_runs": n, "false_alarm_rate": k / n, "false_alarm_interval": [float(low), float(high)]}


def _delays(first: IntArray, start: int) -> dict[str, float | None]:
    """Delay over the runs without an earlier (false) alarm; a run that never sees it has an infinite delay."""
    clean = first[(first < 0) | (first >= start)]
    if clean.size == 0:
        return {"median_delay": None, "p90_delay": None, "seen": None}
    delay = np.where(clean < 0, np.inf, clean - start + 1.0)
    middle, late = np.quantile(delay, [0.5, 0.9], method="higher")
    return {
        "median_delay": float(middle) if np.isfinite(middle) else None,
        "p90_delay": float(late) if np.isfinite(late) else None,
        "seen": float((clean >= 0).mean()),
    }


def run(
    *,
    n_steps: int,
    n_seeds: int,
    alpha: float = 0.01,
    seed: int = 0,
    progress: Callable[[str, int], None] | None = None,
) -> dict[str, Any]:
    """Measure every alarm; river's are left out, with a note, where river is not installed."""
    rows = []
    for alarm in ALARMS:
        if "river" in alarm.name and not river_alarms.available():
            continue
        for item in measure(alarm, n_steps=n_steps, n_seeds=n_seeds, alpha=alpha, seed=seed):
            if isinstance(item, int):
                if progress:
                    progress(alarm.name, item)
            else:
                rows.append(item)
    left_out = [] if river_alarms.available() else ['Page-Hinkley and ADWIN: pip install "trueup[bench]"']
    return {
        "alpha": alpha, "n_steps": n_steps, "n_seeds": n_seeds, "seed": seed, "change_at": n_steps // 4,
        "alarms": rows, "left_out": left_out,
    }  # fmt: skip
