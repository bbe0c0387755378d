"""The documents of trainers and judge name what exists."""

import importlib.util
import re
from pathlib import Path

from trueup.scorers.judge.config import JudgeConfig
from trueup.types import REASONS

ROOT = Path(__file__).parents[2]
TRAINERS = (ROOT / "docs" / "trainers.md").read_text(encoding="utf-8")
JUDGE = (ROOT / "docs" / "judge.md").read_text(encoding="utf-8")


def test_every_adapter_is_in_the_table_and_says_how_it_was_tested():
    rows = re.findall(r"^\| .*?\| `adapters\.(\w+)` \|.*\| (.*?) \|$", TRAINERS, flags=re.MULTILINE)
    named = {module for module, _ in rows}
    shared = {"__init__", "ranks", "reward_function", "state", "stream", "trl_checks", "verl_pending"}
    modules = {p.stem for p in (ROOT / "src" / "trueup" / "adapters").glob("*.py")} - shared
    assert named == modules
    assert all(
        how.startswith(("the installed package", "the released file", "recorded signature"))
        for _, how in rows
    )
    for path in re.findall(r"`(tests/[\w/.]+|examples/[\w/.]+)`", TRAINERS):
        assert (ROOT / path).exists(), path


def test_the_judges_settings_and_reasons_are_real():
    """A back-quoted word of the document that looks like a setting is one."""
    known = set(JudgeConfig.model_fields) | set(REASONS)
    table = JUDGE[JUDGE.index("## No verdict") : JUDGE.index("## Text that")]
    assert set(re.findall(r"\| `(\w+)` \|$", table, flags=re.MULTILINE)) <= set(REASONS)
    for word in ("n_orders", "max_disagreement", "length_coefficient", "min_label_mass", "max_chars", "hedge_after_s",
                 "usd_per_million_tokens", "cache_path", "structured", "read"):  # fmt: skip
        assert f"`{word}" in JUDGE, word
        assert word in known
    code = re.search(r"LLMJudge\(\n(.*?)\n\)", JUDGE, flags=re.DOTALL).group(1)
    assert set(re.findall(r"^    (\w+)=", code, flags=re.MULTILINE)) <= known


def test_the_judge_can_be_imported_by_the_name_that_the_document_uses():
    assert importlib.util.find_spec("trueup.scorers.judge") is not None
    assert "from trueup.scorers.judge import LLMJudge" in JUDGE
