"""The cost of reading tokens: the first batch of a large file, and a step with data from a file.

    python benchmarks/text_reader.py

The large file has 10 GB of tokens; it is sparse and takes no disk space. The step trains a model of
four layers and width 256 with sequences of 256 tokens, a batch of 8 and a vocabulary of 8,192. It
reads its batch from a file of 100 MB or reuses a batch in memory, alternately. The time of a step
is its CPU time, the median of five rounds.
"""

import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core import optim
from jaxformer.core.partition import Partition
from jaxformer.core.settings import DataSettings, DeviceSettings, TrainSettings
from jaxformer.data import tokens as prepared
from jaxformer.data.tokenizer import Bytes
from jaxformer.io.atomic_files import with_checksum, write_json
from jaxformer.models.decoder import decoder
from jaxformer.tasks.language import NextToken
from jaxformer.tasks.source import make_source
from jaxformer.training.population import population
from jaxformer.training.setup import make_setup

ROUNDS, STEPS, WINDOW, BATCH, VOCAB = 5, 3, 256, 8, 8192


def write_text(folder: Path, n_tokens: int, is_random: bool) -> str:
    """Writes a prepared text of random tokens, or of zeros; returns its folder."""
    folder.mkdir()
    with open(folder / "tokens.bin", "wb") as file:
        if is_random:
            rng = np.random.default_rng(0)
            file.write(rng.integers(0, VOCAB, n_tokens).astype("<u2").tobytes())
        file.truncate(2 * n_tokens)
    # Three documents, one for each part: 90, 5 and 5 % of the tokens.
    cuts = [0, int(0.9 * n_tokens), int(0.95 * n_tokens), n_tokens]
    np.array(cuts[1:], "<i8").tofile(folder / "documents.bin")
    np.ones(VOCAB, "<i4").tofile(folder / "bytes.bin")
    (folder / "tokenizer.json").write_text(Bytes().as_json())
    parts = {
        name: dict(start=cuts[i], stop=cuts[i + 1], first=i, last=i + 1, bytes=1)
        for i, name in enumerate(prepared.PARTS)
    }
    prepared.MAX_CHECKED_BYTES = 0  # the files below have no checksums
    files = {f.name: {"bytes": f.stat().st_size, "sha256": ""} for f in sorted(folder.iterdir())}
    index = dict(format=prepared.FORMAT, dtype="uint16", vocab_size=VOCAB, end=0, labels=[])
    index |= dict(parts=parts, bytes_scale=1.0, files=files, asked={})
    write_json(folder / "index.json", with_checksum(index))
    return str(folder)


def make(name: str):
    """Returns the setup of a training on the text in a folder."""
    task, rules = NextToken(tokens=name, window=WINDOW), Partition([(".*", "train")])
    sizes = dict(vocab_size=VOCAB, length=WINDOW, width=256, layers=4, heads=8, mlp_width=1024)
    tx = optim.optimizer(rules, {"train": optim.AdamW()}, 1.0, optim.schedule("constant", 9, 0))
    data = make_source(task, DataSettings(), BATCH)
    members = population(0, 1, (1e-4,))
    settings = TrainSettings(batch_size=BATCH)
    return make_setup(task, decoder(**sizes), rules, tx, data, members, settings, DeviceSettings())


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        read_large(Path(folder) / "large")
        compare_steps(Path(folder) / "small")


def read_large(folder: Path) -> None:
    """Prints the time and memory of the first batch of a large file, and the reading rate."""
    setup = make(write_text(folder, 5_000_000_000, is_random=False))
    jnp.zeros(1).block_until_ready()
    before, began = resident_bytes(), time.perf_counter()
    feed = setup.batch_at(jnp.zeros(1, jnp.uint32))  # the argument is unused for data on disk
    jax.block_until_ready(feed.read(0))
    seconds, grown = time.perf_counter() - began, resident_bytes() - before
    print(f"first batch of a file of 10 GB: {seconds:.2f} s, {grown / 2**20:.0f} MiB")
    began = time.perf_counter()
    steps = 20 * feed.steps_per_read
    for step in range(0, steps, feed.steps_per_read):
        feed.read(step)
    rate = steps * BATCH * WINDOW / (time.perf_counter() - began)
    print(f"reading alone: {rate / 1e6:.1f} million tokens per second")


def compare_steps(folder: Path) -> None:
    """Prints the CPU time of a step whose batch is read from a file or is in memory."""
    setup = make(write_text(folder, 50_000_000, is_random=True))
    feed = setup.batch_at(jnp.zeros(1, jnp.uint32))
    feed.steps_per_read = STEPS
    state = setup.create()
    rows = feed.read(0)
    run = jax.jit(_many(setup.step(), feed))
    run(state, rows).block_until_ready()
    seconds: dict[str, list[float]] = {"from the file": [], "in memory": []}
    for i in range(1, ROUNDS + 1):
        for name, read in (("from the file", feed.read), ("in memory", lambda step: rows)):
            began = time.process_time()
            run(state, read(i * STEPS)).block_until_ready()
            seconds[name].append((time.process_time() - began) / STEPS)
    for name, values in seconds.items():
        print(f"a step {name}: {np.median(values):.3f} CPU s")
    share = feed.waited / STEPS / ROUNDS / np.median(seconds["in memory"])
    print(f"reading is {share:.3%} of a step")


def _many(step, feed):
    """Returns a function that runs STEPS steps as one program and returns the last loss."""

    def run(state, rows):
        losses = []
        for i in range(STEPS):
            state, metrics = step(state, feed.batch(rows, jnp.int32(i)))
            losses.append(metrics["loss"])
        return losses[-1]

    return run


if __name__ == "__main__":
    main()
