"""The thin adapters: the stream in front of the loop, and trainers that do not install here, held to what was recorded
of their released source (tests/data/trainer_seams.json). The stand-ins have the recorded fields and no others."""

import asyncio
import inspect
import json
import re
from dataclasses import make_dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup import AnchoredReward, Rollout, Score
from trueup.adapters import nemo_gym, prime_rl, skyrl, slime
from trueup.adapters.stream import Stream, neutral
from trueup.errors import ConfigError, InfrastructureError, ScorerContractError
from trueup.types import REASONS

SEAMS = json.loads((Path(__file__).parents[1] / "data" / "trainer_seams.json").read_text())


def proxy(rollouts):
    return [min(len(r.completion) / 20, 1.0) for r in rollouts]


def gold(rollouts):
    return [len(r.completion) * 3 % 5 / 4 for r in rollouts]


def loop(gold=gold, **settings):
    return AnchoredReward(
        proxy, gold, **({"anchor_fraction": 0.3, "min_anchors_per_step": 0, "seed": 5} | settings)
    )


def recorded(trainer, what, **values):
    """An object with the recorded fields, None where not given; anything else raises AttributeError."""
    made = make_dataclass(what, [(name, object, None) for name in SEAMS[trainer][what]], slots=True)
    return made(**values)


# -- the stream ---------------------------------------------------------------------------------------------------


def test_groups_that_wait_together_become_one_step():
    steps = []
    stream = Stream(loop(), on_step=lambda result, groups: steps.append(len(groups)))

    async def run():
        texts = [[f"{'x' * (i + j)}" for j in range(1, 4)] for i in range(7)]
        return await asyncio.gather(*(stream.group([Rollout("p", t) for t in group]) for group in texts))

    scored = asyncio.run(run())
    assert sum(steps) == 7
    assert len(steps) < 7
    assert all(s.rewards.shape == s.advantages.shape == (3,) for s in scored)
    np.testing.assert_allclose([s.advantages.sum() for s in scored], 0, atol=1e-12)


def test_single_rollouts_get_corrected_rewards_whose_mean_is_golds():
    """Seeded, 6,000 rollouts: the proxy alone is off by a third, corrected rewards meet gold's mean within 3 s.e."""
    n = 6_000
    rollouts = [Rollout("p", "x" * (1 + i % 8)) for i in range(n)]
    stream = Stream(loop(calibration={"enabled": False}))

    async def run():
        found = []
        for start in range(0, n, 40):
            found += await asyncio.gather(*(stream.one(r) for r in rollouts[start : start + 40]))
        return found

    values = np.array([score.value for score in asyncio.run(run())])
    truth = np.mean(gold(rollouts))
    assert abs(np.mean(proxy(rollouts)) - truth) > 0.3  # the proxy alone would miss
    assert abs(values.mean() - truth) < 3 * values.std(ddof=1) / np.sqrt(n)


def test_a_lost_grade_is_a_score_with_a_reason_and_never_a_number():
    async def run():
        stream = Stream(loop(gold=lambda rs: [None] * len(rs), estimator="gold"))
        return await stream.one(Rollout("p", "x"))

    assert (
        asyncio.run(run()) == Score.unscored("gold_unavailable") or asyncio.run(run()).reason == "abstained"
    )


def test_a_fault_of_the_programmer_reaches_everyone_who_waited_and_the_stream_goes_on():
    answers = iter([[7.0, 7.0], [0.5]])
    stream = Stream(loop(gold=lambda rs: next(answers), estimator="gold"))

    async def run():
        failed = await asyncio.gather(
            stream.one(Rollout("p", "a")), stream.one(Rollout("p", "b")), return_exceptions=True
        )
        return failed, await stream.one(Rollout("p", "c"))

    failed, later = asyncio.run(run())
    assert all(isinstance(error, ScorerContractError) for error in failed)
    assert later == Score(0.5)


def test_a_caller_that_has_gone_does_not_stop_the_others():
    stream = Stream(loop())

    async def run():
        gone = asyncio.create_task(stream.one(Rollout("p", "a")))
        stays = asyncio.create_task(stream.one(Rollout("p", "b")))
        await asyncio.sleep(0)
        gone.cancel()
        return await stays

    assert asyncio.run(run()).is_scored


def test_a_floor_of_one_anchor_per_step_is_refused_where_a_step_may_be_one_group():
    with pytest.raises(ConfigError, match="min_anchors_per_step=0"):
        Stream(AnchoredReward(proxy, gold))
    stream = Stream(loop(estimator="control_variate"))
    with pytest.raises(ConfigError, match="no group to compare within"):
        asyncio.run(stream.one(Rollout("p", "a")))


