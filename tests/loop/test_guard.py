"""The guard fails closed, opens on evidence, and closes on a proxy that turns."""

import json

import numpy as np
import pytest

import trueup
from trueup.errors import ConfigError

N_GROUPS, GROUP_SIZE = 16, 8


def honest(r, rng):
    return np.clip(r + 0.05 * rng.normal(size=r.shape), 0, 1)


def hacked(r, rng):
    f = honest(r, rng)
    f[r < 0.2] = 0.95
    return f


class Run:
    """Steps with a proxy that may change, one family a row block."""

    def __init__(self, seed=0, families=("a",), **settings):
        self.rng = np.random.default_rng(seed)
        self.families = families
        guard = settings.pop("guard", {})
        self.reward = trueup.AnchoredReward(
            None, None, seed=seed, guard=trueup.GuardConfig(**guard), anchor_fraction=0.1, **settings
        )

    def step(self, proxies, families=None, lose=0.0):
        families = families or self.families
        r = self.rng.random((N_GROUPS, GROUP_SIZE))
        f = np.empty_like(r)
        names = [families[g % len(families)] for g in range(N_GROUPS)]
        for g, name in enumerate(names):
            f[g] = proxies[name](r[g], self.rng) if isinstance(proxies, dict) else proxies(r[g], self.rng)
        f[self.rng.random(f.shape) < lose] = np.nan
        return self.reward.step_arrays(f, r, families=names)

    def many(self, n, proxies, **kwargs):
        return [self.step(proxies, **kwargs) for _ in range(n)]


def dropped(step):
    return step.record.metrics["trueup/guard/dropped_fraction"]


def test_a_family_starts_closed_and_opens_on_evidence():
    steps = Run().many(8, honest)
    assert dropped(steps[0]) > 0.3
    assert set(steps[0].reasons[~steps[0].anchored]) == {"guarded"}
    assert np.isnan(steps[0].advantages[~steps[0].anchored]).all()
    assert steps[0].record.realised_fraction == pytest.approx(0.5)
    assert dropped(steps[-1]) == 0.0
    assert steps[-1].record.realised_fraction == pytest.approx(0.1, abs=0.01)
    assert any("guard: a opened" in note for step in steps for note in step.record.notes)


@pytest.mark.parametrize("settings", [{}, {"estimator": "control_variate"}, {"estimator": "wmrl"}])
def test_it_closes_on_a_proxy_that_turns_and_says_why(settings):
    run = Run(**settings, calibration={"enabled": False})
    before = run.many(40, honest)
    assert dropped(before[-1]) == 0.0
    after = run.many(25, hacked)
    closed = [i for i, step in enumerate(after) if any("closed" in note for note in step.record.notes)]
    assert closed
    assert closed[0] < 20
    reason = next(note for note in after[closed[0]].record.notes if "closed" in note)
    assert "residual" in reason or "exploit" in reason
    assert dropped(after[closed[0] + 1]) > 0.2


def test_only_the_family_that_turned_is_closed():
    run = Run(families=("a", "b"), calibration={"enabled": False})
    run.many(40, honest)
    after = run.many(30, {"a": honest, "b": hacked})
    family = after[-1].record.family
    assert set(after[-1].reasons.ravel()[family == 0]) == {None}
    assert "guarded" in set(after[-1].reasons.ravel()[family == 1])


def test_it_comes_back_on_fresh_evidence_only():
    run = Run(calibration={"enabled": False})
    run.many(40, honest)
    turned = run.many(30, hacked)
    assert dropped(turned[-1]) > 0
    healed = run.many(10, honest)
    assert dropped(healed[0]) > 0  # not at once
    assert dropped(healed[-1]) == 0


def test_it_does_not_close_on_an_honest_proxy():
    closings = 0
    for seed in range(12):
        steps = Run(seed=seed).many(100, honest)
        closings += sum("closed" in note for step in steps for note in step.record.notes)
    assert closings <= 2  # alpha is 1 % per run and family


