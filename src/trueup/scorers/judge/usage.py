"""The judge's account: calls, tokens, money, and what came of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["JudgeUsage"]


@dataclass(slots=True)
class JudgeUsage:
    """Counts since the judge was made. Tokens are as the server reports them; a request that was given up may have
    cost more than it says."""

    n_requests: int = 0
    n_retries: int = 0
    n_hedges: int = 0
    n_cached: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0
    cost_usd: float = 0.0
    unscored: dict[str, int] = field(default_factory=dict)

    def charge(self, reply: Any, usd_per_million_tokens: tuple[float, float]) -> None:
        """Book the tokens of one reply."""
        usage = reply.get("usage") if isinstance(reply, Mapping) else None
        if not isinstance(usage, Mapping):
            return
        prompt, answer = (_count(usage.get(name)) for name in ("prompt_tokens", "completion_tokens"))
        self.prompt_tokens += prompt
        self.answer_tokens += answer
        self.cost_usd += (prompt * usd_per_million_tokens[0] + answer * usd_per_million_tokens[1]) / 1e6

    def metrics(self) -> dict[str, float]:
        """Under names for a run log."""
        counts = {
            "requests": self.n_requests,
            "retries": self.n_retries,
            "hedges": self.n_hedges,
            "cached": self.n_cached,
            "prompt_tokens": self.prompt_tokens,
            "answer_tokens": self.answer_tokens,
            "cost_usd": self.cost_usd,
        }
        out = {f"trueup/judge/{name}": float(value) for name, value in counts.items()}
        return out | {f"trueup/judge/unscored/{reason}": float(n) for reason, n in self.unscored.items()}


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
