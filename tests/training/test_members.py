"""Members on separate devices, alone and combined with the other mesh axes."""

import jax
import pytest
from jax.sharding import PartitionSpec as P

from jaxformer.core import sharding
from jaxformer.core.errors import UserError
from tests.core.test_sharding import on_eight_devices

TRAIN = """
import jax, json, numpy as np
from experiments.cli import flags
from jaxformer import build
from jaxformer.training.loop import fit

config = flags.load_config("configs/mixit/retrieval.py:variant=frozen_qk,scale=tiny")
config.model.update(width=16, mlp_width=32, layers=1)
config.task.update(max_pairs=3, vocab=16)
config.data.update(test_size=16, validation_size=16)
config.train.batch_size, config.n_seeds, config.optim.learning_rate = 12, 3, (1e-2, 1e30)
config.optim.clip = 0.0

def whole(tree, members=6):
    return [np.asarray(leaf)[:members] for leaf in jax.tree.leaves(tree)]

def gap(ours, theirs):
    return max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))

out, one, apart = [], {}, {}
for how, mesh in MESHES:
    config.train.members = how
    config.devices.update(**{"data": 1, "fsdp": 1, "tensor": 1, "members": 1, **mesh})
    built = build.phases(config)[0].setup
    held, first = built.data.heldout(), built.create()
    batch_at = built.batch_at(held.fingerprints)
    state = fit(first, built.step(), batch_at, steps=10)
    scores = built.evaluation()(state.trainable, state.frozen, held.test)
    kernel = state.trainable["block_0"]["mlp"]["in"]["kernel"]
    found = dict(start=whole((first.trainable, first.frozen)), batch=whole(jax.jit(batch_at)(3)),
                 trained=whole(state.trainable, 3), scores=whole(scores["loss"].value, 3))
    one = found if not mesh else one
    apart = found if mesh == {"members": 6} else apart
    out.append(dict(
        mesh=dict(built.mesh.shape), diverged=np.asarray(state.diverged_at).tolist(),
        gaps={name: gap(found[name], one[name]) for name in found},
        to_six=gap(found["trained"], apart["trained"]) if apart else None,
        share=kernel.addressable_shards[0].data.nbytes / kernel.nbytes,
        local=[s.data.shape[0] for s in kernel.addressable_shards],
    ))
print("RESULT" + json.dumps(out))
"""
MESHES = [
    ("map", {}),
    ("map", {"members": 6}),
    ("map", {"members": 3}),
    ("map", {"members": 2}),
    ("map", {"members": 3, "fsdp": 2}),
    ("map", {"members": 2, "tensor": 2, "data": 2}),
    ("map", {"members": 0, "data": 0}),
    ("vmap", {"members": 2, "data": 3}),
]


@pytest.fixture(scope="module")
def found():
    return on_eight_devices(f"MESHES = {MESHES}\n" + TRAIN)


@pytest.mark.slow  # a process of its own, which compiles a dozen programs
def test_members_apart_are_the_members_together(found):
    """They start with the same bits and see the same data.

    XLA compiles differently for one device and for several, so trained values agree to rounding.
    """
    for one in found:
        assert one["gaps"]["start"] == one["gaps"]["batch"] == 0
        assert one["gaps"]["trained"] < 1e-5 and one["gaps"]["scores"] < 1e-5, one
        assert one["diverged"] == found[0]["diverged"]
        assert one["diverged"][:3] == [-1] * 3 and min(one["diverged"][3:]) > 0


@pytest.mark.slow
def test_on_how_many_devices_members_train_changes_no_bit(found):
    """This holds from two devices on; scores agree to rounding, because they are vectorised."""
    two_three_six = [one for one in found if set(one["mesh"].values()) in ({1, 2}, {1, 3}, {1, 6})]
    assert [one["mesh"]["members"] for one in two_three_six][:3] == [6, 3, 2]
    assert [one["to_six"] for one in two_three_six][:3] == [0, 0, 0]


@pytest.mark.slow
def test_a_device_holds_its_members_alone(found):
    for one in found:
        mesh = one["mesh"]
        assert one["local"] == [6 // mesh["members"]] * len(one["local"])
        assert one["share"] == 1 / mesh["members"] / mesh["fsdp"] / mesh["tensor"]


def eight(monkeypatch):
    """Returns a mesh with one device eight times, whose shape can be inspected."""
    monkeypatch.setattr(jax, "device_count", lambda: 8)
    monkeypatch.setattr(jax, "devices", lambda: jax.local_devices() * 8)
    monkeypatch.setattr(sharding, "Mesh", lambda devices, axes, axis_types: devices.shape)


@pytest.mark.parametrize(
    "sizes, shape",
    [
        (dict(), (1, 8, 1, 1)),
        (dict(batch_size=12), (1, 6, 1, 1)),  # two devices have nothing to do
        (dict(batch_size=12, fsdp=2), (1, 3, 2, 1)),
        (dict(batch_size=7), (1, 7, 1, 1)),
        (dict(batch_size=12, members=0, population=9), (3, 2, 1, 1)),
        (dict(batch_size=12, members=0, population=9, data=1, tensor=2), (3, 1, 1, 2)),
        (dict(batch_size=16, members=0, population=1), (1, 8, 1, 1)),
        (dict(batch_size=12, members=6, population=6), (6, 1, 1, 1)),
    ],
)
def test_what_is_left_open_takes_the_devices_that_it_can_use(sizes, shape, monkeypatch):
    eight(monkeypatch)
    assert sharding.make_mesh(**sizes) == shape


@pytest.mark.parametrize(
    "sizes, message",
    [
        (dict(members=4, population=9), "members = 4 does not divide the population of 9"),
        (dict(members=4, population=9), "possible: 1, 3"),
        (dict(members=8, data=2, population=8), "needs 16 devices, this machine has 8"),
        (dict(members=-1), "devices.members must be at least 1"),
    ],
)
def test_meshes_that_cannot_be(sizes, message, monkeypatch):
    eight(monkeypatch)
    with pytest.raises(UserError, match=message):
        sharding.make_mesh(**sizes)


def test_the_axis_of_members_is_cut_only_where_there_is_a_mesh_axis_for_it():
    mesh = sharding.make_mesh(1, 1, 1)
    assert sharding.parameter_sharding("a/scale", (6, 4), mesh, lead=1).spec == P(None)
