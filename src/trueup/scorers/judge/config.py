"""Settings of an LLM judge. Frozen; unknown keys fail."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trueup.errors import ConfigError

__all__ = ["JudgeConfig"]


class JudgeConfig(BaseModel):
    """All settings of `LLMJudge`. The scale is the judge's; scores come out in [0, 1]."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_url: str
    """Of the API, ending in /v1."""
    model: str
    """As the server knows it. Another name is another judge: cached verdicts of this one are not used for it."""
    rubric: str
    """What a good completion is, in plain words."""
    criteria: tuple[str, ...] = ()
    """Aspects to check one by one before the verdict."""
    version: str = "1"
    """Of the rubric. Change it when the wording changes in a way that is to be judged anew."""
    scale: tuple[int, int] = (0, 10)
    """Lowest and highest verdict, both included."""
    read: Literal["json", "logprobs"] = "json"
    """json: reasons, then a verdict, in one JSON object. logprobs: the expected verdict over the first token's
    probabilities, without reasons; the scale must fit one digit."""
    structured: bool = True
    """Ask the server to enforce the JSON schema. One that cannot (HTTP 400) is asked without from then on."""
    n_orders: Annotated[int, Field(ge=1, le=2)] = 1
    """2: ask twice, with the parts of the prompt and the criteria in reversed order, and take the mean."""
    max_disagreement: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Beyond this difference of the two orders, in units of the scale, the rollout is unscored."""
    max_chars: Annotated[int, Field(ge=1)] = 20_000
    """A longer completion is not judged (unscored), because a judge that sees a part of it can be fooled by it."""
    length_coefficient: float = 0.0
    """Taken off per unit of log(characters / reference_chars); `length_coefficient()` estimates it from anchors."""
    reference_chars: Annotated[int, Field(ge=1)] = 500
    """The length at which the length coefficient takes nothing off."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    max_tokens: Annotated[int, Field(ge=1)] = 512
    """Of the answer. One that is cut off is unscored."""
    min_label_mass: Annotated[float, Field(gt=0, le=1)] = 0.5
    """logprobs: least probability that must lie on verdicts of the scale."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key; the key itself is never a setting."""
    max_concurrent: Annotated[int, Field(ge=1)] = 16
    """Requests in flight."""
    request_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """For one request, in seconds."""
    deadline_s: Annotated[float, Field(gt=0)] = 180.0
    """For one verdict with all its retries, from when its first request may start, in seconds."""
    max_retries: Annotated[int, Field(ge=0)] = 4
    """Further tries after time-outs, hang-ups and HTTP 408, 409, 429 and 5xx."""
    backoff_s: Annotated[float, Field(ge=0)] = 0.5
    """First upper bound of the random wait between tries; doubled with each, at most 30 s."""
    hedge_after_s: Annotated[float, Field(gt=0)] | None = None
    """Send a second, equal request if the first has not answered by then, and take whichever comes first."""
    usd_per_million_tokens: tuple[float, float] = (0.0, 0.0)
    """Price of prompt and of answer tokens, for the account."""
    cache_path: str | None = None
    """SQLite file of verdicts, shared by runs. None: in memory."""

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            faults = error.errors(include_url=False)
            where = "; ".join(f"{'.'.join(map(str, f['loc'])) or 'settings'}: {f['msg']}" for f in faults)
            raise ConfigError(
                f"The judge's settings must be valid, got {where}. Nothing was judged. Correct them."
            ) from None

    @model_validator(mode="after")
    def _check(self) -> JudgeConfig:
        low, high = self.scale
        if low >= high:
            raise ValueError(f"scale must be two whole numbers, the lower one first, got {self.scale}")
        if self.read == "logprobs" and not 0 <= low < high <= 9:
            raise ValueError(
                f"scale must lie in 0 to 9 with read='logprobs', got {self.scale}. A verdict of two digits is two "
                "tokens, and the first token's probabilities say nothing of the second"
            )
        if not math.isfinite(self.length_coefficient):
            raise ValueError(f"length_coefficient must be finite, got {self.length_coefficient}")
        return self
