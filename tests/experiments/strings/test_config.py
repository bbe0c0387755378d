"""The configuration files, and what is refused in one."""

from __future__ import annotations

from pathlib import Path

import pytest

from trueup.errors import ConfigError, DataError
from trueup.experiments.strings.config import ARMS, StringsConfig, load_config

CONFIGS = Path(__file__).parents[3] / "configs"


@pytest.mark.parametrize("name", ["strings.yaml", "strings_hub.yaml"])
def test_the_shipped_configurations_are_valid(name):
    pytest.importorskip("yaml", reason='needs the extra: pip install "trueup[train]"')
    config = load_config(CONFIGS / name, seeds=2)
    assert config.arms == ARMS
    assert config.seeds == 2
    assert (config.model.name is None) == (name == "strings.yaml")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sead": 1}, "sead"),
        ({"rl": {"stepz": 1}}, "rl.stepz"),
        ({"arms": ["golden"]}, "arms.0"),
        ({"rl": {"anchor_fraction": 0}}, "anchor_fraction"),
    ],
)
def test_what_is_no_setting_is_refused_by_name(settings, says):
    with pytest.raises(ConfigError, match=says):
        StringsConfig(**settings)


def test_a_file_that_is_no_mapping_is_refused(tmp_path):
    pytest.importorskip("yaml", reason='needs the extra: pip install "trueup[train]"')
    path = tmp_path / "c.yaml"
    path.write_text("- seeds\n")
    with pytest.raises(DataError, match="mapping"):
        load_config(path)
    path.write_text("a: [")
    with pytest.raises(DataError, match="YAML"):
        load_config(path)