def test_a_lost_proxy_is_dropped_in_the_same_step():
    run = Run()
    run.many(10, honest)
    step = run.step(honest, lose=0.6)
    assert np.isnan(step.advantages[~step.anchored]).all()
    assert any("closed (unscored)" in note for note in step.record.notes)


def test_a_new_family_is_not_trusted_on_the_others_credit():
    run = Run()
    run.many(20, honest)
    step = run.step(honest, families=("a", "new"))
    new = step.record.family == 1
    assert "guarded" in set(step.reasons.ravel()[new])
    assert set(step.reasons.ravel()[~new]) == {None}


class Judge:
    def __init__(self):
        self.version = "judge-1"

    def score(self, rollouts):
        return [r.task for r in rollouts]


def test_a_judge_that_changes_its_version_is_a_new_proxy():
    judge = Judge()
    rng = np.random.default_rng(0)
    reward = trueup.AnchoredReward(
        judge,
        lambda rs: [0.9 * r.task for r in rs],
        guard=trueup.GuardConfig(),
        calibration={"min_pairs": 150},
    )

    def step():
        return reward.step(
            [[trueup.Rollout("p", "c", float(rng.random())) for _ in range(8)] for _ in range(16)]
        )

    for _ in range(10):
        before = step()
    assert dropped(before) == 0
    judge.version = "judge-2"
    after = step()
    assert "guarded" in set(after.reasons.ravel())
    assert any("closed (proxy_version)" in note for note in after.record.notes)
    assert (before.record.calibrated != before.record.proxy).any()  # the old one was calibrated
    following = step().record
    np.testing.assert_array_equal(
        following.calibrated, following.proxy
    )  # nothing is known of the new judge yet


def test_a_guarded_run_resumes_bit_for_bit():
    run, other = Run(seed=3), Run(seed=3)
    for i in range(60):
        proxy = honest if i < 40 else hacked
        expected = run.step(proxy)
        saved = json.loads(json.dumps(other.reward.state_dict()))
        other.reward = trueup.AnchoredReward(None, None, other.reward.config)
        other.reward.load_state_dict(saved)
        got = other.step(proxy)
        np.testing.assert_array_equal(got.advantages, expected.advantages)
        assert got.record.notes == expected.record.notes


def test_what_a_closed_family_learns_is_gold_without_tilt():
    rng = np.random.default_rng(1)
    r = rng.random((6, 8))
    f = hacked(r, rng)
    n = 1_500
    samples = np.empty((n, *r.shape))
    for seed in range(n):
        reward = trueup.AnchoredReward(None, None, seed=seed, guard=trueup.GuardConfig(), scaling="mean")
        samples[seed] = np.nan_to_num(reward.step_arrays(f, r).advantages)
    total = samples.mean(axis=0)
    # Half of the rollouts are seen, so about half of the signal arrives; none of the proxy's does.
    truth = r - r.mean(axis=1, keepdims=True)
    slope = (total * truth).sum() / (truth * truth).sum()
    error = samples.std(axis=0) / np.sqrt(n)
    assert 0.3 < slope < 0.6
    assert np.abs((total - slope * truth) / error).max() < 4.5


def test_the_cap_on_anchors_holds_for_closed_families_too():
    rng = np.random.default_rng(2)
    reward = trueup.AnchoredReward(None, None, guard=trueup.GuardConfig(), max_anchors_per_step=3)
    step = reward.step_arrays(rng.random((8, 8)), rng.random((8, 8)))
    assert step.record.n_gold_queries == 3
    assert step.propensities.sum() == pytest.approx(3)


def test_a_guard_needs_both_scores():
    with pytest.raises(ConfigError, match="guard must be left out for estimator 'proxy'"):
        trueup.AnchoredReward(None, None, estimator="proxy", guard=trueup.GuardConfig())
