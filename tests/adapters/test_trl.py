"""Real training steps of TRL's trainers on a tiny model: what reaches the loss, what is refused, what is resumed."""

import json

import numpy as np
import pytest

from trueup import AnchorConfig, AnchoredReward
from trueup.errors import ConfigError, GroupError, ScorerContractError, StateError

pytest.importorskip("trl", reason="needs torch and trl: `make test-train` installs them")

pytestmark = pytest.mark.filterwarnings("default")  # other projects' deprecations

import torch  # noqa: E402
from trl import GRPOTrainer, RLOOTrainer  # noqa: E402

from trueup.adapters.reward_function import AnchoredRewardFunction, needs_hook  # noqa: E402
from trueup.adapters.trl import (  # noqa: E402
    AnchoredGRPOTrainer,
    AnchoredMixin,
    AnchoredRLOOTrainer,
    SaveState,
    load_state,
    reward_function,
    save_state,
)
from trueup.adapters.trl_checks import check_seams  # noqa: E402

from . import tiny  # noqa: E402

LOSSES = ["grpo", "dr_grpo", "bnpo", "dapo", "cispo", "sapo", "vespo", "luspo"]


def proxy(rollouts):
    return [min(len(r.completion) / 40, 1.0) for r in rollouts]


def gold(rollouts):
    return [float((len(r.completion) * 7 + len(r.prompt)) % 5) / 4 for r in rollouts]


async def slow_gold(rollouts):
    return gold(rollouts)


def anchored(gold=gold, proxy=proxy, **settings):
    return AnchoredReward(proxy, gold, **({"anchor_fraction": 0.4, "seed": 1} | settings))


class Keeping:
    """Before another trainer: keeps the batch that each loss was formed from."""

    def __init__(self, *args, **kwargs):
        self.seen = []
        super().__init__(*args, **kwargs)

    def _compute_loss(self, model, inputs):
        self.seen.append(inputs["advantages"].detach().clone())
        return super()._compute_loss(model, inputs)


class GRPO(AnchoredMixin, Keeping, GRPOTrainer):
    pass


class RLOO(AnchoredMixin, Keeping, RLOOTrainer):
    pass


class StockGRPO(Keeping, GRPOTrainer):
    pass


class StockRLOO(Keeping, RLOOTrainer):
    pass


def build(cls, args, loop, **more):
    return cls(
        tiny.model(),
        anchored=loop,
        args=args,
        train_dataset=tiny.dataset(),
        processing_class=tiny.tokenizer(),
        **more,
    )


def stock(cls, args, function, **more):
    return cls(
        tiny.model(),
        reward_funcs=function,
        args=args,
        train_dataset=tiny.dataset(),
        processing_class=tiny.tokenizer(),
        **more,
    )


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


def same_numbers(tensors, arrays):
    """Batches are shuffled between scoring and loss, so as multisets."""
    found = np.sort(torch.cat(tensors).numpy())
    wanted = np.sort(np.nan_to_num(np.concatenate(arrays)).astype(np.float32))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_type_is_formed_with_trueups_advantages(tmp_path, loss):
    more = {"importance_sampling_level": "sequence"} if loss == "luspo" else {}
    steps = []
    args = tiny.grpo(tmp_path, loss_type=loss, **more)
    trainer = build(GRPO, args, anchored(), on_step=lambda result, groups: steps.append(result))
    before = weights(trainer)
    trainer.train()
    assert len(steps) == 2
    assert all(np.abs(step.record.advantage).max() > 0 for step in steps)
    same_numbers(trainer.seen, [step.record.advantage for step in steps])
    assert not torch.equal(before, weights(trainer))


def test_a_run_with_other_advantages_ends_with_other_weights(tmp_path):
    """What reaches the loss is not only carried there: it moves the weights."""
    runs = []
    for fraction in (0.4, 1.0):
        trainer = build(AnchoredGRPOTrainer, tiny.grpo(tmp_path), anchored(anchor_fraction=fraction))
        trainer.train()
        runs.append(weights(trainer))
    again = build(AnchoredGRPOTrainer, tiny.grpo(tmp_path), anchored(anchor_fraction=0.4))
    again.train()
    assert torch.equal(runs[0], weights(again))
    assert not torch.equal(runs[0], runs[1])


