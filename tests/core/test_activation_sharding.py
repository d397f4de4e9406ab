"""Activations lie on the batch axes of the mesh, as the traced program of each model shows."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxformer.core import layouts, sharding
from jaxformer.interp import capture
from jaxformer.interp.generation import generate
from jaxformer.models.activation_points import SHARDINGS
from jaxformer.models.attention_paths import attention_paths
from jaxformer.models.classifier import classifier
from jaxformer.models.decoder import decoder
from jaxformer.models.encoder import encoder
from jaxformer.models.pretrained.network import pretrained
from jaxformer.models.recall import recall
from jaxformer.training.cost import flops

B, T = 8, 4
SIZES = {"vocab_size": 8, "length": 8, "width": 8}
BLOCKS = {"layers": 2, "heads": 2}
MODELS = {
    "decoder": decoder(**SIZES, **BLOCKS, mlp_width=16),
    "scanned decoder": decoder(**SIZES, **BLOCKS, mlp_width=16, scan=True, remat=True),
    "MixiT": decoder(**SIZES, **BLOCKS, mlp_width=16, mixer="mixit"),
    "classifier": classifier(**SIZES, **BLOCKS, mlp_width=16, classes=3),
    "encoder": encoder(**SIZES, **BLOCKS, beta=1.0),
    "recall": recall(**SIZES),
    "published": pretrained(
        **SIZES, **BLOCKS, kv_heads=1, head_width=4, mlp_width=16, family="llama"
    ),
    "attention paths": attention_paths(heads=(2, 2), width=8),
}
MESH = AbstractMesh((1, 2, 2, 2), sharding.AXES, axis_types=(AxisType.Auto,) * 4)


def on_mesh(model, inputs, mesh=MESH):
    """Returns the shapes of a model's parameters, each with the sharding that its path gives."""
    shapes = jax.eval_shape(model.init, jax.random.key(0), inputs)["params"]
    return sharding.paths.map_with_path(
        lambda path, leaf: jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=sharding.parameter_sharding(path, leaf.shape, mesh)
        ),
        shapes,
    )


def constraints(function, *arguments):
    """Returns (shape, PartitionSpec) of each constraint in a traced program."""

    def inside(program):
        for step in program.eqns:
            if step.primitive.name == "sharding_constraint":
                yield step.outvars[0].aval.shape, step.params["sharding"].spec
            for inner in flops.inner_programs(step):
                yield from inside(inner)

    return [*inside(jax.jit(function).trace(*arguments).jaxpr.jaxpr)]


def inputs_of(model):
    return jnp.zeros((B, T, 2)) if model.spec.vocab_size == 0 else jnp.zeros((B, T), jnp.int32)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_splits_its_activations_along_the_batch_only(name):
    model = MODELS[name]
    inputs = inputs_of(model)
    params = on_mesh(model, inputs)
    program = constraints(lambda p, x: model.apply({"params": p}, x), params, inputs)
    points = [a for a in capture.names(model) if a.split("/")[-1] in SHARDINGS]
    assert len(program) >= (len(points) / (2 if name.startswith("scanned") else 1))
    for shape, spec in program:
        if len(shape) == 2:  # a table of embeddings
            continue
        assert spec[0] == (sharding.BATCH_AXES if shape[0] == B else None), (shape, spec)
        assert "data" not in spec[1:] and "fsdp" not in spec[1:]
    if name not in ("recall", "encoder"):  # heads are split over the tensor axis
        assert any(spec[2:3] == ("tensor",) for shape, spec in program if len(shape) == 4)


def test_captures_generation_and_evaluation_keep_the_layout():
    model, tokens = MODELS["decoder"], jnp.zeros((B, T), jnp.int32)
    params = on_mesh(model, tokens)
    paths = {
        "capture": lambda p: capture.capture(model, p, tokens, names=["block_0/states"]),
        "generation": lambda p: generate(model, p, tokens, new=2).tokens,
    }
    for name, function in paths.items():
        result = constraints(function, params)
        assert any(shape[0] == B and spec[0] == sharding.BATCH_AXES for shape, spec in result), name

    def evaluate(p, tokens):
        one = lambda x: model.apply({"params": p}, x[None])[0]  # noqa: E731
        return layouts.map_examples(one, tokens, 8, MESH)

    # 13 examples: two chunks of 8 with 3 copies of the last, two examples on each device.
    whole = jax.ShapeDtypeStruct((13, T), jnp.int32, sharding=NamedSharding(MESH, P()))
    result = constraints(evaluate, params, whole)
    assert ((8, 1, T, 8), P(sharding.BATCH_AXES, None, None, None)) in result
    assert jax.eval_shape(evaluate, params, whole).shape == (13, T, 8)


def test_one_device_has_no_constraint():
    model, tokens = MODELS["decoder"], jnp.zeros((B, T), jnp.int32)
    single = AbstractMesh((1, 1, 1, 1), sharding.AXES, axis_types=(AxisType.Auto,) * 4)
    for params in (on_mesh(model, tokens, single), model.init(jax.random.key(0), tokens)["params"]):
        assert not constraints(lambda p: model.apply({"params": p}, tokens), params)
