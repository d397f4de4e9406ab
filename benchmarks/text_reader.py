"""The cost of reading tokens: the first batch of a large file, and a step against data in memory.

    python benchmarks/text_reader.py

The file has 10 GB of tokens (it is sparse: no disk is needed). The step is that of four layers,
n = 256, sequences of 256, a batch of 8 and a vocabulary of 8,192, read from a file of 100 MB and,
in turn, with one batch that lies in memory; numbers are CPU seconds, medians of five.
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


def folder(place: Path, n_tokens: int, drawn: bool) -> str:
    """A prepared folder of so many tokens, all zero unless they are drawn."""
    place.mkdir()
    with open(place / "tokens.bin", "wb") as file:
        if drawn:
            rng = np.random.default_rng(0)
            file.write(rng.integers(0, VOCAB, n_tokens).astype("<u2").tobytes())
        file.truncate(2 * n_tokens)
    cuts = [0, int(0.9 * n_tokens), int(0.95 * n_tokens), n_tokens]
    np.array(cuts[1:], "<i8").tofile(place / "documents.bin")
    np.ones(VOCAB, "<i4").tofile(place / "bytes.bin")
    (place / "tokenizer.json").write_text(Bytes().as_json())
    parts = {
        name: dict(start=cuts[i], stop=cuts[i + 1], first=i, last=i + 1, bytes=1)
        for i, name in enumerate(prepared.PARTS)
    }
    prepared.MAX_CHECKED_BYTES = 0  # the files below have no checksums
    files = {f.name: {"bytes": f.stat().st_size, "sha256": ""} for f in sorted(place.iterdir())}
    index = dict(format=prepared.FORMAT, dtype="uint16", vocab_size=VOCAB, end=0, labels=[])
    index |= dict(parts=parts, bytes_scale=1.0, files=files, asked={})
    write_json(place / "index.json", with_checksum(index))
    return str(place)


def built(name: str):
    task, rules = NextToken(tokens=name, window=WINDOW), Partition([(".*", "train")])
    sizes = dict(vocab_size=VOCAB, length=WINDOW, width=256, layers=4, heads=8, mlp_width=1024)
    tx = optim.optimizer(rules, {"train": optim.AdamW()}, 1.0, optim.schedule("constant", 9, 0))
    data = make_source(task, DataSettings(), BATCH)
    members = population(0, 1, (1e-4,))
    nouns = (task, decoder(**sizes), rules, tx, data, members)
    return make_setup(*nouns, TrainSettings(batch_size=BATCH), DeviceSettings())


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        large = built(folder(Path(place) / "large", 5_000_000_000, drawn=False))
        jnp.zeros(1).block_until_ready()
        held, began = resident(), time.perf_counter()
        feed = large.batch_at(jnp.zeros(1, jnp.uint32))
        feed.read(0).block_until_ready()
        seconds, grown = time.perf_counter() - began, resident() - held
        print(f"first batch of a file of 10 GB: {seconds:.2f} s, {grown / 2**20:.0f} MiB")
        began = time.perf_counter()
        for step in range(0, 20 * feed.most, feed.most):
            feed.read(step)
        rate = 20 * feed.most * BATCH * WINDOW / (time.perf_counter() - began)
        print(f"reading alone: {rate / 1e6:.1f} million tokens a second")

        setup = built(folder(Path(place) / "small", 50_000_000, drawn=True))
        feed = setup.batch_at(jnp.zeros(1, jnp.uint32))
        feed.most, state = STEPS, setup.create()
        rows, run = feed.read(0), jax.jit(_many(setup.step(), feed))
        run(state, rows).block_until_ready()
        spent = {"from the file": [], "in memory": []}
        for i in range(1, ROUNDS + 1):
            for name, read in (("from the file", feed.read), ("in memory", lambda step: rows)):
                began = time.process_time()
                run(state, read(i * STEPS)).block_until_ready()
                spent[name].append((time.process_time() - began) / STEPS)
        for name, seconds in spent.items():
            print(f"a step {name}: {np.median(seconds):.3f} CPU s")
        print(
            f"reading is {100 * feed.waited / STEPS / ROUNDS / np.median(seconds):.3f} % of a step"
        )


def _many(step, feed):
    """STEPS steps as one program; gives the last loss."""

    def run(state, rows):
        losses = []
        for i in range(STEPS):
            state, metrics = step(state, feed.batch(rows, jnp.int32(i)))
            losses.append(metrics["loss"])
        return losses[-1]

    return run


if __name__ == "__main__":
    main()