@pytest.mark.parametrize("reentrant", [True, False])
def test_the_proof_at_the_first_loss_works_under_gradient_checkpointing(tmp_path, reentrant):
    settings = {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": reentrant}}
    trainer = build(AnchoredGRPOTrainer, tiny.grpo(tmp_path, max_steps=1, **settings), anchored())
    before = weights(trainer)
    trainer.train()
    assert trainer._proved
    assert not torch.equal(before, weights(trainer))


def test_a_plain_reward_function_gives_a_stock_trainer_the_centred_corrected_rewards(tmp_path):
    steps = []
    args = tiny.grpo(tmp_path)
    function = reward_function(anchored(), args, on_step=lambda result, groups: steps.append(result))
    trainer = stock(StockGRPO, args, function)
    trainer.train()
    centred = [(s.rewards - s.rewards.mean(axis=1, keepdims=True)).reshape(-1) for s in steps]
    found = np.sort(torch.cat(trainer.seen).numpy())
    np.testing.assert_allclose(found, np.sort(np.concatenate(centred)), atol=1e-6)
    logged = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    np.testing.assert_allclose(logged, [s.rewards.mean() for s in steps], rtol=1e-5)


@pytest.mark.parametrize("estimator", ["control_variate", "wmrl", "mse", "gold", "gold_budget", "proxy"])
def test_std_scaled_estimators_train_through_the_hook(tmp_path, estimator):
    steps = []
    loop = anchored(estimator=estimator)
    args = tiny.grpo(tmp_path, scale_rewards="group")
    trainer = build(GRPO, args, loop, on_step=lambda result, groups: steps.append(result))
    trainer.train()
    same_numbers(trainer.seen, [step.record.advantage for step in steps])


def test_rloo_trains_on_trueups_advantages_or_sums_its_kl_penalty_itself(tmp_path):
    steps = []
    trainer = build(
        RLOO, tiny.rloo(tmp_path), anchored(), on_step=lambda result, groups: steps.append(result)
    )
    trainer.train()
    same_numbers(trainer.seen, [step.record.advantage for step in steps])

    steps.clear()
    tiny.model().save_pretrained(
        tmp_path / "model"
    )  # the reference model is loaded from where the policy was
    with_kl = RLOO(
        str(tmp_path / "model"),
        anchored=anchored(),
        args=tiny.rloo(tmp_path, beta=0.1, model_init_kwargs={"dtype": "float32"}),
        train_dataset=tiny.dataset(),
        processing_class=tiny.tokenizer(),
        on_step=lambda result, groups: steps.append(result),
    )
    with_kl.train()  # the first step's policy is the reference: its KL is 0, and the baseline is leave-one-out
    rewards = steps[0].rewards
    linear = (rewards - rewards.mean(axis=1, keepdims=True)) * 4 / 3
    np.testing.assert_allclose(np.sort(with_kl.seen[0].numpy()), np.sort(linear.reshape(-1)), atol=1e-5)

    function = reward_function(anchored(), tiny.rloo(tmp_path))
    stock(StockRLOO, tiny.rloo(tmp_path), function).train()
    assert function.anchored.step_index == 2


def test_an_async_gold_scorer_gives_the_same_run_as_a_plain_one(tmp_path):
    runs = []
    for scorer in (gold, slow_gold):
        trainer = build(AnchoredGRPOTrainer, tiny.grpo(tmp_path), anchored(gold=scorer))
        trainer.train()
        runs.append(weights(trainer))
    assert torch.equal(*runs)


def test_one_scoring_serves_all_steps_of_a_buffered_generation(tmp_path):
    args = tiny.grpo(tmp_path, steps_per_generation=2, num_iterations=2, max_steps=4)
    steps = []
    trainer = build(GRPO, args, anchored(), on_step=lambda result, groups: steps.append(result))
    trainer.train()
    assert len(steps) == 1
    assert len(trainer.seen) == 4
    twice = np.tile(steps[0].record.advantage, 2)
    same_numbers(trainer.seen, [twice])


@pytest.mark.parametrize("as_list", [True, False])
def test_another_reward_function_is_summed_with_corrected_rewards(tmp_path, as_list):
    def brief(completions, **_):
        return [-0.01 * len(c) for c in completions]

    steps = []
    trainer = build(
        GRPO,
        tiny.grpo(tmp_path),
        anchored(),
        reward_funcs=[brief] if as_list else brief,
        on_step=lambda result, groups: steps.append((result, groups)),
    )
    trainer.train()
    found = []
    for result, groups in steps:
        rewards = result.rewards + np.array([[-0.01 * len(r.completion) for r in g] for g in groups])
        found.append((rewards - rewards.mean(axis=1, keepdims=True)).reshape(-1))
    np.testing.assert_allclose(
        np.sort(torch.cat(trainer.seen).numpy()), np.sort(np.concatenate(found)), atol=1e-6
    )


# -- unknown is not zero ------------------------------------------------------------------------------------------


def test_a_rollout_without_a_score_has_advantage_zero_and_leaves_the_baseline_alone(tmp_path):
    def moody(rollouts):
        return [
            None if i % 4 == 1 else float("inf") if i % 4 == 2 else 0.25 * (i % 4)
            for i in range(len(rollouts))
        ]

    steps = []
    args = tiny.grpo(tmp_path, scale_rewards="group", max_steps=1)
    loop = anchored(gold=moody, estimator="gold")
    trainer = build(GRPO, args, loop, on_step=lambda result, groups: steps.append(result))
    trainer.train()
    (step,) = steps
    assert step.reasons.tolist() == [[None, "abstained", "non_finite", None]] * 2
    assert np.isnan(step.rewards).sum() == 4
    half = 0.375 / (np.std([0, 0.75], ddof=1) + 1e-4)  # centred over the two that have a score
    np.testing.assert_allclose(step.advantages[:, [0, 3]], [[-half, half]] * 2, rtol=1e-9)
    np.testing.assert_allclose(
        np.sort(torch.cat(trainer.seen)), [-half, -half, 0, 0, 0, 0, half, half], rtol=1e-6
    )
    (entry,) = (e for e in trainer.state.log_history if "reward" in e)
    assert entry["reward"] == pytest.approx(0.375)
    assert entry["trueup/unscored/fraction"] == pytest.approx(0.5)


@pytest.mark.parametrize("scaling", ["group", "none"])
def test_with_all_gold_a_run_is_the_one_of_stock_trl(tmp_path, scaling):
    """Outside truth: TRL's own GRPO on the same rewards, lost ones included."""

    def lossy(rollouts):
        return [None if i == 2 else value for i, value in enumerate(gold(rollouts))]

    def plain(prompts, completions, **_):
        return [
            None if i == 2 else (len(c) * 7 + len(p)) % 5 / 4
            for i, (p, c) in enumerate(zip(prompts, completions, strict=True))
        ]

    args = tiny.grpo(tmp_path, scale_rewards=scaling)
    loop = anchored(gold=lossy, estimator="gold", scaling="std" if scaling == "group" else "mean")
    ours = build(GRPO, args, loop)
    ours.train()
    theirs = stock(StockGRPO, args, plain)  # made now, because making a trainer sets the seed
    theirs.train()
    for mine, other in zip(ours.seen, theirs.seen, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(weights(ours), weights(theirs), rtol=1e-3, atol=1e-4)


def test_a_gold_scorer_that_raises_costs_the_update_but_not_the_run(tmp_path):
    def broken(rollouts):
        raise RuntimeError("the sandbox is gone")

    steps = []
    args = tiny.grpo(tmp_path, weight_decay=0.0)
    trainer = build(GRPO, args, anchored(gold=broken), on_step=lambda result, groups: steps.append(result))
    before = weights(trainer)
    trainer.train()
    assert {reason for step in steps for reason in step.reasons.reshape(-1)} >= {"gold_unavailable"}
    assert torch.equal(before, weights(trainer))  # nothing was learned from a lost grade
    assert any("trueup/failure/scorer_error" in entry for entry in trainer.state.log_history)


def test_a_stock_trainer_gets_none_for_a_lost_grade(tmp_path):
    args = tiny.grpo(tmp_path)
    function = reward_function(anchored(gold=lambda rollouts: [None] * len(rollouts)), args)
    assert function(["p"] * 4, ["a", "b", "c", "d"]) == [None] * 4
    trainer = stock(StockGRPO, args, reward_function(anchored(gold=lambda r: [None] * len(r)), args))
    trainer.train()
    assert all((batch == 0).all() for batch in trainer.seen)


def test_a_fault_of_the_programmer_stops_the_run(tmp_path):
    trainer = build(AnchoredGRPOTrainer, tiny.grpo(tmp_path), anchored(gold=lambda r: [2.0] * len(r)))
    with pytest.raises(ScorerContractError, match="declared range"):
        trainer.train()


# -- refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "config", "remedy"),
    [
        ({"scale_rewards": "group"}, {}, "scale_rewards='none'"),
        ({"scale_rewards": "batch"}, {}, "scale_rewards='none'"),
        ({"scale_rewards": "none"}, {"estimator": "control_variate"}, "scale_rewards='group'"),
        ({"scale_rewards": "batch"}, {"estimator": "wmrl"}, "scale_rewards='group'"),
        ({"multi_objective_aggregation": "normalize_then_sum"}, {}, "Leave it out"),
        ({"reward_weights": [0.5]}, {}, "learning rate"),
    ],
)
def test_settings_of_grpo_that_contradict_the_estimator_are_refused_with_the_remedy(
    tmp_path, settings, config, remedy
):
    with pytest.raises(ConfigError, match=remedy):
        build(AnchoredGRPOTrainer, tiny.grpo(tmp_path, **settings), anchored(**config))


@pytest.mark.parametrize(
    ("settings", "config", "remedy"),
    [
        ({"normalize_advantages": True}, {}, "Leave it out"),
        ({"reward_clip_range": (0.0, 1.0)}, {}, "correction_clip"),
        ({}, {"estimator": "control_variate"}, "scaling='predictable'"),
        ({"beta": 0.1}, {"estimator": "control_variate", "scaling": "mean"}, "beta=0"),
    ],
)
def test_settings_of_rloo_that_contradict_the_estimator_are_refused_with_the_remedy(
    tmp_path, settings, config, remedy
):
    with pytest.raises(ConfigError, match=remedy):
        build(AnchoredRLOOTrainer, tiny.rloo(tmp_path, **settings), anchored(**config))


def test_a_further_reward_is_refused_where_it_would_do_nothing(tmp_path):
    args = tiny.grpo(tmp_path, scale_rewards="group")
    with pytest.raises(ConfigError, match="this as its only reward"):
        build(AnchoredGRPOTrainer, args, anchored(estimator="wmrl"), reward_funcs=[lambda **_: [0.0]])


def test_a_plain_reward_function_refuses_an_estimator_that_it_cannot_carry(tmp_path):
    args = tiny.grpo(tmp_path, scale_rewards="group")
    with pytest.raises(ConfigError, match="AnchoredGRPOTrainer"):
        reward_function(anchored(estimator="control_variate"), args)
    with pytest.raises(ConfigError, match="scale_rewards='none'"):
        AnchoredGRPOTrainer(tiny.model(), anchored=anchored(), args=None)


def test_rows_that_are_no_groups_are_refused():
    function = AnchoredRewardFunction(anchored(), 4)
    with pytest.raises(GroupError, match="multiple of num_generations"):
        function(["p"] * 6, ["a"] * 6)
    with pytest.raises(GroupError, match="different prompts in group 1"):
        function(["p"] * 4 + ["q", "q", "r", "r"], ["a"] * 8)


def test_a_trainer_without_the_seams_is_refused_at_start_up(tmp_path):
    class Later(GRPOTrainer):
        def _generate_and_score_completions(self, inputs, mode):
            raise AssertionError

    class Mixed(AnchoredMixin, Later):
        pass

    with pytest.raises(ConfigError, match=r"_generate_and_score_completions\(self, inputs\), got .*mode"):
        build(Mixed, tiny.grpo(tmp_path), anchored())
    with pytest.raises(ConfigError, match="no such method"):
        check_seams(object)
    check_seams(GRPOTrainer)
    check_seams(RLOOTrainer)


class Replacing(GRPOTrainer):
    """Another patch that forms its own advantages after trueup's."""

    def _prepare_inputs(self, inputs):
        batch = super()._prepare_inputs(inputs)
        return batch | {"advantages": torch.ones_like(batch["advantages"])}


class Ignoring(GRPOTrainer):
    """A loss that takes its advantages from elsewhere."""

    def _compute_loss(self, model, inputs):
        return super()._compute_loss(model, inputs | {"advantages": inputs["advantages"].detach() * 0 + 1})


@pytest.mark.parametrize("patch", [Replacing, Ignoring])
def test_a_loss_that_is_not_formed_with_trueups_advantages_stops_the_first_step(tmp_path, patch):
    class Mixed(AnchoredMixin, patch):
        pass

    with pytest.raises(StateError, match="must be formed with trueup's advantages"):
        build(Mixed, tiny.grpo(tmp_path), anchored()).train()


# -- state, evaluation, metrics -----------------------------------------------------------------------------------


def test_a_resumed_run_continues_as_if_it_had_never_stopped(tmp_path):
    steps = {}
    settings = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4}
    whole = anchored(calibration={"min_pairs": 4, "refit_every": 2})
    first = build(AnchoredGRPOTrainer, tiny.grpo(tmp_path / "a", **settings), whole)
    first.train()
    rest = anchored(calibration={"min_pairs": 4, "refit_every": 2})
    second = build(
        AnchoredGRPOTrainer,
        tiny.grpo(tmp_path / "b", **settings),
        rest,
        on_step=lambda result, groups: steps.setdefault(result.record.step, groups),
    )
    second.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-2"))
    assert sorted(steps) == [2, 3]
    assert rest.state_dict() == whole.state_dict()
    assert torch.equal(weights(first), weights(second))


