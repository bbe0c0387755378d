"""NeMo Gym: what a resources server answers to /verify, one rollout at a time.

    class Server(SimpleResourcesServer):
        async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
            score = await stream.one(Rollout(body.responses_create_params, text_of(body.response), ...))
            return BaseVerifyResponse(**body.model_dump(), **verify_fields(score))

No verdict: `mask_sample` with a failure kind of Gym's vocabulary. The protocol wants a float beside it, and Gym leaves
masked samples out of scores and updates; it is the lower end of the range, as Gym's own judge fail-safe has it.
Tested against the recorded signature of nemo-gym 0.7.0, which needs Python 3.13.
"""

from __future__ import annotations

from typing import Any

from trueup.types import Score

__all__ = ["FAILURE_KINDS", "verify_fields"]

FAILURE_KINDS: dict[str, str] = {
    "timeout_infrastructure": "transport_timeout",
    "scorer_error": "verifier_error",
    "unparsable_verdict": "judge_unparseable",
    "non_finite": "verifier_error",
    "sandbox_unavailable": "provider_unavailable",
    "cancelled": "cancelled",
    "not_selected": "trueup:not_selected",
    "abstained": "judge_failed",
    "verifier_unknown": "verifier_error",
    "gold_unavailable": "provider_unavailable",
}
"""trueup's reasons in Gym's vocabulary (`nemo_gym/failure_kinds.py`); a name with a colon is Gym's form for one that
it does not share."""


def verify_fields(score: Score, lowest: float = 0.0) -> dict[str, Any]:
    """The fields of a BaseVerifyResponse that carry a score."""
    if score.value is not None:
        return {"reward": score.value, "mask_sample": False}
    reason = score.reason or "scorer_error"
    return {
        "reward": lowest,
        "mask_sample": True,
        "failure_kind": FAILURE_KINDS.get(reason, f"trueup:{reason}"),
        "failure_reason": f"{reason}: {score.detail}" if score.detail else reason,
    }
