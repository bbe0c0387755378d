"""An LLM judge over an OpenAI-compatible chat API. What it says is a proxy: calibrate it, anchor it, watch it."""

from trueup.scorers.judge.bias import length_coefficient
from trueup.scorers.judge.config import JudgeConfig
from trueup.scorers.judge.judge import LLMJudge
from trueup.scorers.judge.usage import JudgeUsage

__all__ = ["JudgeConfig", "JudgeUsage", "LLMJudge", "length_coefficient"]