def test_a_checkpoint_without_trueups_state_is_not_resumed_silently(tmp_path):
    settings = {"save_strategy": "steps", "save_steps": 1, "max_steps": 1}
    args = tiny.grpo(tmp_path, **settings)
    loop = anchored()
    trainer = stock(GRPOTrainer, args, reward_function(loop, args), callbacks=[SaveState(loop)])
    trainer.train()
    checkpoint = tmp_path / "checkpoint-1"
    fresh = anchored()
    load_state(fresh, checkpoint)
    assert fresh.state_dict() == json.loads(json.dumps(loop.state_dict()))
    (checkpoint / "trueup_state.json").unlink()
    again = build(AnchoredGRPOTrainer, tiny.grpo(tmp_path, **(settings | {"max_steps": 2})), anchored())
    with pytest.raises(StateError, match=r"got none in .*checkpoint-1"):
        again.train(resume_from_checkpoint=True)
    save_state(anchored(), checkpoint)
    build(AnchoredGRPOTrainer, tiny.grpo(tmp_path, **(settings | {"max_steps": 2})), anchored()).train(
        resume_from_checkpoint=True
    )


def test_evaluation_asks_gold_for_every_row_and_teaches_nothing(tmp_path):
    asked = []

    def counting(rollouts):
        asked.append(len(rollouts))
        return gold(rollouts)

    loop = anchored(
        gold=counting, verifiers=[lambda rs: ["fail" if len(r.completion) < 9 else "pass" for r in rs]]
    )
    args = tiny.grpo(tmp_path, per_device_eval_batch_size=8, log_completions=True)
    trainer = build(AnchoredGRPOTrainer, args, loop, eval_dataset=tiny.dataset(2))
    before = json.dumps(loop.state_dict())
    found = trainer.evaluate()
    assert json.dumps(loop.state_dict()) == before
    assert 0.0 <= found["eval_rewards/anchored/mean"] <= 1.0
    assert 0 < sum(asked) <= 8
    trainer.train()
    assert loop.step_index == 2
    files = sorted((tmp_path / "completions").glob("*.parquet"))
    assert files
    pandas = pytest.importorskip("pandas")
    table = pandas.read_parquet(files[-1])
    assert {"anchored", "trueup_proxy", "trueup_gold", "trueup_propensity", "advantage"} <= set(table.columns)