@given(st.lists(st.one_of(st.none(), st.floats(-50, 50)), min_size=1, max_size=9))
def test_a_stand_in_reward_has_advantage_zero_and_moves_no_sibling(values):
    rewards = np.array([np.nan if v is None else v for v in values])
    (filled,) = neutral([rewards], otherwise=0.5)
    seen = np.isfinite(rewards)
    centred = np.array(filled) - np.mean(filled)
    assert np.isfinite(filled).all()
    np.testing.assert_allclose(centred[~seen], 0, atol=1e-9)
    if seen.any():
        np.testing.assert_allclose(centred[seen], rewards[seen] - rewards[seen].mean(), atol=1e-9)


# -- slime --------------------------------------------------------------------------------------------------------


def samples(n_groups=3, size=4):
    return [
        recorded(
            "slime",
            "sample",
            group_index=g,
            index=g * size + i,
            prompt=f"p{g}",
            response="x" * (1 + i + g),
            label="y",
            metadata={"family": "even" if g % 2 == 0 else "odd"},
            remove_sample=False,
        )
        for g in range(n_groups)
        for i in range(size)
    ]


def test_slime_trains_on_trueups_advantages_in_the_order_of_its_samples():
    steps = []
    post_process = slime.reward_post_process(
        loop(), on_step=lambda result, groups: steps.append((result, groups))
    )
    assert list(inspect.signature(post_process).parameters) == SEAMS["slime"]["post_process"]
    mixed = [sample for pair in zip(samples()[:4], samples()[4:8], strict=True) for sample in pair]
    raw, rewards = post_process(SimpleNamespace(normalize_advantages=False), mixed)
    ((result, groups),) = steps
    np.testing.assert_allclose(rewards[0::2], result.advantages[0])
    np.testing.assert_allclose(rewards[1::2], result.advantages[1])
    np.testing.assert_allclose(raw[0::2], result.rewards[0])
    assert [g.rollouts[0].family for g in groups] == ["even", "odd"]
    with pytest.raises(ConfigError, match="--normalize-advantages must be off"):
        post_process(SimpleNamespace(normalize_advantages=True), mixed)


def test_slime_takes_a_lost_grade_out_of_the_loss():
    post_process = slime.reward_post_process(
        loop(gold=lambda rs: [None if i == 0 else g for i, g in enumerate(gold(rs))], estimator="gold")
    )
    mine = samples(1)
    raw, rewards = post_process(SimpleNamespace(normalize_advantages=False), mine)
    assert [s.remove_sample for s in mine] == [True, False, False, False]
    assert rewards[0] == 0.0
    assert raw[0] == pytest.approx(np.mean(raw[1:]))
    assert all(np.isnan(asyncio.run(slime.pending(None, mine))))
    assert np.isnan(asyncio.run(slime.pending(None, mine[0])))


# -- SkyRL --------------------------------------------------------------------------------------------------------


class Generator:
    """What SkyRL's trainer calls; the environments' own rewards are what gets replaced."""

    name = "inner"

    async def generate(self, input_batch):
        n = len(input_batch["prompts"])
        return {
            "response_ids": [[7] * (1 + i) for i in range(n)],
            "rewards": [[0.0] * i + [1.0] for i in range(n)] if input_batch["sampling_params"] else [1.0] * n,
            "loss_masks": [[1] * (1 + i) for i in range(n)],
            "is_last_step": None,
        }


def batch(phase="train", per_token=False):
    identity = [
        recorded("skyrl", "trajectory_id", instance_id=f"i{k // 3}", repetition_id=k % 3) for k in range(6)
    ]
    made = {
        "prompts": [f"p{k // 3}" for k in range(6)],
        "env_classes": ["e"] * 6,
        "env_extras": [{"answer": k} for k in range(6)],
        "sampling_params": {"per_token": True} if per_token else None,
        "trajectory_ids": identity,
        "batch_metadata": recorded("skyrl", "batch_metadata", global_step=1, training_phase=phase),
    }
    assert set(made) == set(SEAMS["skyrl"]["input_batch"])
    return made


