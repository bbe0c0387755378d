"""The contract with verl 0.9.1: its trainer's own `_compute_advantage`, over a live TransferQueue on the CPU."""

import json

import numpy as np
import pytest

from trueup import AnchoredReward
from trueup.errors import ConfigError, StateError

pytest.importorskip("verl", reason="needs verl 0.9.1 in an environment of its own (docs/trainers.md)")

pytestmark = pytest.mark.filterwarnings("default")

import ray  # noqa: E402
import torch  # noqa: E402
import transfer_queue as tq  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from tensordict import NonTensorStack, TensorDict  # noqa: E402
from transfer_queue import KVBatchMeta  # noqa: E402
from verl.trainer.ppo.v1 import PPOTrainerSync, get_trainer_cls  # noqa: E402

# Two prompts with three sessions; one session of `a` has two outputs, of which the last one counts.
KEYS = ["a_0_0", "a_1_0", "a_1_1", "a_2_0", "b_0_0", "b_1_0", "b_2_0"]
LENGTHS = [2, 4, 3, 5, 1, 2, 6]
LAST = [0, 2, 3, 4, 5, 6]


def proxy(rollouts):
    return [min(len(r.completion) / 30, 1.0) for r in rollouts]


def gold(rollouts):
    return [(len(r.completion) * 7 % 5) / 4 for r in rollouts]


def lossy(rollouts):
    return [None if i == 1 else g for i, g in enumerate(gold(rollouts))]


class Decoder:
    """Stands for a tokenizer: one word per id."""

    def decode(self, ids, skip_special_tokens):
        return " ".join(f"w{int(i)}" for i in ids)


@pytest.fixture(scope="module")
def queue():
    ray.init(
        num_cpus=8, include_dashboard=False, log_to_driver=False
    )  # logical: the queue's actors reserve some
    tq.init()
    yield
    tq.close()
    ray.shutdown()


def config(by_std=False, kl=False):
    return OmegaConf.create(
        {
            "algorithm": {
                "adv_estimator": "grpo",
                "norm_adv_by_std_in_grpo": by_std,
                "use_kl_in_reward": kl,
                "gamma": 1.0,
                "lam": 1.0,
            },
            "actor_rollout_ref": {"rollout": {"n": 3}},
            "trainer": {"v1": {"trainer_mode": "trueup_sync"}, "resume_mode": "disable"},
        }
    )


def trainer(anchored, settings, cls=None):
    made = object.__new__(cls or get_trainer_cls("trueup_sync"))  # verl's own __init__ wants a cluster
    made.config, made.tokenizer, made._anchored = settings, Decoder(), anchored
    return made


def batch():
    tokens = [torch.arange(n) + 10 * i for i, n in enumerate(LENGTHS)]
    fields = TensorDict(
        {
            "responses": torch.nested.as_nested_tensor(tokens, layout=torch.jagged),
            "response_mask": torch.nested.as_nested_tensor(
                [torch.ones(n, dtype=torch.long) for n in LENGTHS], layout=torch.jagged
            ),
            "rm_scores": torch.nested.as_nested_tensor(
                [torch.full((n,), float("nan")) for n in LENGTHS], layout=torch.jagged
            ),
            "uid": NonTensorStack(*[key[0] for key in KEYS]),
            "raw_prompt": NonTensorStack(*[f"prompt {key[0]}" for key in KEYS]),
            "data_source": NonTensorStack(*["math"] * len(KEYS)),
        },
        batch_size=len(KEYS),
    )
    meta = tq.kv_batch_put(keys=KEYS, partition_id="train", fields=fields, tags=[{}] * len(KEYS))
    return meta if meta is not None else KVBatchMeta(keys=KEYS, tags=[{}] * len(KEYS), partition_id="train")


def stored(name):
    return list(tq.kv_batch_get(keys=KEYS, partition_id="train", select_fields=[name])[name].unbind())


def run(queue, anchored, settings):
    metrics = {}
    trainer(anchored, settings)._compute_advantage(batch(), metrics)
    per_token = stored("advantages")
    assert [len(row) for row in per_token] == LENGTHS
    assert all((row == row[0]).all() for row in per_token)  # one advantage per response
    return np.array([float(row[0]) for row in per_token]), metrics


