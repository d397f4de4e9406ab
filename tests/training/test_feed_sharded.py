"""Rows on disk make equal batches on several devices; each process reads only its own rows."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxformer.data import datasets, preparation

ROOT = Path(__file__).parents[2]
COMPARE = """
import jax, jax.numpy as jnp, numpy as np
from jaxformer.models.decoder import decoder
from jaxformer.core.optim import AdamW, optimizer, schedule
from jaxformer.core.partition import Partition
from jaxformer.core.settings import DataSettings, DeviceSettings, TrainSettings
from jaxformer.tasks.language import NextToken
from jaxformer.tasks.source import make_source
from jaxformer.training.population import population
from jaxformer.training.setup import make_setup

task, read = NextToken(window=8), []
rows = NextToken.rows
def counted(self, part, index, shift):
    read.append(len(index))
    return rows(self, part, index, shift)
NextToken.rows = counted
model = decoder(vocab_size=66, length=8, width=8, layers=1, heads=2, mlp_width=8)
rules = Partition([(".*", "train")])
tx = optimizer(rules, {"train": AdamW()}, 1.0, schedule("constant", 9, 0))
batches = []
for devices in (DeviceSettings(data=1), DeviceSettings(data=2, fsdp=2)):
    data = make_source(task, DataSettings(), 8)
    setup = make_setup(task, model, rules, tx, data, population(0, 2, (1e-2, 1e-3)),
                       TrainSettings(8), devices)
    feed = setup.batch_at(jnp.zeros(1, jnp.uint32))
    feed.steps_per_read = 3
    read.clear()
    held = feed.read(4)
    if devices.fsdp == 2:
        assert {shard.data.shape for shard in held.addressable_shards} == {(3, 2, 2, 9)}
        assert max(read) == 3 * 2, read
    batches.append(jax.jit(feed.batch)(held, jnp.int32(4)))
for one, other in zip(*batches):
    np.testing.assert_array_equal(one, other)
"""
TRAIN = """
import json, sys
from jaxformer.runtime import processes
processes.start()
import jax, jax.numpy as jnp
from jaxformer.models.decoder import decoder
from jaxformer.core.optim import AdamW, optimizer, schedule
from jaxformer.core.partition import Partition
from jaxformer.core.settings import DataSettings, DeviceSettings, TrainSettings
from jaxformer.tasks.language import NextToken
from jaxformer.tasks.source import make_source
from jaxformer.training.callbacks import Callback
from jaxformer.training.loop import fit
from jaxformer.training.population import population
from jaxformer.training.setup import make_setup

task, read, losses = NextToken(tokens=sys.argv[1], window=8), [], []
model = decoder(vocab_size=257, length=8, width=8, layers=1, heads=2, mlp_width=8)
rules = Partition([(".*", "train")])
tx = optimizer(rules, {"train": AdamW()}, 1.0, schedule("constant", 9, 0))
setup = make_setup(task, model, rules, tx, make_source(task, DataSettings(), 8),
                   population(0, 1, (1e-2,)), TrainSettings(8), DeviceSettings())
feed = setup.batch_at(jnp.zeros(1, jnp.uint32))
feed.steps_per_read = 5
rows = NextToken.rows
def counted(self, part, index, shift):
    read.append(len(index))
    return rows(self, part, index, shift)
NextToken.rows = counted
class Losses(Callback):
    def on_dispatch(self, dispatch):
        losses.extend(dispatch.metrics["loss"].ravel().tolist())
fit(setup.create(), setup.step(), feed, steps=10, callbacks=[Losses()])
print(json.dumps([len(jax.devices()), read[:2], losses]))
processes.finish()
"""


@pytest.mark.slow  # a process of its own, with programs of its own
def test_several_devices_see_the_batches_of_one():
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XLA_FLAGS": flags}
    done = subprocess.run(
        [sys.executable, "-c", COMPARE], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow  # three processes
def test_two_processes_train_on_prepared_text_as_one_does(tmp_path):
    (tmp_path / "t.txt").write_text("".join(f"line {i} of a text\n" for i in range(2000)))
    corpus = datasets.corpus(f"text:{tmp_path / 't.txt'}")
    preparation.prepare(corpus, tmp_path / "out", kind="bytes", shares=(0.1, 0.1))
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=1"
    alone = os.environ | {"PYTHONPATH": str(ROOT), "XLA_FLAGS": flags}
    job = alone | {"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": "2"}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", TRAIN, str(tmp_path / "out")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for environment in (alone, job | {"JAX_PROCESS_ID": "0"}, job | {"JAX_PROCESS_ID": "1"})
    ]
    ends = [process.communicate(timeout=240) for process in started]
    assert [process.returncode for process in started] == [0] * 3, ends
    (one, whole, expected), *others = (json.loads(out.splitlines()[-1]) for out, _ in ends)
    assert one == 1 and whole == [5 * 8] * 2 and expected[-1] < expected[0]
    for devices, halves, losses in others:
        assert devices == 2 and halves == [5 * 4] * 2  # each reads its own half of a batch
        np.testing.assert_allclose(losses, expected, rtol=1e-5)
