"""Tests and intervals that stay valid however often one looks.

A run is watched at every step, and whoever looks a thousand times at a 1 % test will be alarmed. So nothing
here is a p-value at a fixed time. Three tools, in the order in which the monitor needs them:

1. *Restarting betting e-process* (`restarting_log_e`): an alarm for a change at an unknown time. A gambler
   starts anew at every unit with 1/horizon of one unit of money and bets that the mean has risen; while the
   null holds, the expected wealth when it first reaches 1/alpha, or at the horizon, is at most the money put
   in so far, at most 1; so it reaches 1/alpha with probability at most alpha (optional stopping, Markov).
   Shiryaev-Roberts mixture over start times and bet sizes: e-detectors, arXiv 2203.03532; the bets: arXiv
   2010.09686.
2. *Confidence sequences*: bounds for a mean that hold at all times at once.
3. *Bounds for a rate*: exact at a fixed time (Clopper-Pearson), or at all times (Beta mixture).

The unit of evidence must be one whose conditional mean, given the past, is what the null speaks of: an anchor
group or a step, not a rollout. Rollouts of one group share their prompt, and an e-process over them alarms
in stationary runs (`trueup bench alarms` shows it).

Arrays carry independent runs on leading axes and time on the last one; NaN is "nothing was observed" and
neither adds evidence nor spends any of the alarm's budget.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from trueup.errors import ConfigError

__all__ = [
    "BETS",
    "RestartingAlarm",
    "betting_bounds",
    "betting_log_e",
    "clopper_pearson",
    "e_bh",
    "first_crossing",
    "rate_lower_bound",
    "rate_upper_bound",
    "restarting_band_log_e",
    "restarting_log_e",
    "restarting_rate_log_e",
    "running_mean_bounds",
    "thin_to_uniform",
]

FloatArray = NDArray[np.float64]

BETS: tuple[float, ...] = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
"""Bet sizes of the mixture, for observations of at least -1. Below 1, so that no bet can ruin."""

_RATE_ODDS = (1.5, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Alternatives of the rate alarm, as multiples of the baseline."""


def _check_level(alpha: float, horizon: int | None = None) -> None:
    if not 0.0 < alpha < 1.0:
        raise ConfigError(
            f"alpha must be a chance between 0 and 1, got {alpha}. No alarm level follows from it. "
            "Give for instance 0.01."
        )
    if horizon is not None and horizon < 1:
        raise ConfigError(
            f"horizon must be at least 1 unit of evidence, got {horizon}. The alarm's budget is spread "
            "over it. Give the number of groups (or steps) that the run may reach."
        )


def _mix_restarts(log_f: FloatArray, seen: NDArray[np.bool_], horizon: int) -> FloatArray:
    """log M_t of M_t = (M_{t-1} + 1/T) f_t along the last axis: M_t = (1/T) Σ_{s<=t} Π_{i=s..t} f_i."""
    log_p = np.cumsum(log_f, axis=-1)
    start = np.where(seen, log_f - log_p, -np.inf)  # −log P_{s−1}
    return np.asarray(log_p + np.logaddexp.accumulate(start, axis=-1) - np.log(horizon))


def restarting_log_e(
    x: ArrayLike, horizon: int, bets: tuple[float, ...] = BETS, *, floor: float = -1.0
) -> FloatArray:
    """Evidence at each time that the mean of `x` has risen above 0, as log of the mixed wealth.

    Null: the conditional mean of every x_t given the past is at most 0. Then P(exp(result) reaches 1/alpha
    at any of the first `horizon` observations) <= alpha, for every alpha.

    Args:
        x: (..., time) observations, each at least `floor`; NaN where there is none.
        horizon: number of observations over which the chance of a false alarm is stated.
        bets: fractions of the largest bet that cannot ruin.
        floor: the least value x can take, below 0.

    Returns:
        (..., time) log of mean_j M_j, with M_j ← (M_j + 1/horizon)(1 + L_j x).

    Raises:
        ConfigError: an observation under the floor, where the wealth could turn negative.
    """
    _check_level(0.5, horizon)
    x = np.asarray(x, dtype=np.float64)
    seen = ~np.isnan(x)
    if seen.any() and float(np.nanmin(x)) < floor - 1e-9:
        raise ConfigError(
            f"Observations must be at least {floor:g}, got {float(np.nanmin(x)):g}. "
            "The wealth could turn negative, and the alarm's level would not hold. Rescale them."
        )
    filled = np.where(seen, np.maximum(x, floor), 0.0) / -floor
    total = np.full(x.shape, -np.inf)
    for bet in bets:
        np.logaddexp(total, _mix_restarts(np.log1p(bet * filled), seen, horizon), out=total)
    return np.asarray(total - np.log(len(bets)))


