"""Communication of compiled programs on eight simulated devices, read from their text."""

import pytest

from tests.core.test_sharding import on_eight_devices

COMPILE = '''
import collections, json, math, re
import jax, jax.numpy as jnp, numpy as np
from experiments.cli import flags
from jaxformer import build
from jaxformer.core import sharding
from jaxformer.core.partition import Partition
from jaxformer.training.cost import memory

BYTES = {"f32": 4, "bf16": 2, "s32": 4, "u32": 4, "pred": 1}
TOPOLOGY = None
KINDS = "all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute"

def collectives(text):
    """Returns {kind: [(shape, bytes) of each array]}."""
    arrays = collections.defaultdict(list)
    for line in text.splitlines():
        match = re.search(rf"= (.*?) ({KINDS})(?:-start)?\\(", line)
        for dtype, dims in re.findall(r"(\\w+)\\[([\\d,]*)\\]", match[1]) if match else ():
            shape = [int(n) for n in dims.split(",") if n]
            arrays[match[2]].append((shape, math.prod(shape) * BYTES[dtype]))
    return arrays

def compiled(case):
    config = flags.load_config(case.get("config", "configs/mixit/retrieval.py:scale=tiny"))
    for name, value in case["set"].items():
        section, field = name.split(".")
        config[section][field] = value
    sizes = {"data": 1, "fsdp": 1, "tensor": 1, "members": 1} | case["mesh"]
    config.n_seeds = sizes["members"]
    if TOPOLOGY is None:
        config.devices.update(sizes)
        setup = build.phases(config)[0].setup
    else:  # the devices of another machine
        config.devices.data = 1
        shape = [sizes[axis] for axis in sharding.AXES]
        mesh = jax.sharding.Mesh(
            np.array(TOPOLOGY).reshape(shape),
            sharding.AXES,
            axis_types=(jax.sharding.AxisType.Auto,) * 4,
        )
        setup = build.phases(config)[0].setup._replace(mesh=mesh)
    shapes = jax.eval_shape(setup.create)
    state = jax.tree.map(
        lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
        shapes, sharding.state_sharding(shapes, setup.tx, setup.mesh),
    )
    members = "members" if config.n_seeds > 1 else None
    if case.get("evaluation"):
        batch = memory.batch_shapes(setup)
        one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), batch)
        lowered = setup.evaluation().lower(state.trainable, state.frozen, one)
    else:
        place = jax.NamedSharding(setup.mesh, jax.P(members, sharding.BATCH_AXES))
        batch = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
            memory.batch_shapes(setup),
        )
        lowered = jax.jit(setup.step(), donate_argnums=0).lower(state, batch)
    parameters = 4 * sum(x.size for x in jax.tree.leaves(setup.shapes())) * config.n_seeds
    program = lowered.compile()
    return {
        "parameters": parameters,
        "arrays": collectives(program.as_text()),
        "peak": program.memory_analysis().peak_memory_in_bytes,
    }

print("RESULT" + json.dumps([compiled(case) for case in CASES]))
'''

SMALL = {
    **{"model.width": 64, "model.heads": 8, "model.mlp_width": 128, "model.layers": 1},
    "train.batch_size": 32,
}
TWO_LAYERS = SMALL | {"model.layers": 2}
IN_CHUNKS = {"model.layers": 3, "model.scan": True, "model.remat": True, "train.loss_chunk": 64}
ENCODER = {"config": "configs/two_failure_modes/fig4_entropy.py:scale=tiny"}
RECALL = {"config": "configs/associations/recall.py:scale=tiny"}
FSDP, TENSOR, MIXED = {"fsdp": 8}, {"tensor": 8}, {"data": 2, "fsdp": 2, "tensor": 2}


def compiled(*cases):
    return on_eight_devices(f"CASES = {list(cases)}\n" + COMPILE)


def total(arrays, kind):
    return sum(size for _, size in arrays.get(kind, ()))


def check(found, case):
    """Checks that only parameters are gathered, and no activations."""
    arrays, parameters = found["arrays"], found["parameters"]
    assert not {"all-to-all", "collective-permute"} & arrays.keys(), (case, arrays)
    passes = 2.1 if case["set"].get("model.remat") else 1.1  # blocks are computed twice
    assert total(arrays, "all-gather") <= passes * parameters, (case, arrays)


def test_fsdp_gathers_parameters_and_no_activation():
    case = {"mesh": FSDP, "set": SMALL}
    (found,) = compiled(case)
    check(found, case)
    assert total(found["arrays"], "all-gather") >= 0.9 * found["parameters"]
    for shape, _ in found["arrays"]["all-reduce"]:  # gradients, norms of gradients and losses
        assert shape[0:1] != [32] or shape == [32, 64], found


@pytest.mark.slow  # each case compiles a step
def test_no_mesh_moves_activations_between_devices():
    cases = [
        {"mesh": {"data": 8}, "set": TWO_LAYERS},
        {"mesh": FSDP, "set": TWO_LAYERS | {"train.accumulate": 2}},
        {"mesh": FSDP, "set": TWO_LAYERS | {"model.dtype": "bfloat16"}},
        {"mesh": {"data": 2, "fsdp": 4}, "set": SMALL},
        {"mesh": MIXED, "set": TWO_LAYERS},
        {"mesh": MIXED, "set": TWO_LAYERS, "evaluation": True},
        {"mesh": FSDP, "set": TWO_LAYERS | IN_CHUNKS},
        {"mesh": FSDP, "set": {"train.batch_size": 32}, **ENCODER},
        {"mesh": FSDP, "set": {"train.batch_size": 32}, **RECALL},
    ]
    for case, found in zip(cases, compiled(*cases), strict=True):
        if case["mesh"] == {"data": 8}:  # the gradients, once
            assert total(found["arrays"], "all-reduce") <= 1.01 * found["parameters"], found
        check(found, case)


@pytest.mark.slow
def test_tensor_parallelism_adds_once_after_attention_and_once_after_the_mlp():
    """Forward passes with one block more have two more sums of the residual stream."""
    evaluated = [
        {"mesh": TENSOR, "set": SMALL | {"model.layers": layers}, "evaluation": True}
        for layers in (2, 3)
    ]
    sums = []
    for found in compiled(*evaluated):
        assert total(found["arrays"], "all-gather") < 0.1 * found["parameters"], found
        sums.append(
            len([shape for shape, _ in found["arrays"]["all-reduce"] if shape[-1:] == [64]])
        )
    assert sums[1] - sums[0] == 2, sums


@pytest.mark.slow
def test_members_exchange_nothing_but_rows():
    (found,) = compiled({"mesh": {"members": 8}, "set": SMALL})
    for kind, arrays in found["arrays"].items():
        assert all(size <= 4 * 8 for _, size in arrays), (kind, arrays)