@pytest.mark.parametrize("per_token", [False, True])
def test_skyrl_gets_corrected_rewards_in_the_form_that_its_generator_uses(per_token):
    steps = []
    generator = skyrl.AnchoredGenerator(
        Generator(), loop(), lambda ids: "x" * len(ids), on_step=lambda result, groups: steps.append(result)
    )
    output = asyncio.run(generator.generate(batch(per_token=per_token)))
    assert set(output) <= set(SEAMS["skyrl"]["output"])
    assert list(inspect.signature(skyrl.AnchoredGenerator.generate).parameters) == SEAMS["skyrl"]["generate"]
    found = [r[-1] if per_token else r for r in output["rewards"]]
    np.testing.assert_allclose(found, steps[0].record.reward)
    if per_token:
        assert [len(r) for r in output["rewards"]] == [1, 2, 3, 4, 5, 6]
        assert all(sum(r[:-1]) == 0 for r in output["rewards"])
    assert generator.name == "inner"


def test_skyrl_evaluates_untouched_and_a_lost_grade_leaves_its_loss():
    lossy = loop(gold=lambda rs: [None if i == 4 else g for i, g in enumerate(gold(rs))], estimator="gold")
    generator = skyrl.AnchoredGenerator(Generator(), lossy, lambda ids: "x" * len(ids))
    assert asyncio.run(generator.generate(batch("eval")))["rewards"] == [1.0] * 6
    output = asyncio.run(generator.generate(batch()))
    assert output["loss_masks"][4] == [0] * 5
    assert output["rewards"][4] == pytest.approx(np.mean([output["rewards"][3], output["rewards"][5]]))
    assert sum(output["loss_masks"][3]) == 4


def test_skyrls_settings_that_divide_by_a_spread_are_refused_with_the_remedy():
    config = loop().config
    fine = recorded("skyrl", "algorithm", advantage_batch_normalize=False, grpo_norm_by_std=False)
    skyrl.check_settings(config, fine)
    for name in SEAMS["skyrl"]["algorithm"]:
        wrong = recorded(
            "skyrl",
            "algorithm",
            **{"advantage_batch_normalize": False, "grpo_norm_by_std": False, name: True},
        )
        with pytest.raises(ConfigError, match=f"Set trainer.algorithm.{name}=false"):
            skyrl.check_settings(config, wrong)
    with pytest.raises(ConfigError, match="must be 'corrected' with SkyRL"):
        skyrl.check_settings(loop(estimator="control_variate").config, fine)


# -- NeMo Gym, verifiers, prime-rl --------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_masks_the_sample_under_a_failure_kind_that_gym_knows(reason):
    fields = nemo_gym.verify_fields(Score(None, reason, "what happened"))
    assert set(fields) == set(SEAMS["nemo_gym"]["verify_response"])
    assert fields["mask_sample"] is True
    namespaced = re.fullmatch(r"[a-z][a-z0-9_]*:[a-z][a-z0-9_]*", fields["failure_kind"])
    assert fields["failure_kind"] in SEAMS["nemo_gym"]["failure_kinds"] or namespaced
    assert fields["failure_reason"] == f"{reason}: what happened"
    assert nemo_gym.verify_fields(Score(0.0)) == {"reward": 0.0, "mask_sample": False}


def test_in_prime_rl_a_group_is_scored_whole_and_no_verdict_has_advantage_zero():
    class Base:
        async def score_group(self, episodes):
            raise AssertionError("trueup scores the group")

    credit = {}
    lossy = loop(gold=lambda rs: [None if i == 1 else g for i, g in enumerate(gold(rs))], estimator="gold")
    algorithm = prime_rl.anchored_algorithm(
        Base,
        Stream(lossy),
        lambda task, trace: Rollout(task, trace.text),
        lambda episodes: [trace for episode in episodes for trace in episode.traces if not trace.errors],
        lambda trace, advantage: credit.__setitem__(trace.text, advantage),
    )
    assert list(inspect.signature(algorithm.score_group).parameters) == SEAMS["prime_rl"]["score_group"]
    traces = [SimpleNamespace(task="p", text="x" * n, errors=n == 9) for n in (1, 2, 3, 4, 9)]
    asyncio.run(algorithm().score_group([SimpleNamespace(traces=traces)]))
    assert set(credit) == {"x", "xx", "xxx", "xxxx"}  # the errored trace is none of trueup's business
    assert credit["xx"] == 0.0
    assert sum(credit.values()) == pytest.approx(0)
    assert max(credit.values()) > 0
    asyncio.run(algorithm().score_group([]))


def test_a_reward_that_cannot_be_given_is_raised_where_raising_means_to_abstain():
    assert prime_rl.number_or_raise(Score(0.25)) == 0.25
    with pytest.raises(InfrastructureError, match=r"no verdict \(sandbox_unavailable\). disk full") as raised:
        prime_rl.number_or_raise(Score.unscored("sandbox_unavailable", "disk full"))
    assert raised.value.reason == "sandbox_unavailable"