def restarting_band_log_e(
    x: ArrayLike, band: ArrayLike, horizon: int, *, bound: ArrayLike = 1.0, bets: tuple[float, ...] = BETS
) -> FloatArray:
    """Evidence that the mean of `x` lies outside ±`band`: both directions at half weight.

    Args:
        x: (..., time) observations within ±`bound`; NaN where there is none.
        band: half-width of what is tolerated; broadcast against x, and fixed before the observation.
        horizon: see `restarting_log_e`.
        bound: the largest |x|; like the band it may change with time, fixed before the observation.
    """
    x = np.asarray(x, dtype=np.float64)
    band = np.asarray(band, dtype=np.float64)
    reach = np.asarray(bound, dtype=np.float64) + band
    above = restarting_log_e((x - band) / reach, horizon, bets)
    below = restarting_log_e((-x - band) / reach, horizon, bets)
    return np.asarray(np.logaddexp(above, below) - np.log(2.0))


def restarting_rate_log_e(x: ArrayLike, baseline: ArrayLike, horizon: int) -> FloatArray:
    """Evidence that the rate of `x` in [0, 1] has risen above `baseline`, a rate in (0, 1).

    Bets are likelihood ratios of a Bernoulli stream with a multiple of the baseline (1.5 to 32 times), which
    see a rare event far sooner than the fixed bets of `restarting_log_e`. Valid for fractional x as well.
    """
    _check_level(0.5, horizon)
    x = np.asarray(x, dtype=np.float64)
    p = np.asarray(baseline, dtype=np.float64)
    if not ((p > 0) & (p < 1)).all():
        raise ConfigError(
            f"A baseline rate must lie between 0 and 1, got {p}. A rate of 0 would turn a single "
            "event into certainty. Give the largest rate that you accept."
        )
    seen = ~np.isnan(x)
    filled = np.where(seen, x, p)
    total = np.full(np.broadcast_shapes(x.shape, p.shape), -np.inf)
    for odds in _RATE_ODDS:
        q = np.minimum(odds * p, p + 0.9 * (1 - p))
        factor = 1.0 + (q - p) / (p * (1 - p)) * (filled - p)  # = (q/p)^x ((1-q)/(1-p))^(1-x) for x in {0, 1}
        np.logaddexp(total, _mix_restarts(np.log(factor), seen, horizon), out=total)
    return np.asarray(total - np.log(len(_RATE_ODDS)))


def betting_log_e(x: ArrayLike, bets: tuple[float, ...] = BETS) -> FloatArray:
    """Evidence that the mean of `x` >= −1 has been above 0 from the start: log of mean_j Π (1 + L_j x).

    No restarts, so no horizon to pay for: P(exp(result) ever reaches 1/alpha) <= alpha while every conditional
    mean is at most 0 (Ville's inequality). Quicker than `restarting_log_e` where nothing ever changed.
    """
    x = np.nan_to_num(np.asarray(x, dtype=np.float64), nan=0.0)
    if x.size and float(x.min()) < -1.0 - 1e-9:
        raise ConfigError(
            f"Observations must be at least -1, got {float(x.min()):g}. The wealth could turn negative, and the "
            "level would not hold. Rescale them."
        )
    total = np.full(x.shape, -np.inf)
    for bet in bets:
        np.logaddexp(total, np.cumsum(np.log1p(bet * np.maximum(x, -1.0)), axis=-1), out=total)
    return np.asarray(total - np.log(len(bets)))


def first_crossing(log_e: FloatArray, alpha: float) -> NDArray[np.int64]:
    """(...,) index of the first time at which the evidence reaches 1/alpha; -1 where it never does."""
    _check_level(alpha)
    hit = log_e >= -np.log(alpha)
    return np.where(hit.any(axis=-1), hit.argmax(axis=-1), -1).astype(np.int64)


