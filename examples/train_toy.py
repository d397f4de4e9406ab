"""Trains the network "toy:induction" and writes it; every run writes the same numbers.

    python examples/train_toy.py                     writes jaxformer/models/toys/induction.npz
    python examples/train_toy.py runs/induction.npz  writes another file

The task: a segment of 4 to 16 different letters is repeated until 32 letters are full. From the
second copy on, the next letter is the one that followed the last letter before. The length of the
segment varies, so that no fixed distance leads to the answer: a head must look at the letters.
"""

import string
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp

import jaxformer
from jaxformer.models.decoder import decoder
from jaxformer.models.toy import FOLDER, save_toy
from jaxformer.runtime.command_line import Parser, command
from jaxformer.tasks import Batch, Task

STEPS, BATCH_SIZE, LEARNING_RATE = 2000, 64, 3e-3
SHORTEST, LONGEST = 4, 16  # letters in a segment
TASK = "A segment of 4 to 16 different letters is repeated until 32 letters are full."


@dataclass(frozen=True)
class RepeatedSegment(Task):
    """Sequences of letters that repeat a segment. Every letter after the first copy is scored."""

    alphabet: str = string.ascii_lowercase
    length: int = 32

    @property
    def vocab_size(self):
        return len(self.alphabet)

    @property
    def n_scored(self):
        return self.length - SHORTEST  # at most

    def example(self, key, index):
        order_key, period_key = jax.random.split(key)
        letters = jax.random.permutation(order_key, self.vocab_size).astype(jnp.int32)
        period = jax.random.randint(period_key, (), SHORTEST, LONGEST + 1)
        positions = jnp.arange(self.length + 1)
        tokens = letters[positions % period]
        is_scored = positions[1:] >= period
        return Batch(tokens[:-1], jnp.where(is_scored, tokens[1:], 0), is_scored * 1.0)

    def baselines(self, batch):
        return {"uniform_letter": 1 / self.vocab_size}


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=FOLDER / "induction.npz")
    file = parser.parse_args(argv).file
    task = RepeatedSegment()
    sizes = dict(width=64, layers=2, heads=2, mlp_width=64, use_mlp=False)
    model_fields = task.sizes | sizes
    run = jaxformer.train(
        task,
        decoder(**model_fields),
        steps=STEPS,
        batch_size=BATCH_SIZE,
        learning_rate=LEARNING_RATE,
    )
    accuracy = run.result.metrics["accuracy"].mean
    print(f"accuracy on new examples: {accuracy:.4f}")
    file.parent.mkdir(parents=True, exist_ok=True)
    config = {"model": model_fields, "alphabet": task.alphabet, "task": TASK}
    save_toy(file, run.params, config | {"accuracy": round(accuracy, 4)})
    print(f"{file}: {file.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
