"""Training on meshes of devices: one device is a mesh of size 1; losses agree on all meshes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from jax.sharding import PartitionSpec as P

from jaxformer.core import sharding
from jaxformer.core.errors import UserError

ROOT = Path(__file__).parents[2]
TRAIN = """
import jax, json, numpy as np
from experiments.cli import flags
from jaxformer import build
from jaxformer.io.checkpoint_writer import flatten_state
from jaxformer.training.callbacks import Callback
from jaxformer.training.loop import fit

config = flags.load_config("configs/mixit/retrieval.py:variant=frozen_qk,scale=tiny")
config.model.update(width=32, mlp_width=64, layers=1)
config.task.update(max_pairs=3, vocab=16)
config.train.batch_size = 16

def held(tree):
    # Bytes of one device.
    leaves = [x for x in flatten_state(tree).values() if hasattr(x, "addressable_shards")]
    return sum(leaf.addressable_shards[0].data.nbytes for leaf in leaves)

out = {}
for mesh in MESHES:
    config.devices.update(data=mesh[0], fsdp=mesh[1], tensor=mesh[2])
    built = build.phases(config)[0].setup
    state = built.create()
    losses = []
    class Losses(Callback):
        def on_dispatch(self, dispatch):
            losses.extend(dispatch.metrics["loss"][:, 0].tolist())

    fit(state, built.step(), built.batch_at(built.data.heldout().fingerprints), steps=30,
        callbacks=[Losses()])
    kernel = state.trainable["block_0"]["mlp"]["in"]["kernel"]
    out[str(mesh)] = dict(
        losses=losses,
        leaf=kernel.addressable_shards[0].data.nbytes / kernel.nbytes,
        params=held(state.trainable),
        moments=held(state.opt_state),
    )
print("RESULT" + json.dumps(out))
"""


LOAD = """
import sys
from pathlib import Path
import jax, json, jax.numpy as jnp, numpy as np
import jaxformer
from jaxformer.core import paths
from jaxformer.models.pretrained import folder as reader, save_folder, tiny

source = tiny.save("llama", sys.argv[1], vocab=24)
read, copy_slice = [], reader._copied_slice

def counted(*arguments):
    read.append(copy_slice(*arguments))
    return read[-1]

whole = jaxformer.load(source)[1]
reader._copied_slice = counted
model, params, config = jaxformer.load(source, devices={"data": 1, "fsdp": 4, "tensor": 2})
matrices = [x.size for x in read if x.ndim == 2]
tokens = jnp.arange(6)[None]
first, second = (jax.jit(model.apply)({"params": p}, tokens) for p in (whole, params))
kernel = params["block_0"]["mlp"]["in"]["kernel"]
saved = save_folder(Path(sys.argv[1] + "_saved"), model, params, config)
same = jax.tree.map(lambda a, b: bool((a == b).all()), whole, jaxformer.load(saved)[1])
print("RESULT" + json.dumps({
    "share": kernel.addressable_shards[0].data.nbytes / kernel.nbytes,
    "gap": float(jnp.abs(first - second).max() / first.std()),
    "largest": max(matrices) / max(x.size for x in jax.tree.leaves(whole)),
    "same": all(jax.tree.leaves(same)),
}))
"""


# The mixed mesh has every axis; each alone costs a compilation and runs with the long checks.
SHARES = {(2, 2, 2): 4, (8, 1, 1): 1, (1, 8, 1): 8, (1, 1, 8): 8}


@pytest.fixture(scope="module", params=["mixed", pytest.param("alone", marks=pytest.mark.slow)])
def meshes(request):
    """Returns losses and bytes by mesh."""
    chosen = [mesh for mesh in SHARES if (mesh == (2, 2, 2)) == (request.param == "mixed")]
    return on_eight_devices(f"MESHES = {[(1, 1, 1), *chosen]}" + TRAIN)


def on_eight_devices(program, *arguments):
    """Runs a program in a new process with eight simulated devices."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": os.environ["XLA_FLAGS"] + " --xla_force_host_platform_device_count=8",
    }
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rematerialization" not in done.stderr, done.stderr[-3000:]
    return json.loads(done.stdout.split("RESULT")[1])


def test_losses_agree_with_one_device(meshes):
    one = meshes.pop("(1, 1, 1)")
    assert len(one["losses"]) == 30 and one["losses"][0] > one["losses"][-1]
    assert meshes
    for mesh, many in meshes.items():
        assert many["losses"] == pytest.approx(one["losses"], rel=1e-5), mesh
        # A device holds its share; norm gains and counts lie on every device.
        share = SHARES[tuple(json.loads(f"[{mesh[1:-1]}]"))]
        assert many["leaf"] == 1 / share
        for half in ("params", "moments"):
            assert many[half] <= one[half] / share * 1.1


@pytest.mark.slow  # a process of its own
def test_a_published_model_is_read_and_written_by_shards(tmp_path):
    """Each of eight devices reads its part of a matrix; logits and saved parameters are equal."""
    result = on_eight_devices(LOAD, str(tmp_path / "model"))
    assert result["share"] == result["largest"] == 1 / 8
    assert result["gap"] < 1e-5 and result["same"]


def test_rules_choose_by_path_and_skip_what_does_not_divide():
    mesh = sharding.make_mesh(1, 1, 1)

    def spec(path, shape):
        return sharding.parameter_sharding(path, shape, mesh, lead=1).spec

    assert spec("block_0/attn/query/kernel", (2, 8, 8)) == P(None, "fsdp", "tensor")
    assert not any(spec("final_norm/scale", (2, 8)))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: sharding.make_mesh(fsdp=3), "needs 3 devices, this machine has 1"),
        (lambda: sharding.make_mesh(tensor=0), "devices.tensor must be at least 1"),
    ],
)
def test_wrong_meshes_are_one_line_errors(call, message):
    with pytest.raises(UserError, match=message):
        call()


def test_a_batch_must_be_a_multiple_of_the_devices_that_cut_it():
    sharding.check_batch(16, {"data": 4, "fsdp": 2, "tensor": 3})
    with pytest.raises(UserError, match="batch_size = 12 is not a multiple of the 8 devices"):
        sharding.check_batch(12, {"data": 4, "fsdp": 2, "tensor": 3})