def test_our_trainers_are_registered_by_the_plug_in_that_verl_imports():
    assert issubclass(get_trainer_cls("trueup_sync"), PPOTrainerSync)
    for mode in ("colocate_async", "separate_async"):
        assert get_trainer_cls(f"trueup_{mode}").base_mode == mode


def test_trueups_advantages_are_the_ones_in_the_queue(queue):
    loop = AnchoredReward(proxy, gold, anchor_fraction=0.5, seed=1)
    records = []
    step = loop.step
    loop.step = lambda groups: records.append(step(groups)) or records[-1]
    found, metrics = run(queue, loop, config())
    wanted = records[0].record.advantage
    np.testing.assert_allclose(found[LAST], wanted, rtol=1e-5)
    assert found[1] == found[2]  # both outputs of one session
    assert np.abs(found).max() > 0
    assert metrics["trueup/anchor/queries"] == records[0].record.n_gold_queries
    scores = stored("rm_scores")
    np.testing.assert_allclose([float(scores[i][-1]) for i in LAST], records[0].record.reward, rtol=1e-5)


@pytest.mark.parametrize("by_std", [True, False])
def test_with_all_gold_the_advantages_are_verls_own(queue, by_std):
    """Outside truth: verl's GRPO on the same rewards."""
    scaling = "std" if by_std else "mean"
    loop = AnchoredReward(proxy, gold, estimator="gold", scaling=scaling, std_eps=1e-6)
    found, _ = run(queue, loop, config(by_std))
    theirs = trainer(
        loop, config(by_std), PPOTrainerSync
    )  # on the rewards that the run above has put in place
    theirs._compute_advantage(KVBatchMeta(keys=KEYS, tags=[{}] * len(KEYS), partition_id="train"), {})
    np.testing.assert_allclose(found, [float(row[0]) for row in stored("advantages")], rtol=1e-4, atol=1e-6)


def test_no_verdict_is_advantage_zero_and_no_nan_reaches_verl(queue):
    loop = AnchoredReward(proxy, lossy, estimator="gold", scaling="mean")
    found, metrics = run(queue, loop, config())
    assert found[1] == found[2] == 0.0
    assert np.isfinite(found).all()
    assert all(torch.isfinite(row).all() for row in stored("rm_scores"))
    assert found[0] == pytest.approx(-found[3])  # centred over the two that have a score
    assert metrics["trueup/failure/abstained"] > 0


@pytest.mark.parametrize(
    ("settings", "loop", "remedy"),
    [
        (config(by_std=True), {}, "norm_adv_by_std_in_grpo=False"),
        (config(by_std=False), {"estimator": "control_variate"}, "norm_adv_by_std_in_grpo=True"),
        (config(by_std=True, kl=True), {"estimator": "control_variate"}, "KL loss"),
    ],
)
def test_settings_that_contradict_the_estimator_are_refused_with_the_remedy(settings, loop, remedy):
    from trueup.adapters.verl import check_settings

    with pytest.raises(ConfigError, match=remedy):
        check_settings(AnchoredReward(proxy, gold, **loop), settings.algorithm)


def test_the_factory_is_asked_for_where_it_is_missing():
    with pytest.raises(ConfigError, match=r"\+trueup.factory=my_run:make"):
        get_trainer_cls("trueup_sync")(config())


def test_the_state_lies_beside_verls_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(PPOTrainerSync, "_save_checkpoint", lambda self: None)  # wants workers
    monkeypatch.setattr(PPOTrainerSync, "_load_checkpoint", lambda self: None)
    settings = config()
    settings.trainer.default_local_dir = str(tmp_path)
    loop = AnchoredReward(proxy, gold, min_anchors_per_step=2)
    loop.step_arrays(np.zeros((2, 2)), np.ones((2, 2)))
    made = trainer(loop, settings)
    made.global_steps = 3
    made._save_checkpoint()
    fresh = trainer(AnchoredReward(proxy, gold, min_anchors_per_step=2), settings)
    fresh.global_steps = 3
    fresh._load_checkpoint()
    assert fresh._anchored.state_dict() == json.loads(json.dumps(loop.state_dict()))
    fresh.global_steps = 4
    with pytest.raises(StateError, match="global_step_4"):
        fresh._load_checkpoint()
