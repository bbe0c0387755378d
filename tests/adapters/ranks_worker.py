"""One rank of a two-process run whose groups are cut between the ranks; writes what it saw as JSON."""

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from trl import GRPOTrainer

from adapters import tiny
from trueup import AnchoredReward
from trueup.adapters.trl import AnchoredMixin
from trueup.errors import ScorerContractError

out, fault = Path(sys.argv[1]), sys.argv[2]
asked = {"proxy": 0, "gold": 0, "verifier": 0}


def proxy(rollouts):
    asked["proxy"] += len(rollouts)
    return [min(len(r.completion) / 40, 1.0) for r in rollouts]


async def gold(rollouts):
    asked["gold"] += len(rollouts)
    if fault == "contract" and trainer.accelerator.process_index == 1:
        return [7.0] * len(rollouts)
    if fault == "lost" and trainer.accelerator.process_index == 1:
        raise ConnectionError("the sandbox of rank 1 is gone")
    return [float((len(r.completion) * 7 + len(r.prompt)) % 5) / 4 for r in rollouts]


def brief(rollouts):
    asked["verifier"] += len(rollouts)
    return ["fail" if len(r.completion) < 3 else "pass" for r in rollouts]


class Trainer(AnchoredMixin, GRPOTrainer):
    def __init__(self, *args, **kwargs):
        self.seen, self.prompts = [], []
        super().__init__(*args, **kwargs)

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        record = self._anchored.result.record
        self.prompts.append([row["prompt"] for row in inputs])
        self.seen.append(
            {
                "local": batch["advantages"].tolist(),
                "global": record.advantage.tolist(),
                "anchored": record.anchored.tolist(),
                "gold": [None if np.isnan(g) else g for g in record.gold],
                "logged": list(self._logs["advantages"])[-record.advantage.size :],
            }
        )
        return batch


loop = AnchoredReward(proxy, gold, verifiers=[brief], anchor_fraction=0.5, seed=1)
args = tiny.grpo(
    out / "run", per_device_train_batch_size=3, num_generations=2, steps_per_generation=1, max_steps=3
)
trainer = Trainer(
    tiny.model(),
    anchored=loop,
    args=args,
    train_dataset=tiny.dataset(),
    processing_class=tiny.tokenizer(),
)
error = None
try:
    trainer.train()
except ScorerContractError as raised:
    error = str(raised)
seen = {
    "asked": asked,
    "steps": trainer.seen,
    "prompts": trainer.prompts,
    "state": loop.state_dict(),
    "error": error,
}
(out / f"rank{trainer.accelerator.process_index}.json").write_text(json.dumps(seen))