def test_metrics_follow_trls_conventions_and_the_table_shows_what_was_trained_on(tmp_path):
    steps = []
    args = tiny.grpo(tmp_path, max_steps=1)
    trainer = build(
        AnchoredGRPOTrainer, args, anchored(), on_step=lambda result, groups: steps.append(result)
    )
    trainer.train()
    (entry,) = (e for e in trainer.state.log_history if "reward" in e)
    (step,) = steps
    assert entry["rewards/anchored/mean"] == pytest.approx(float(step.rewards.mean()), rel=1e-5)
    assert entry["trueup/anchor/queries"] == step.record.n_gold_queries
    assert entry["trueup/proxy/mean"] == pytest.approx(float(step.record.proxy.mean()), rel=1e-5)
    np.testing.assert_allclose(list(trainer._logs["advantages"]), step.record.advantage)


def test_a_row_becomes_a_rollout_with_its_columns_and_its_family(tmp_path):
    seen = []
    trainer = build(
        AnchoredGRPOTrainer,
        tiny.grpo(tmp_path, max_steps=1),
        anchored(),
        on_step=lambda r, groups: seen.extend(groups),
    )
    trainer.train()
    rollout = seen[0].rollouts[0]
    assert isinstance(rollout.completion, str)
    assert rollout.task["answer"] in ("yes", "no")
    assert rollout.family in ("odd", "even")
    assert "trainer_state" not in rollout.task
    chat = AnchoredRewardFunction(anchored(), 1, on_step=lambda r, groups: seen.append(groups))
    chat([[{"role": "user", "content": "2+2?"}]], [[{"role": "assistant", "content": "4"}]])
    assert seen[-1][0].rollouts[0].completion == "4"
    two = [{"role": "assistant", "content": "4"}, {"role": "user", "content": "sure?"}]
    chat(["q"], [two])
    assert seen[-1][0].rollouts[0].completion == two


def test_a_notebooks_running_loop_is_no_obstacle():
    import asyncio

    function = AnchoredRewardFunction(anchored(gold=slow_gold), 2)

    async def cell():
        return function(["p", "p"], ["a", "bb"])

    assert len(asyncio.run(cell())) == 2


def test_the_config_is_checked_against_the_unit_of_mse():
    assert needs_hook(AnchorConfig(estimator="mse"))
    assert not needs_hook(AnchorConfig(estimator="mse", unit="rollout"))
