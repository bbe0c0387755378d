"""`LLMJudge`: rollouts in, scores in [0, 1] or reasons out.

    too long? → in the cache? → asked already? → ask, in one or two orders → read strictly → take length off → keep

It never raises for what the server does: every such case is an unscored rollout with a reason.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

from trueup.errors import InfrastructureError
from trueup.scorers.judge.cache import VerdictCache, cache_key
from trueup.scorers.judge.client import ChatClient, SchemaRefused
from trueup.scorers.judge.config import JudgeConfig
from trueup.scorers.judge.prompt import messages, new_ticket, schema
from trueup.scorers.judge.usage import JudgeUsage
from trueup.scorers.judge.verdict import read_reply
from trueup.types import Rollout, Score

__all__ = ["LLMJudge"]

logger = logging.getLogger("trueup.scorers")


class LLMJudge:
    """A scorer (`proxy=LLMJudge(config)`), async, for one event loop.

    Args:
        config: a `JudgeConfig`, or its settings as keywords.
        on_epoch: called with (old, new) when the server reports another model than before under the same name. The
            calibration learned from the old one no longer holds, and cached verdicts are not used across it.
    """

    def __init__(
        self,
        config: JudgeConfig | None = None,
        *,
        on_epoch: Callable[[str, str], None] | None = None,
        **settings: Any,
    ) -> None:
        self.config = config if config is not None else JudgeConfig(**settings)
        self.usage = JudgeUsage()
        self.epoch = 0
        """Counts the models that the server has reported so far, from 0."""
        self.reported_model: str | None = None
        """The model of the last reply, as the server names it."""
        self._on_epoch = on_epoch
        self._client = ChatClient(self.config, self.usage)
        self._cache = VerdictCache(self.config.cache_path)
        self._structured = self.config.structured and self.config.read == "json"
        self._asking: dict[str, asyncio.Task[Score]] = {}

    @property
    def version(self) -> str:
        """What a guard takes for the judge's identity: changed by model, by the rubric's version and by epoch."""
        return f"{self.config.model}@{self.config.version}/{self.epoch}"

    async def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """One score per rollout, all asked side by side within `max_concurrent`.

        Which model answers is known after the first reply alone, and no verdict of another may be taken from the cache;
        the first rollout of a run is therefore asked before the others.
        """
        alone = list(rollouts[:1]) if self.reported_model is None else []
        scores = [await self._one(rollout) for rollout in alone]
        scores += await asyncio.gather(*(self._one(rollout) for rollout in rollouts[len(alone) :]))
        for score in scores:
            if score.reason is not None:
                self.usage.unscored[score.reason] = self.usage.unscored.get(score.reason, 0) + 1
        return scores

    async def aclose(self) -> None:
        """Close connections and the cache."""
        await self._client.aclose()
        self._cache.close()

    async def _one(self, rollout: Rollout) -> Score:
        completion = rollout.completion if isinstance(rollout.completion, str) else str(rollout.completion)
        if len(completion) > self.config.max_chars:
            detail = f"{len(completion)} characters, of which the judge may see {self.config.max_chars}"
            return Score.unscored("abstained", detail)
        key = self._key(rollout)
        known = self._cache.get(key)
        if known is not None:
            self.usage.n_cached += 1
            return self._less_length(known, len(completion))
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.create_task(self._ask(rollout))
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        else:
            self.usage.n_cached += 1
        score = await asyncio.shield(asking)
        if score.value is None:
            return score
        self._cache.put(self._key(rollout), self.reported_model or "", score.value)
        return self._less_length(score.value, len(completion))

    def _key(self, rollout: Rollout) -> str:
        """Everything that the verdict depends on, down to the wording; a fixed ticket stands for the real one."""
        c = self.config
        asked = [messages(c, rollout, "", reverse=bool(order)) for order in range(c.n_orders)]
        return cache_key(
            c.base_url, c.model, self.reported_model, c.version, c.read, c.temperature, c.max_tokens, asked
        )

    async def _ask(self, rollout: Rollout) -> Score:
        scores = await asyncio.gather(
            *(self._ask_once(rollout, reverse=bool(order)) for order in range(self.config.n_orders))
        )
        values = [score.value for score in scores if score.value is not None]
        if len(values) < len(scores):
            return next(score for score in scores if score.value is None)
        if max(values) - min(values) > self.config.max_disagreement:
            return Score.unscored(
                "abstained", f"the two orders disagree: {values[0]:.3g} and {values[-1]:.3g}"
            )
        return Score(sum(values) / len(values))

    async def _ask_once(self, rollout: Rollout, reverse: bool) -> Score:
        ticket = new_ticket()
        body: dict[str, Any] = {
            "model": self.config.model,
            "messages": messages(self.config, rollout, ticket, reverse),
            "temperature": self.config.temperature,
            "max_tokens": self.config.max_tokens if self.config.read == "json" else 1,
        }
        if self.config.read == "logprobs":
            body |= {"logprobs": True, "top_logprobs": 20}
        try:
            reply = await self._ask_structured(body)
        except InfrastructureError as error:
            return Score(None, error.reason, str(error))
        self._note_model(reply)
        return read_reply(self.config, reply, ticket)

    async def _ask_structured(self, body: dict[str, Any]) -> Any:
        if self._structured:
            form = {"name": "verdict", "strict": True, "schema": schema(self.config)}
            try:
                return await self._client.ask(
                    body | {"response_format": {"type": "json_schema", "json_schema": form}}
                )
            except SchemaRefused as refusal:
                logger.warning(
                    "the judge's server enforces no schema; verdicts are read strictly: %s", refusal
                )
                self._structured = False
        return await self._client.ask(body)

    def _note_model(self, reply: Any) -> None:
        model = reply.get("model") if isinstance(reply, dict) else None
        if not isinstance(model, str) or model == self.reported_model:
            return
        old, self.reported_model = self.reported_model, model
        if old is not None:
            self.epoch += 1
            logger.warning(
                "the judge's server now answers with %s instead of %s: epoch %d", model, old, self.epoch
            )
            if self._on_epoch is not None:
                self._on_epoch(old, model)

    def _less_length(self, value: float, n_chars: int) -> Score:
        c = self.config
        if c.length_coefficient:
            value -= c.length_coefficient * math.log(max(n_chars, 1) / c.reference_chars)
        return Score(min(max(value, 0.0), 1.0))
