"""OpenRLHF's experience maker: held to what was recorded of its released source, and to the released file itself where
it lies (`pip install --no-deps openrlhf==0.11.2`), without the packages that only its models and cluster need."""

import importlib
import importlib.util
import inspect
import json
import sys
import types
from dataclasses import make_dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from trueup import AnchoredReward
from trueup.adapters import openrlhf
from trueup.errors import ConfigError

torch = pytest.importorskip("torch", reason="needs torch: `make test-train` installs it")

pytestmark = pytest.mark.filterwarnings("default")
SEAMS = json.loads((Path(__file__).parents[1] / "data" / "trainer_seams.json").read_text())["openrlhf"]
Experience = make_dataclass("Experience", [(name, object, None) for name in SEAMS["experience"]], slots=True)


def proxy(rollouts):
    return [min(len(r.completion) / 20, 1.0) for r in rollouts]


def gold(rollouts):
    return [len(r.completion) * 3 % 5 / 4 for r in rollouts]


class Maker:
    """The recorded method's own arithmetic for dr_grpo: rewards back in prompt order, minus the group's mean."""

    def __init__(self, estimator="dr_grpo", clip=(-100, 100)):
        self.tokenizer = SimpleNamespace(decode=lambda ids, skip_special_tokens: "x" * len(ids))
        self.strategy = SimpleNamespace(
            args=SimpleNamespace(
                rollout=SimpleNamespace(n_samples_per_prompt=3),
                algo=SimpleNamespace(
                    advantage=SimpleNamespace(estimator=estimator, gamma=1.0, lambd=1.0, no_std_norm=True)
                ),
                reward=SimpleNamespace(clip_range=clip),
            )
        )

    def compute_advantages_and_returns(self, experiences):
        index = torch.tensor([i for e in experiences for i in e.index])
        raw = torch.cat([e.rewards for e in experiences])
        rewards = torch.empty_like(raw)
        rewards[index] = raw
        rewards = (rewards.view(-1, 3) - rewards.view(-1, 3).mean(1, keepdim=True)).view(-1)
        for e in experiences:
            e.advantages = rewards[torch.tensor(e.index)][:, None] * e.action_mask
        return experiences


@pytest.fixture(params=["recorded", "released"])
def maker(request, monkeypatch):
    """The base class that our subclass goes on."""
    if request.param == "recorded":
        yield Maker
        return
    spec = importlib.util.find_spec("openrlhf")
    if spec is None:
        pytest.skip("needs openrlhf 0.11.2: pip install --no-deps openrlhf==0.11.2")
    root = Path(spec.submodule_search_locations[0])
    for package in ("", ".models", ".trainer", ".trainer.ppo_utils", ".trainer.ray", ".utils"):
        bare = types.ModuleType(
            f"openrlhf{package}"
        )  # the package without its __init__, which imports everything
        bare.__path__ = [str(root.joinpath(*package.split(".")[1:]))]
        monkeypatch.setitem(sys.modules, bare.__name__, bare)
    absent = {
        "ray": {},
        "deepspeed": {},
        "openrlhf.trainer.ray.launcher": {"RayActorGroup": object},
        "openrlhf.utils.seqlen_balancing": {
            "get_minimum_num_micro_batch_size": None,
            "get_seqlen_balanced_partitions": None,
        },
    }
    for name, contents in absent.items():
        stub = types.ModuleType(name)
        vars(stub).update(contents)
        monkeypatch.setitem(sys.modules, name, stub)
    released = importlib.import_module("openrlhf.trainer.ppo_utils.experience_maker").RemoteExperienceMaker

    class Released(released):
        def __init__(self):
            self.strategy, self.tokenizer = Maker().strategy, Maker().tokenizer
            self.advantage_estimator, self.kl_ctl = "dr_grpo", SimpleNamespace(value=0.0)

    yield Released
    for name in [name for name in sys.modules if name.startswith("openrlhf")]:
        del sys.modules[name]


def experiences():
    """Two micro-batches whose rows were dealt out of order; prompts of 2 tokens, responses of 1 to 6."""
    made = []
    for places in ([0, 3, 4], [5, 1, 2]):
        lengths = [1 + p for p in places]
        width = 2 + max(lengths)
        mask = torch.zeros(len(places), width, dtype=torch.long)
        for row, n in enumerate(lengths):
            mask[row, width - 2 - n :] = 1  # padded on the left
        made.append(
            Experience(
                sequences=torch.ones(len(places), width, dtype=torch.long),
                attention_mask=mask,
                action_mask=torch.ones(len(places), max(lengths)),
                kl=torch.zeros(len(places), max(lengths)),
                response_length=torch.tensor(lengths),
                total_length=torch.tensor([2 + n for n in lengths]),
                rewards=torch.tensor(openrlhf.reward_func(places, places, places)["rewards"]),
                index=list(places),
                prompts=[f"p{p // 3}" for p in places],
                labels=["y"] * len(places),
                info={},
            )
        )
    return made


def test_corrected_rewards_are_in_place_before_the_mean_is_subtracted(maker):
    steps = []
    loop = AnchoredReward(proxy, gold, anchor_fraction=0.5, seed=2)
    cls = openrlhf.anchored_experience_maker(maker, loop, on_step=lambda r, groups: steps.append((r, groups)))
    parameters = list(inspect.signature(cls.compute_advantages_and_returns).parameters)
    assert parameters == SEAMS["compute_advantages_and_returns"]
    made = cls().compute_advantages_and_returns(experiences())
    ((result, groups),) = steps
    assert [[len(r.completion) for r in group] for group in groups] == [[1, 2, 3], [4, 5, 6]]
    assert [group.rollouts[0].prompt for group in groups] == ["p0", "p1"]
    centred = (result.rewards - result.rewards.mean(axis=1, keepdims=True)).reshape(-1)
    for e in made:
        np.testing.assert_allclose(e.advantages[:, 0].numpy(), centred[e.index], atol=1e-6)


def test_no_verdict_has_advantage_zero_and_no_nan_is_left(maker):
    lossy = AnchoredReward(
        proxy,
        lambda rs: [None if i == 4 else g for i, g in enumerate(gold(rs))],
        estimator="gold",
        scaling="mean",
    )
    made = openrlhf.anchored_experience_maker(maker, lossy)().compute_advantages_and_returns(experiences())
    advantages = {place: float(a) for e in made for place, a in zip(e.index, e.advantages[:, 0], strict=True)}
    assert all(np.isfinite(a) for a in advantages.values())
    assert advantages[4] == pytest.approx(0, abs=1e-7)
    assert advantages[3] == pytest.approx(-advantages[5], abs=1e-6)


def test_settings_that_would_bias_a_corrected_reward_are_refused_with_the_remedy():
    loop = AnchoredReward(proxy, gold, anchor_fraction=0.1)
    assert list(inspect.signature(openrlhf.reward_func).parameters) == SEAMS["reward_func"]
    for estimator in SEAMS["estimators"]:
        openrlhf.check_settings(loop, Maker(estimator).strategy.args)
    with pytest.raises(ConfigError, match="dr_grpo or rloo"):
        openrlhf.check_settings(loop, Maker("group_norm").strategy.args)
    with pytest.raises(ConfigError, match=r"--reward.clip_range -33.33 33.33"):
        openrlhf.check_settings(loop, Maker(clip=(-10, 10)).strategy.args)
    with pytest.raises(ConfigError, match="must be 'corrected'"):
        openrlhf.check_settings(AnchoredReward(proxy, gold, estimator="wmrl"), Maker().strategy.args)