@dataclass
class RestartingAlarm:
    """The same alarm one observation at a time, for a loop: O(len(BETS)) memory, plain-data state.

    Null: the conditional mean of x lies within ±`band`, |x| <= `bound`. `update` returns True from the first
    time on at which the evidence reaches 1/alpha; `reset` starts afresh with a full budget.
    """

    band: float
    horizon: int
    alpha: float = 0.01
    bound: float = 1.0

    def __post_init__(self) -> None:
        _check_level(self.alpha, self.horizon)
        self._bets = np.concatenate([np.array(BETS), -np.array(BETS)])
        self.reset()

    def reset(self) -> None:
        self._wealth = np.zeros(self._bets.size)
        self._fired = False
        self.n = 0

    @property
    def evidence(self) -> float:
        """Mixed wealth; 1/alpha is the alarm."""
        return float(self._wealth.mean())

    @property
    def fired(self) -> bool:
        return self._fired

    def update(self, x: float) -> bool:
        """Take one observation; NaN is no observation."""
        if np.isnan(x):
            return self._fired
        if abs(x) > self.bound + 1e-9:
            raise ConfigError(
                f"An observation must lie within ±{self.bound:g}, got {x:g}. "
                "The alarm's level rests on that bound. Rescale it, or raise `bound`."
            )
        side = np.sign(self._bets)
        gain = (side * x - self.band) / (self.bound + self.band)
        self._wealth = (self._wealth + 1.0 / self.horizon) * (1.0 + np.abs(self._bets) * gain)
        self.n += 1
        self._fired = self._fired or self.evidence >= 1.0 / self.alpha
        return self._fired

    def state_dict(self) -> dict[str, object]:
        return {"wealth": self._wealth.tolist(), "fired": self._fired, "n": self.n}

    def load_state_dict(self, state: dict[str, object]) -> None:
        self._wealth = np.asarray(state["wealth"], dtype=np.float64)
        self._fired = bool(state["fired"])
        self.n = int(str(state["n"]))


# --- confidence sequences for a mean ----------------------------------------------------------------------


def running_mean_bounds(
    x: ArrayLike, alpha: float = 0.05, *, low: float = 0.0, high: float = 1.0
) -> tuple[FloatArray, FloatArray]:
    """Empirical-Bernstein confidence sequence for the running average of the conditional means.

    The target may move: at time t it is (1/t) Σ E[x_i | past]. exp(λ S_t − ψ(λ) V_t) with
    ψ(λ) = −log(1 − λ) − λ, S_t = Σ (x_i − E x_i) and V_t = Σ (x_i − x̂_{i−1})² is a supermartingale for every
    λ in [0, 1) when x lies in [0, 1] (the empirical-Bernstein process of Howard et al., arXiv 1810.08240); here
    it is mixed over a fixed grid of λ, and the bound is where the mixture reaches 2/alpha.

    Args:
        x: (..., time) in [low, high]; NaN where there is no observation.

    Returns:
        lower and upper bound, each (..., time), both valid at all times with probability 1 - alpha.
    """
    _check_level(alpha)
    unit, n = _to_unit(x, low, high)
    seen = np.diff(n, axis=-1, prepend=0) > 0
    total = np.cumsum(unit, axis=-1)
    mean = total / np.maximum(n, 1)
    before = np.concatenate([np.zeros_like(total[..., :1]), total[..., :-1]], axis=-1)
    guess = (0.5 + before) / (1 + np.maximum(n - 1, 0))
    v = np.cumsum(np.where(seen, (unit - guess) ** 2, 0.0), axis=-1)
    radius = _mixture_boundary(v, np.log(2.0 / alpha)) / np.maximum(n, 1)
    lower = np.where(n > 0, np.clip(mean - radius, 0.0, 1.0), 0.0)
    upper = np.where(n > 0, np.clip(mean + radius, 0.0, 1.0), 1.0)
    return low + (high - low) * lower, low + (high - low) * upper


_LAMBDAS = 0.9 * 2.0 ** -np.arange(0, 10, 0.75)


def _mixture_boundary(v: FloatArray, log_level: float) -> FloatArray:
    """Smallest s with (1/K) Σ exp(λ_k s − ψ(λ_k) v) >= exp(log_level), by Newton's method."""
    psi = -np.log1p(-_LAMBDAS) - _LAMBDAS
    threshold = log_level + np.log(_LAMBDAS.size)
    # The best single λ gives a point on the far side of the root; Newton comes down from there.
    s = np.min([(threshold + p * v) / lam for lam, p in zip(_LAMBDAS, psi, strict=True)], axis=0)
    for _ in range(20):
        terms = np.stack([lam * s - p * v for lam, p in zip(_LAMBDAS, psi, strict=True)])
        top = terms.max(axis=0)
        weight = np.exp(terms - top)
        value = top + np.log(weight.sum(axis=0)) - threshold
        slope = np.tensordot(_LAMBDAS, weight, axes=1) / weight.sum(axis=0)
        step = value / slope
        s = s - step
        if not step.size or float(np.max(np.abs(step))) < 1e-10:
            break
    return np.asarray(s)


