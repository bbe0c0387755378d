"""Process rewards for a whole trajectory: potential, local quality, environment and outcome, step by step.

    r_t = λ_Δ · Δφ_t + λ_g · g_t + λ_env · e_t + 1{t last} · λ_u · u
    R_t = Σ_{k ≥ t} γ^(k − t) r_k          w_t = clip((R_t − baseline_t) / scale, ±max)

Two modes. `published` is the formula as it is known: Δφ_t = φ_t − φ_{t−1} with φ = 0 before the first step,
and the baseline is the mean of the trajectory's own returns (0 for a single step). It has two properties that
one should know before training on it, both tested here. At γ = 1 the outcome u is in every return alike, so
subtracting their mean removes it: no weight depends on whether the task was solved. And the local term adds
up, so a longer trajectory of equally good steps has larger returns.

`corrected` (default) keeps the four terms and changes three things. Δφ_t = γ φ_t − φ_{t−1} with φ = 0 in the
terminal state (Ng, Harada and Russell 1999), so shaping adds −φ(start) to every trajectory and leaves the
order of policies alone. The baseline comes from the *other* trajectories of the group at the same step,
which does not depend on what this one did. The local term is divided by the length, so length earns nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from trueup.errors import ConfigError, GroupError
from trueup.types import Score
from trueup.verifiers.base import Frozen

__all__ = ["Trace", "TraceConfig", "TraceResult", "clip_rate", "score_traces"]

FloatArray: TypeAlias = NDArray[np.float64]
Baseline: TypeAlias = Literal["trajectory_mean", "group_mean", "leave_one_out"]


class TraceConfig(Frozen):
    """Factors of the four terms, and how returns become weights. The numbers are the published ones."""

    mode: Literal["corrected", "published"] = "corrected"
    gamma: float = Field(default=0.99, gt=0, le=1)
    lambda_delta: float = Field(default=1.0, allow_inf_nan=False)
    lambda_g: float = Field(default=1.0, allow_inf_nan=False)
    lambda_env: float = Field(default=1.0, allow_inf_nan=False)
    lambda_u: float = Field(default=1.0, allow_inf_nan=False)
    process_weight_scale: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    process_weight_max: float = Field(default=4.0, gt=0, allow_inf_nan=False)
    baseline_strategy: Baseline | None = None  # None: trajectory_mean if published, else leave_one_out
    success_at: float = 1.0  # terminal score from which the task counts as solved
    near_miss_at: float = 0.8  # potential that an unsolved trajectory must have reached to be a near miss

    @model_validator(mode="after")
    def _baseline_fits(self) -> TraceConfig:
        if self.mode == "corrected" and self.baseline_strategy == "trajectory_mean":
            raise ValueError(
                "baseline_strategy trajectory_mean removes the outcome from the weights (all of it at gamma "
                "1); use leave_one_out or group_mean, or mode published"
            )
        return self

    @property
    def baseline(self) -> Baseline:
        return self.baseline_strategy or ("trajectory_mean" if self.mode == "published" else "leave_one_out")


@dataclass(frozen=True, slots=True)
class Trace:
    """One trajectory of n ≥ 1 steps. `potentials`, `local` and `env` have n entries, after each step;
    `start_potential` is φ before the first one. `terminal` is the outcome, perhaps unscored."""

    potentials: Sequence[float]
    terminal: Score
    local: Sequence[float] | None = None
    env: Sequence[float] | None = None
    start_potential: float = 0.0


@dataclass(frozen=True)
class TraceResult:
    """What came of one trajectory; arrays have n entries. Unscored trajectories have NaN weights."""

    terminal: Score
    success: bool | None  # None when the outcome is unknown
    near_miss: bool | None
    first_error: int | None  # first step whose local score is negative
    potentials: FloatArray
    local: FloatArray
    rewards: FloatArray
    returns: FloatArray
    baseline: FloatArray
    weights: FloatArray
    clipped: NDArray[np.bool_]
    terminal_worth: FloatArray  # what one more unit of terminal score adds to each weight; 0 where clipped

    def to_json(self) -> dict[str, Any]:
        arrays = ("potentials", "local", "rewards", "returns", "baseline", "weights", "terminal_worth")
        out: dict[str, Any] = {
            name: [v if math.isfinite(v) else None for v in getattr(self, name).tolist()] for name in arrays
        }
        return out | {
            "terminal": self.terminal.to_json(),
            "success": self.success,
            "near_miss": self.near_miss,
            "first_error": self.first_error,
            "clipped": self.clipped.tolist(),
        }


def score_traces(traces: Sequence[Trace], config: TraceConfig | None = None) -> list[TraceResult]:
    """Score the trajectories of one group (one prompt). A trajectory with an unscored outcome or a number
    that is not finite gets NaN weights and takes no part in the others' baseline.

    Raises `GroupError` for an empty group or trajectory, `ConfigError` for arrays of unequal length.
    """
    config = config or TraceConfig()
    if not traces:
        raise GroupError("A group must hold at least one trajectory, got none. Leave empty groups out.")
    parts = [_rewards(trace, config) for trace in traces]
    returns = [discounted_returns(rewards, config.gamma) for _, _, rewards in parts]
    baselines = _baselines(returns, config.baseline)
    worths = _terminal_worths(returns, config)
    results = []
    for trace, (potentials, local, rewards), R, baseline, worth in zip(
        traces, parts, returns, baselines, worths, strict=True
    ):
        raw = (R - baseline) / config.process_weight_scale
        clipped: NDArray[np.bool_] = np.asarray(np.abs(raw) > config.process_weight_max)
        weights = np.clip(raw, -config.process_weight_max, config.process_weight_max)
        success = None if trace.terminal.value is None else trace.terminal.value >= config.success_at
        reached = bool(np.max(np.nan_to_num(potentials, nan=-np.inf)) >= config.near_miss_at)
        errors = np.flatnonzero(local < 0)
        results.append(
            TraceResult(
                terminal=trace.terminal,
                success=success,
                near_miss=None if success is None else (not success and reached),
                first_error=int(errors[0]) if errors.size else None,
                potentials=potentials,
                local=local,
                rewards=rewards,
                returns=R,
                baseline=baseline,
                weights=weights,
                clipped=clipped,
                terminal_worth=np.where(clipped, 0.0, worth),
            )
        )
    return results


def clip_rate(results: Sequence[TraceResult]) -> float:
    """Share of the scored steps whose weight was clipped; NaN when none was scored. Above a few per cent the
    scale is too small, and clipped weights carry no gradient of the outcome."""
    scored = sum(int(np.isfinite(r.weights).sum()) for r in results)
    return sum(int(r.clipped.sum()) for r in results) / scored if scored else math.nan


def discounted_returns(rewards: FloatArray, gamma: float) -> FloatArray:
    """R_t = r_t + γ R_{t+1}, from the back. Shape (n,) to (n,)."""
    out = np.empty_like(rewards)
    running = 0.0
    for t in range(rewards.size - 1, -1, -1):
        running = rewards[t] + gamma * running
        out[t] = running
    return out


def _rewards(trace: Trace, config: TraceConfig) -> tuple[FloatArray, FloatArray, FloatArray]:
    potentials = np.asarray(trace.potentials, np.float64)
    n = potentials.size
    if potentials.ndim != 1 or n == 0:
        raise GroupError("A trajectory must have at least one step, got none. Leave it out.")
    local = np.zeros(n) if trace.local is None else np.asarray(trace.local, np.float64)
    env = np.zeros(n) if trace.env is None else np.asarray(trace.env, np.float64)
    if local.shape != (n,) or env.shape != (n,):
        raise ConfigError(
            f"local and env must have one entry per potential ({n}), got {local.shape} and {env.shape}. No "
            "step could be rewarded. Pad with 0 where a step has none."
        )
    if config.mode == "published":
        shaping = np.diff(potentials, prepend=0.0)
        local_term = local
    else:
        after = potentials.copy()
        after[-1] = 0.0  # the terminal state's potential, so that shaping telescopes
        before = np.concatenate(([trace.start_potential], potentials[:-1]))
        shaping = config.gamma * after - before
        local_term = local / n
    rewards = config.lambda_delta * shaping + config.lambda_g * local_term + config.lambda_env * env
    rewards[-1] += config.lambda_u * (math.nan if trace.terminal.value is None else trace.terminal.value)
    # The last potential is not used when corrected; one that is not a number still means a broken input.
    if not (np.isfinite(rewards).all() and np.isfinite(potentials).all()):
        rewards = np.full(n, np.nan)
    return potentials, local, rewards


def _baselines(returns: list[FloatArray], strategy: Baseline) -> list[FloatArray]:
    if strategy == "trajectory_mean":
        return [np.full(R.size, R.mean() if R.size > 1 else 0.0) for R in returns]
    longest = max(R.size for R in returns)
    grid = np.zeros((len(returns), longest))  # nothing comes after the end, so the return there is 0
    for row, R in zip(grid, returns, strict=True):
        row[: R.size] = R
    scored: NDArray[np.bool_] = np.asarray(np.isfinite(grid).all(axis=1))
    total, count = grid[scored].sum(axis=0), int(scored.sum())
    out = []
    for i, R in enumerate(returns):
        own = strategy == "leave_one_out" and bool(scored[i])
        n_others = count - own
        others = total - grid[i] if own else total
        out.append((others / n_others if n_others else np.zeros(longest))[: R.size])
    return out


def _terminal_worths(returns: list[FloatArray], config: TraceConfig) -> list[FloatArray]:
    """∂w_t / ∂u before clipping: λ_u γ^(n−1−t) / scale, less what the baseline takes back."""
    scored = sum(bool(np.isfinite(R).all()) for R in returns)
    out = []
    for R in returns:
        direct = config.lambda_u * config.gamma ** np.arange(R.size - 1, -1, -1.0)
        if config.baseline == "trajectory_mean" and R.size > 1:
            direct = direct - direct.mean()
        elif config.baseline == "group_mean" and scored:
            direct = direct * (1.0 - 1.0 / scored)
        out.append(direct / config.process_weight_scale)
    return out
