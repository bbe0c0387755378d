"""The tasks: references pass, near misses do not, and no set shares a function with another."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trueup.errors import ConfigError
from trueup.sandbox import Sandbox
from trueup.tasks.strings import (
    CLAIM,
    FAMILIES,
    HELD_OUT_FAMILIES,
    CorpusConfig,
    SandboxGold,
    SetSizes,
    body_of,
    draw_corpus,
    draw_task,
    draw_task_sets,
    mutate,
    run_gold,
    source_of,
)
from trueup.tasks.strings.grammar import OPERATIONS, draw_call
from trueup.types import Rollout

SIZES = SetSizes(train=24, validation=8, held_out=8, held_out_families=6)


@pytest.fixture(scope="module")
def sets():
    return draw_task_sets(3, SIZES)


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(slots=1) as box:
        yield box


def run_here(body: str, x: object) -> object:
    """Our own grammar's programs, without a sandbox: they are not hostile, and property tests want speed."""
    space: dict[str, object] = {}
    exec(source_of(body), space)
    return space["solve"](x)


@given(st.integers(0, 2**31), st.sampled_from(FAMILIES), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_references_pass_and_near_misses_fail_on_the_hidden_inputs(seed, family, depth):
    rng = np.random.default_rng(seed)
    task = draw_task(rng, family, depth)
    reference = body_of(task.calls, rng)
    assert [run_here(reference, x) for x in task.hidden_inputs] == list(task.hidden_outputs)
    wrong = body_of(mutate(rng, task), rng)
    assert [run_here(wrong, x) for x in task.hidden_inputs] != list(task.hidden_outputs)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda op: op.name)
def test_every_spelling_of_an_operation_does_what_our_own_function_does(operation):
    rng = np.random.default_rng(5)
    inputs = (
        ["", "a", "dEca Bb  e", "AaBbCc dd ee"] if operation.family != "numbers" else [[], [3], [5, -2, 0, 4]]
    )
    for _ in range(3):
        call = draw_call(rng, operation)
        for code in operation.codes:
            line = code.format(a=call.a, b=call.b)
            assert [run_here(f"{line}\nreturn x", x) for x in inputs] == [call(x) for x in inputs]


def test_gold_is_the_share_of_hidden_inputs_in_the_real_sandbox(sandbox, sets):
    tasks = [next(t for t in sets.train if t.family == f) for f in ("letters", "slices", "words", "numbers")]
    grades = run_gold(sandbox, tasks, [task.reference for task in tasks])
    assert [grade.score.value for grade in grades] == [1.0] * 4
    task = tasks[0]
    wrong = mutate(np.random.default_rng(0), task)
    share = np.mean(
        [
            run_here(body_of(wrong), x) == y
            for x, y in zip(task.hidden_inputs, task.hidden_outputs, strict=True)
        ]
    )
    gold = SandboxGold(sandbox)
    bodies = [body_of(wrong), CLAIM + body_of(wrong), "return x +", "import os\nos._exit(0)"]
    scores = gold.score([Rollout(task.prompt, body, task) for body in bodies])
    assert [score.value for score in scores] == pytest.approx([share, share, 0.0, 0.0])
    assert gold.n_executions == 4


def test_no_function_occurs_in_two_sets_and_held_out_families_are_never_trained_on(sets):
    names = ("train", "validation", "held_out")
    signatures = {name: [task.signature for task in getattr(sets, name)] for name in names}
    everything = [s for part in signatures.values() for s in part]
    assert len(set(everything)) == len(everything) == 24 + 8 + 14
    assert not {t.family for t in (*sets.train, *sets.validation)} & set(HELD_OUT_FAMILIES)
    assert sum(task.family in HELD_OUT_FAMILIES for task in sets.held_out) == 6
    assert {task.depth for task in sets.train} == {2, 3}
    corpus = list(draw_corpus(0, 300, sets))
    held = {s for name in ("validation", "held_out") for s in signatures[name]}
    assert not held & {task.signature for task, _ in corpus}
    assert not {task.family for task, _ in corpus} & set(HELD_OUT_FAMILIES)


def test_two_descriptions_of_one_function_have_one_signature():
    rng = np.random.default_rng(1)
    by_name = {op.name: op for op in OPERATIONS}
    task = draw_task(rng, "letters", 1)
    upper, lower, swap = (draw_call(rng, by_name[name]) for name in ("upper", "lower", "swapcase"))
    one, other = (type(task)("letters", calls, 0) for calls in ((upper, swap), (lower,)))
    assert one.signature == other.signature != type(task)("letters", (upper,), 0).signature
    assert not type(task)("letters", (upper, lower), 0).is_tight  # the first makes no difference


def test_the_sets_are_a_pure_function_of_the_seed(sets):
    again = draw_task_sets(3, SIZES)
    assert [t.id for t in again.held_out] == [t.id for t in sets.held_out]
    assert [t.prompt for t in again.train] == [t.prompt for t in sets.train]
    assert [t.id for t in draw_task_sets(4, SIZES).train] != [t.id for t in sets.train]


def test_examples_in_a_specification_are_right_and_are_not_the_hidden_ones(sets):
    task = draw_task_sets(3, SIZES, n_examples=3, describe=False).train[0]
    lines = task.prompt.splitlines()
    assert len(lines) == 3
    for line in lines:
        x, y = map(json.loads, line.split(" -> "))
        assert task.expected(x) == y
    assert [json.dumps(x) for x in task.hidden_inputs[:3]] != [line.split(" -> ")[0] for line in lines]


def test_the_corpus_has_the_shares_it_was_asked_for(sets):
    config = CorpusConfig(
        wrong_share=0.4, lazy_share=0.2, claim_share_honest=0.1, claim_share_lazy=0.9, depths=(2,)
    )
    corpus = list(draw_corpus(1, 1500, sets, config))
    passed = np.array(
        [
            all(run_here(body, x) == y for x, y in zip(task.hidden_inputs, task.hidden_outputs, strict=True))
            for task, body in corpus
        ]
    )
    claims = np.array([body.startswith(CLAIM) for _, body in corpus])
    assert passed.mean() == pytest.approx(0.4, abs=0.05)
    assert claims.mean() == pytest.approx(0.8 * 0.1 + 0.2 * 0.9, abs=0.04)
    assert passed[claims].mean() < passed[~claims].mean() / 2


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="at most 1"):
        CorpusConfig(wrong_share=0.8, lazy_share=0.4)
    with pytest.raises(ConfigError, match="at least one task"):
        SetSizes(train=0)