def betting_bounds(
    x: ArrayLike, alpha: float = 0.05, *, low: float = 0.0, high: float = 1.0, grid: int = 400
) -> tuple[FloatArray, FloatArray]:
    """Hedged-capital confidence sequence for a *constant* mean: the tightest here.

    Waudby-Smith and Ramdas, arXiv 2010.09686, their hedged capital process with predictable plug-in bets,
    truncated at c = 1/2. The null m is kept while max(K⁺, K⁻)/2 < 1/alpha; the intervals are intersected.

    Args:
        x: (..., time) in [low, high]; NaN where there is no observation.
        grid: number of candidate means, so that the bounds are rounded outwards by (high - low)/grid.

    Returns:
        lower and upper bound, each (..., time).
    """
    _check_level(alpha)
    raw = np.asarray(x, dtype=np.float64)
    seen = ~np.isnan(raw)
    unit, n = _to_unit(raw, low, high)
    lam = _plug_in_bets(unit, seen, n, alpha)
    lower, upper = np.zeros(raw.shape), np.ones(raw.shape)
    centres = np.linspace(0.0, 1.0, grid + 1)
    kept_low, kept_high = np.full(raw.shape, 2.0), np.full(raw.shape, -1.0)
    for m in centres:
        gain = np.where(seen, unit - m, 0.0)
        up = np.cumsum(np.log1p(np.minimum(lam, 0.5 / max(m, 1e-12)) * gain), axis=-1)
        down = np.cumsum(np.log1p(-np.minimum(lam, 0.5 / max(1 - m, 1e-12)) * gain), axis=-1)
        worst = np.maximum.accumulate(np.maximum(up, down), axis=-1)
        kept = worst - np.log(2.0) < -np.log(alpha)
        kept_low = np.where(kept, np.minimum(kept_low, m), kept_low)
        kept_high = np.where(kept, np.maximum(kept_high, m), kept_high)
    some = kept_high >= 0
    lower = np.where(some, np.maximum(kept_low - 1.0 / grid, 0.0), lower)
    upper = np.where(some, np.minimum(kept_high + 1.0 / grid, 1.0), upper)
    return low + (high - low) * lower, low + (high - low) * upper


def _plug_in_bets(unit: FloatArray, seen: NDArray[np.bool_], n: FloatArray, alpha: float) -> FloatArray:
    """λ_t = sqrt(2 log(2/alpha) / (σ̂²_{t−1} t log(1 + t))), from observations before t only."""
    mean = (0.5 + np.cumsum(unit, axis=-1)) / (n + 1)
    var = (0.25 + np.cumsum(np.where(seen, (unit - mean) ** 2, 0.0), axis=-1)) / (n + 1)
    first = np.full((*unit.shape[:-1], 1), 0.25)
    before = np.concatenate([first, var[..., :-1]], axis=-1)
    t = np.maximum(n, 1)
    return np.asarray(np.sqrt(2 * np.log(2 / alpha) / (before * t * np.log1p(t))))


def _to_unit(x: ArrayLike, low: float, high: float) -> tuple[FloatArray, FloatArray]:
    """x scaled to [0, 1] with 0 where unobserved, and how many were observed up to each time."""
    x = np.asarray(x, dtype=np.float64)
    if not high > low:
        raise ConfigError(f"high must be above low, got {low} and {high}. Give the range of the values.")
    seen = ~np.isnan(x)
    inside = ~seen | ((x >= low - 1e-9) & (x <= high + 1e-9))
    if not inside.all():
        raise ConfigError(
            f"Observations must lie in [{low:g}, {high:g}], got {float(x[~inside].flat[0]):g}. "
            "The bound rests on that range. Give the true range of the scores."
        )
    unit = np.where(seen, np.clip((x - low) / (high - low), 0.0, 1.0), 0.0)
    return unit, np.cumsum(seen, axis=-1).astype(np.float64)


# --- bounds for a rate ------------------------------------------------------------------------------------


def clopper_pearson(k: ArrayLike, n: ArrayLike, confidence: float = 0.95) -> tuple[FloatArray, FloatArray]:
    """Exact one-sided lower and upper bound of a rate after k events among n, each at `confidence`.

    Clopper and Pearson 1934, as Beta quantiles. n = 0 gives [0, 1]. A fractional k (ties broken at random,
    averaged) is rounded outwards. For a two-sided interval at 95 % ask for confidence 0.975.
    """
    _check_level(1.0 - confidence)
    k = np.asarray(k, dtype=np.float64)
    n = np.asarray(n, dtype=np.float64)
    up, down = np.ceil(k - 1e-9), np.floor(k + 1e-9)
    upper = special.betaincinv(np.maximum(up + 1, 1e-300), np.maximum(n - up, 1e-300), confidence)
    lower = special.betaincinv(np.maximum(down, 1e-300), np.maximum(n - down + 1, 1e-300), 1 - confidence)
    return np.where(down <= 0, 0.0, lower), np.where(up >= n, 1.0, upper)


