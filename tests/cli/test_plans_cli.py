"""`trueup verify`, `trueup filter`, `trueup trips` through the real entry point."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trueup.cli import main
from trueup.tasks import trips as trips_package

DATA = Path(trips_package.__file__).parent / "data"
TASK = DATA / "trip-l1.json"


@pytest.fixture
def run(capsys):
    def call(*args):
        with pytest.raises(SystemExit) as exit_:
            main([str(a) for a in args])
        out, err = capsys.readouterr()
        return exit_.value.code, out, err

    return call


@pytest.fixture
def gold():
    return json.loads(TASK.read_text())["gold"]


def test_a_feasible_plan_exits_0_and_prints_json_alone(run, gold, tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(gold))
    code, out, err = run("verify", TASK, plan, "--json")
    answer = json.loads(out)
    assert (code, err) == (0, "")
    assert (answer["feasible"], answer["reward"]) == (True, 1.0)
    assert {"name", "verdict", "margin", "unit", "witness", "hard"} <= answer["checks"][0].keys()
    assert {c["verdict"] for c in answer["checks"]} <= {"pass", "not_applicable"}


@pytest.mark.parametrize("text", ["", "I would rather not.", "{}", '{"days": []}'])
def test_an_unreadable_plan_is_the_policys_answer_and_exits_1(run, tmp_path, text):
    plan = tmp_path / "plan.json"
    plan.write_text(text)
    code, out, _ = run("verify", TASK, plan, "--json")
    answer = json.loads(out)
    assert (code, answer["feasible"], answer["reward"]) == (1, False, 0.0)


def test_a_table_with_a_gap_exits_3_with_no_reward(run, gold, tmp_path):
    task = json.loads(TASK.read_text())
    for place in task["places"]:
        place.pop("price", None)
    (tmp_path / "task.json").write_text(json.dumps(task))
    (tmp_path / "plan.json").write_text(json.dumps(gold))
    code, out, _ = run("verify", tmp_path / "task.json", tmp_path / "plan.json", "--json")
    answer = json.loads(out)
    assert (code, answer["feasible"], answer["reward"]) == (3, None, None)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"id": 3}', '{"id": "a", "id": "b"}', '{"days": NaN}', "{" * 3000]
)
def test_a_task_that_is_none_exits_2_with_one_line(run, tmp_path, text):
    task = tmp_path / "task.json"
    task.write_text(text)
    code, out, err = run("verify", task, task, "--json")
    assert (code, out) == (2, "")
    assert err.startswith("trueup: ")
    assert err.count("\n") == 1


def test_a_missing_file_exits_2(run, tmp_path):
    assert run("verify", tmp_path / "none.json", TASK)[0] == 2


def test_a_yaml_task_is_the_same_task(run, gold, tmp_path):
    yaml = pytest.importorskip("yaml")
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(json.loads(TASK.read_text())))
    (tmp_path / "plan.json").write_text(json.dumps(gold))
    assert run("verify", tmp_path / "task.yaml", tmp_path / "plan.json")[0] == 0


def test_the_table_for_people_names_the_check_and_the_reward(run, gold, tmp_path):
    gold["days"][0]["items"] = []
    gold["days"][1]["items"][0]["id"] = "[/red][bold]"
    (tmp_path / "plan.json").write_text(json.dumps(gold))
    code, out, _ = run("verify", TASK, tmp_path / "plan.json")
    assert code == 1
    assert "continuity" in out
    assert "infeasible; reward" in out


def test_the_filter_keeps_lines_as_they_came_and_prints_the_composition(run, gold, tmp_path):
    empty = {"days": [{**d, "items": []} for d in gold["days"]]}
    completions = (("a", json.dumps(gold)), ("a", gold), ("b", json.dumps(gold)), ("b", empty))
    rows = [{"family": family, "completion": completion, "extra": 1} for family, completion in completions]
    source, out = tmp_path / "rollouts.jsonl", tmp_path / "kept.jsonl"
    lines = [json.dumps(r) for r in rows]
    source.write_text("\n".join(lines) + "\n\n")
    code, text, _ = run("filter", source, "--out", out, "--task", TASK, "--json")
    assert code == 0
    assert out.read_text().splitlines() == lines[:2]
    assert json.loads(text)["composition"] == {
        "a": {"kept": 2}, "b": {"infeasible": 1, "near_duplicate": 1}
    }  # fmt: skip


def test_the_filter_reads_the_verdicts_that_verify_printed(run, gold, tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(gold))
    checks = json.loads(run("verify", TASK, tmp_path / "plan.json", "--json")[1])["checks"]
    source = tmp_path / "rollouts.jsonl"
    bad = [{**checks[0], "verdict": "unknown"}, *checks[1:]]
    rows = [{"completion": str(c), "checks": c} for c in (checks, bad)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, text, _ = run("filter", source, "--out", tmp_path / "kept.jsonl")
    assert code == 0
    assert "kept 1 of 2" in text


@pytest.mark.parametrize("line", ["{", "[]", '{"completion": "x"}'])
def test_a_line_that_is_no_rollout_exits_2_and_writes_nothing(run, tmp_path, line):
    source = tmp_path / "rollouts.jsonl"
    source.write_text(line + "\n")
    assert run("filter", source, "--out", tmp_path / "kept.jsonl")[0] == 2
    assert not (tmp_path / "kept.jsonl").exists()


def test_generated_tasks_verify_their_own_plans(run, tmp_path):
    pytest.importorskip("ortools")
    code, out, _ = run("trips", "generate", "--n", 1, "--level", 1, "--seed", 3, "--out", tmp_path, "--json")
    (row,) = json.loads(out)
    assert (code, row["proven"], row["known_bad"] > 3) == (0, True, True)
    task, plan = tmp_path / f"{row['id']}.task.json", tmp_path / f"{row['id']}.plan.json"
    assert json.loads((tmp_path / f"{row['id']}.tables.json").read_text()).keys() >= {"places", "services"}
    assert run("verify", task, plan, "--validate")[0] == 0


def test_mutations_print_a_table_and_exit_0_when_nothing_was_missed(run):
    pytest.importorskip("ortools")
    code, out, _ = run("trips", "mutations", TASK, "--n", 1, "--json")
    table = json.loads(out)
    assert code == 0
    assert table["disagreements"] == []
    assert table["checks"]["shape"]["cases"] > 0
