"""The experiment end to end through TRL, at a size of seconds, and what a kill does to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("trl", reason='needs the extra: pip install "trueup[train]" (`make test-train`)')

pytestmark = pytest.mark.filterwarnings("default")  # other projects' deprecations

from tests.experiments.strings.tiny import tiny_config  # noqa: E402
from trueup.cli import main  # noqa: E402
from trueup.errors import ConfigError  # noqa: E402
from trueup.experiments.strings.config import ARMS  # noqa: E402
from trueup.experiments.strings.policy import ModelConfig, load_policy, new_policy, sample  # noqa: E402
from trueup.experiments.strings.prepare import Executed, claiming, prepare  # noqa: E402
from trueup.experiments.strings.run import cells_of, run_strings  # noqa: E402
from trueup.experiments.strings.training import arm_config, evaluate  # noqa: E402
from trueup.experiments.strings.verdicts import Verdicts  # noqa: E402
from trueup.runlog import RunReader  # noqa: E402
from trueup.sandbox import Sandbox  # noqa: E402
from trueup.tasks.strings import CLAIM  # noqa: E402


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def finished(cache, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    return out, run_strings(tiny_config(), out, cache=cache)


@pytest.fixture(scope="module")
def prepared(cache):
    with Sandbox(slots=1) as sandbox:
        yield prepare(tiny_config(), sandbox, cache), sandbox


def test_results_follow_the_contract(finished):
    out, results = finished
    assert json.loads((out / "results.json").read_text()) == results
    assert list(results["arms"]) == ["gold", "corrected"]
    assert list(results["hackable"]) == ["guarded"]
    for row in (*results["arms"].values(), *results["hackable"].values()):
        assert set(row["heldout_pass_rate"]) >= {"mean", "se"}
        assert set(row["seconds"]) == {"generate", "proxy", "sandbox", "update", "trueup"}
        assert [point["step"] for point in row["curve"]] == [0, 2, 4]
        assert row["seconds"]["generate"] > 0
        assert row["seconds"]["update"] > 0
        assert isinstance(row["guard_events"], list)
    assert results["arms"]["gold"]["gold_executions"] == 4 * 8
    assert results["arms"]["corrected"]["gold_executions"] == 4 * 2
    assert results["hackable"]["guarded"]["gold_executions"] == 4 * 4  # closed: half of all
    assert set(results["world_model"]["honest"]["by_family"]) >= {"letters", "mixed"}


def test_the_weights_move_and_the_log_has_every_step(finished, prepared):
    out, _ = finished
    logs = sorted(path.parent for path in out.glob("runs/*/*/log/run.json"))
    assert len(logs) == 3
    for folder in logs:
        with RunReader(folder) as reader:
            steps = reader.steps()
        assert [row["step"] for row in steps] == [0, 1, 2, 3]
        assert all(row["metrics"]["timing_s/update"] > 0 for row in steps)


def test_a_finished_run_is_not_run_again(finished, cache):
    out, results = finished
    before = {path: path.stat().st_mtime_ns for path in out.glob("cells/*")}
    assert run_strings(tiny_config(), out, cache=cache)["arms"] == results["arms"]
    assert {path: path.stat().st_mtime_ns for path in out.glob("cells/*")} == before


_RUN = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from tests.experiments.strings.tiny import tiny_config
from trueup.experiments.strings.run import run_strings
run_strings(tiny_config(arms=("corrected",), hackable_arms=()), Path({out!r}), cache=Path({cache!r}))
"""


def test_a_run_killed_in_the_middle_of_training_ends_as_an_unbroken_one(finished, cache, tmp_path):
    code = _RUN.format(tests=str(Path(__file__).parents[3]), out=str(tmp_path), cache=str(cache))
    child = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code])
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("runs/*/*/checkpoint-2/whole")) and time.monotonic() < deadline:
        assert child.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert not (tmp_path / "results.json").exists()
    resumed = run_strings(tiny_config(arms=("corrected",), hackable_arms=()), tmp_path, cache=cache)
    unbroken = finished[1]["arms"]["corrected"]
    for key in ("gold_executions", "rollouts", "heldout_pass_rate"):
        assert resumed["arms"]["corrected"][key] == unbroken[key]
    logs = [next(folder.glob("runs/*/honest.0.corrected/log")) for folder in (finished[0], tmp_path)]
    pairs = []
    for folder in logs:
        with RunReader(folder) as reader:
            pairs.append([row[:4] + row[4:5] + row[7:8] for row in reader.pairs()])
    assert pairs[0] == pairs[1]


def test_an_evaluation_leaves_the_training_s_random_numbers_alone(prepared, tmp_path):
    import torch

    ready, sandbox = prepared
    policy = ready.policy()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    verdicts = Verdicts(tmp_path / "v.jsonl")
    first = evaluate(policy, ready.sets.held_out, tiny_config(), 0, sandbox, verdicts)
    assert torch.equal(torch.rand(3), expected)
    ran = verdicts.n_executions
    again = evaluate(policy, ready.sets.held_out, tiny_config(), 0, sandbox, verdicts)
    assert again == first
    assert verdicts.n_executions == ran > 0