def rate_upper_bound(
    k: ArrayLike, n: ArrayLike, alpha: float = 0.05, *, prior: tuple[float, float] = (0.5, 1.0)
) -> FloatArray:
    """Upper bound of a rate that holds at all times at once with probability 1 - alpha.

    Inverts the one-sided Beta mixture M(p) = ∫_{q<p} (q/p)^k ((1−q)/(1−p))^(n−k) dB(q) / B(q < p), a
    supermartingale whenever every conditional rate is at least p (each factor is the bet 1 − c (x − p) with
    c >= 0); the bound is the largest p with M(p) < 1/alpha. Robbins 1970.

    Args:
        k, n: events and trials so far, broadcast together. A sum of values in [0, 1] will do for k.
        prior: Beta parameters of the mixture; the default is sharp for rare events.
    """
    _check_level(alpha)
    k, n = np.broadcast_arrays(np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64))
    low = np.where(n > 0, k / np.maximum(n, 1), 0.0)
    high = np.ones_like(low)
    a, b = prior
    for _ in range(60):
        p = 0.5 * (low + high)
        inside = _log_mixture(p, k, n, a, b) < -np.log(alpha)
        low, high = np.where(inside, p, low), np.where(inside, high, p)
    return np.where(n > 0, high, 1.0)


def rate_lower_bound(
    k: ArrayLike, n: ArrayLike, alpha: float = 0.05, *, prior: tuple[float, float] = (0.5, 1.0)
) -> FloatArray:
    """Lower bound of a rate at all times at once: the complement's upper bound, with the mirrored prior."""
    k, n = np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64)
    return 1.0 - rate_upper_bound(n - k, n, alpha, prior=(prior[1], prior[0]))


def _log_mixture(p: FloatArray, k: FloatArray, n: FloatArray, a: float, b: float) -> FloatArray:
    tiny = 1e-300
    with np.errstate(divide="ignore"):
        below = np.log(np.maximum(special.betainc(k + a, n - k + b, p), tiny))
        prior_below = np.log(np.maximum(special.betainc(a, b, p), tiny))
        likelihood = special.xlogy(k, p) + special.xlog1py(n - k, -p)
    return np.asarray(
        special.betaln(k + a, n - k + b) + below - special.betaln(a, b) - prior_below - likelihood
    )


# --- many streams, and unequal chances of being seen ------------------------------------------------------


def e_bh(e_values: ArrayLike, alpha: float) -> NDArray[np.bool_]:
    """Which hypotheses to reject so that the expected share of false ones is at most alpha.

    Wang and Ramdas, arXiv 2009.02824: reject the k* largest, k* the largest k with e_(k) >= K/(k alpha).
    Valid under any dependence. NaN (no evidence gathered) is never rejected but counts among the K.
    """
    _check_level(alpha)
    e = np.nan_to_num(np.asarray(e_values, dtype=np.float64), nan=0.0)
    if e.size == 0:
        return np.zeros(0, dtype=np.bool_)
    order = np.argsort(-e, kind="stable")
    passes = e[order] >= e.size / (np.arange(1, e.size + 1) * alpha)
    rejected = np.zeros(e.size, dtype=np.bool_)
    if passes.any():
        rejected[order[: int(np.flatnonzero(passes)[-1]) + 1]] = True
    return rejected


def thin_to_uniform(propensity: ArrayLike, uniform: ArrayLike) -> NDArray[np.bool_]:
    """Which anchors to keep so that every rollout was equally likely to be one.

    Active anchors over-represent rollouts with a large expected residual; an alarm fed with them would answer
    to the choice. Each is kept with probability min(π)/π. `uniform` are random numbers in [0, 1), drawn
    without sight of the gold.
    """
    pi = np.asarray(propensity, dtype=np.float64)
    if pi.size == 0:
        return np.zeros(0, dtype=np.bool_)
    if not ((pi > 0) & (pi <= 1)).all():
        raise ConfigError("A propensity must lie in (0, 1]: an anchor that could not be chosen was chosen.")
    return np.asarray(np.asarray(uniform) < pi.min() / pi)
