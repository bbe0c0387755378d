"""Two real processes over gloo, whose groups are cut between them: the same step on both, each doing half."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs torch and trl: `make test-train` installs them")

WORKER = Path(__file__).with_name("ranks_worker.py")


def run(folder: Path, fault: str = "none") -> list[dict]:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
            *(str(WORKER), str(folder), fault),
        ],
        env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)]


def test_a_group_that_is_cut_between_two_ranks_is_centred_whole(tmp_path):
    first, second = run(tmp_path)
    assert first["error"] is second["error"] is None
    assert len(first["steps"]) == 3
    cut = [p0[-1] == p1[0] for p0, p1 in zip(first["prompts"], second["prompts"], strict=True)]
    assert all(cut)  # 3 + 3 rows in groups of 2: the middle group has a row on each rank
    for mine, other in zip(first["steps"], second["steps"], strict=True):
        assert mine["global"] == other["global"]  # one step, known to both
        assert mine["anchored"] == other["anchored"]
        np.testing.assert_allclose(mine["local"] + other["local"], mine["global"], rtol=1e-6)
        np.testing.assert_allclose(mine["logged"], mine["global"], rtol=1e-12)
        sums = np.reshape(mine["global"], (3, 2)).sum(axis=1)
        np.testing.assert_allclose(sums, 0.0, atol=1e-9)  # each group's mean is taken out of it
    assert np.abs([step["global"] for step in first["steps"]]).max() > 0
    assert first["state"] == second["state"]  # calibration and scale stay equal without being sent
    # Every rollout was scored once, on one of the two; and gold saw the anchors alone.
    anchors = sum(sum(step["anchored"]) for step in first["steps"])
    assert first["asked"]["gold"] + second["asked"]["gold"] == anchors
    assert first["asked"]["verifier"] == second["asked"]["verifier"] == 9
    assert 0 < first["asked"]["proxy"] <= 9
    assert 0 < second["asked"]["proxy"] <= 9


@pytest.mark.slow
def test_a_fault_on_one_rank_is_everyones_and_hangs_nobody(tmp_path):
    (tmp_path / "contract").mkdir()
    first, second = run(tmp_path / "contract", "contract")
    assert "declared range" in first["error"]
    assert first["error"] == second["error"]
    assert first["steps"] == second["steps"] == []

    (tmp_path / "lost").mkdir()
    first, second = run(tmp_path / "lost", "lost")
    assert first["error"] is second["error"] is None
    assert first["state"] == second["state"]
    for step in first["steps"]:  # rank 1's anchors left the update; a lost grade is not a 0
        lost = np.array(step["anchored"]) & np.array([g is None for g in step["gold"]])
        assert lost.any() or sum(step["anchored"]) < 2
        assert (np.array(step["global"])[lost] == 0).all() or np.isnan(np.array(step["global"])[lost]).all()