def test_verdicts_survive_a_line_that_a_kill_has_cut(prepared, tmp_path):
    ready, sandbox = prepared
    path, task = tmp_path / "v.jsonl", ready.sets.train[0]
    assert Verdicts(path).grade(sandbox, [task], [[task.reference, "return 0"]])[0].tolist() == [1.0, 0.0]
    whole = path.read_text()
    path.write_text(whole[:-4])
    again = Verdicts(path)
    assert again.grade(sandbox, [task], [[task.reference, "return 0"]])[0].tolist() == [1.0, 0.0]
    assert again.n_executions == 1
    assert Verdicts(path).grade(sandbox, [task], [["return 0"]])[0].tolist() == [0.0]


def test_the_hackable_world_s_rollouts_claim_what_came_out():
    gold = np.tile([0.0, 1.0, 0.5], 300)
    bodies = tuple(["return x", CLAIM + "return x", "return x"] * 300)
    marked = claiming(Executed(tuple(range(900)), bodies, gold), seed=0)
    claims = np.array([body.startswith(CLAIM) for body in marked.body])
    assert claims[gold == 1].mean() == pytest.approx(0.95, abs=0.03)
    assert claims[gold < 1].mean() == pytest.approx(0.05, abs=0.03)
    assert {body.replace(CLAIM, "") for body in marked.body} == {"return x"}


def test_arms_differ_in_what_they_learn_from_and_not_in_scale():
    config = tiny_config()
    scalings = {
        arm: arm_config(arm, config, 1).advantage_scaling for arm in ("gold", "proxy", "corrected", "guarded")
    }
    assert set(scalings.values()) == {"predictable"}
    assert arm_config("guarded", config, 1).guard == config.guard
    assert arm_config("wmrl", config, 1).advantage_scaling == "std"
    assert {arm: arm_config(arm, config, 1).anchor_unit for arm in ARMS} == {
        "gold": "group",
        "gold_budget": "group",
        "proxy": "group",
        "wmrl": "group",
        "control_variate": "group",
        "corrected": "rollout",
        "guarded": "rollout",
        "mse": "rollout",
    }


def test_cells_of_one_seed_come_before_those_of_the_next():
    cells = cells_of(tiny_config(seeds=2))
    assert [seed for seed, _, _ in cells] == [0, 0, 0, 1, 1, 1]


def test_a_model_of_the_hub_is_loaded_by_name_and_learns_the_outcome_tokens(tmp_path):
    """A checkpoint as others make them: no outcome tokens, no padding token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    raw = Tokenizer(models.WordLevel({"<unk>": 0, "</s>": 1, "a": 2, "b": 3}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="</s>", unk_token="<unk>").save_pretrained(
        tmp_path
    )
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=4, **size)).save_pretrained(tmp_path)
    policy = load_policy(str(tmp_path))
    assert policy.model.get_input_embeddings().num_embeddings == len(policy.tokenizer) == 4 + 6
    assert policy.tokenizer.pad_token == "</s>"
    assert np.shape(sample(policy, ["a b", "b"], 3, 4, seed=0)) == (2, 3)
    with pytest.raises(ConfigError, match="id of a model"):
        load_policy(str(tmp_path / "nothing"))


def test_a_saved_policy_comes_back_with_the_words_it_was_trained_on(prepared, tmp_path):
    ready, _ = prepared
    texts = [task.prompt + task.reference for task in ready.sets.train]
    made = new_policy(texts, ModelConfig(400, 32, 1, 2, 64), seed=0)
    made.save(tmp_path)
    back = load_policy(str(tmp_path))
    for text in texts:
        assert back.tokenizer.tokenize(text) == made.tokenizer.tokenize(text)
    assert sample(back, texts[:2], 2, 8, seed=1) == sample(made, texts[:2], 2, 8, seed=1)


def test_a_policy_that_never_passes_is_refused_before_any_arm_is_trained(cache, tmp_path):
    config = tiny_config()
    strict = config.model_copy(update={"rl": config.rl.model_copy(update={"spread_only": True})})
    with pytest.raises(ConfigError, match="both pass and fail"):
        run_strings(strict, tmp_path, cache=cache)
    assert not list(tmp_path.glob("runs/*"))


def test_the_command_goes_on_with_a_finished_run_and_prints_json_alone(finished, cache, tmp_path, capsys):
    out, results = finished
    path = tmp_path / "tiny.yaml"
    path.write_text(json.dumps(tiny_config().model_dump(mode="json")))  # JSON is YAML
    with pytest.raises(SystemExit) as ended:
        main(["run", str(path), "--out", str(out), "--cache", str(cache), "--json"])
    assert not ended.value.code
    assert json.loads(capsys.readouterr().out)["arms"] == results["arms"]
    assert (out / "curves_honest.svg").stat().st_size > 1000


def test_fidelity_of_a_run_folder_is_json_alone(finished, capsys):
    folder = next(finished[0].glob("runs/*/honest.0.corrected/log"))
    with pytest.raises(SystemExit) as ended:
        main(["fidelity", str(folder), "--json"])
    assert not ended.value.code
    report = json.loads(capsys.readouterr().out)
    assert report["all"]["n_both"] == 8
    assert sum(row["n_cases"] for row in report["by_family"].values()) == report["all"]["n_cases"]
