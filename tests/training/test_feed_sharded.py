"""Rows of a disk on several devices: the batches of one device, each row read by its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPARE = """
import jax, jax.numpy as jnp, numpy as np
from jaxformer.models.decoder import decoder
from jaxformer.optim import AdamW, optimizer, schedule
from jaxformer.partition import Partition
from jaxformer.settings import DataSettings, DeviceSettings, TrainSettings
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
    feed.most = 3
    read.clear()
    held = feed.read(4)
    if devices.fsdp == 2:
        assert {shard.data.shape for shard in held.addressable_shards} == {(3, 2, 2, 9)}
        assert max(read) == 3 * 2, read
    batches.append(jax.jit(feed.take)(held, jnp.int32(4)))
for one, other in zip(*batches):
    np.testing.assert_array_equal(one, other)
"""


@pytest.mark.slow  # a process of its own, with programs of its own
def test_several_devices_see_the_batches_of_one():
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XLA_FLAGS": flags}
    done = subprocess.run(
        [sys.executable, "-c", COMPARE], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
