"""Our decoder with the authors' presets has the numbers of the authors' Llama file.

authors_llama.json holds what their PyTorch code computes (tests/authors_llama.py made it): logits,
and one step of AdamW with its clip, for each variant and for depth_alpha zero or not. What is left
different: their generator of random numbers, and a warm-up whose first step has learning rate 0.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.cli import flags
from jaxformer.core import optim
from jaxformer.core.partition import Partition
from jaxformer.core.paths import flatten
from jaxformer.models import attention
from jaxformer.models.decoder import decoder
from tests import authors_llama as theirs

FOUND = json.loads((Path(__file__).parent / "reference/authors_llama.json").read_text())
TOLERANCE = 1e-5  # relative; a few of their constants are float32
SIZES = theirs.SIZES


def built(variant, preset, **changed):
    """Returns (model, partition) of a preset, at the sizes of the fixture."""
    config = flags.load_config(f"configs/mixit/retrieval.py:variant={variant},preset={preset}")
    fields = {name: value for name, value in config.model.items() if name != "name"}
    fields |= {"width": SIZES["width"], "mlp_width": 4 * SIZES["width"], "heads": SIZES["heads"]}
    fields |= {"layers": SIZES["layers"], "vocab_size": SIZES["vocab"], "length": SIZES["length"]}
    fields |= {"base_layers": theirs.BASES["base_layers"], "dtype": float, "param_dtype": float}
    fields |= {name: float(fields[name]) for name in ("init_std", "qk_init_std")}
    return decoder(**fields | changed), Partition(config.partition)


def parameters(model, preset):
    """Returns the parameters with the numbers of the formulas, and their mixing matrices."""
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), jnp.zeros((1, 1), int))["params"])
    values = {path: theirs.weight(path, leaf.shape) for path, leaf in flatten(shapes).items()}
    for path in values:
        if path.endswith("/mix"):
            layer = int(path.split("/")[0].removeprefix("block_"))
            values[path] = np.array(FOUND["mixing"][preset][layer])
    paths = [*flatten(shapes)]
    leaves = dict(zip(paths, jax.tree.leaves(shapes), strict=True))
    assert all(values[path].shape == leaf.shape for path, leaf in leaves.items())
    return jax.tree.unflatten(
        jax.tree.structure(shapes), [jnp.asarray(values[path]) for path in leaves]
    )


def close(ours, expected):
    return np.testing.assert_allclose(ours, expected, rtol=TOLERANCE, atol=1e-7)


EVERY = [(variant, preset) for preset in ("authors", "authors_deep") for variant in theirs.VARIANTS]
FIRST = [("standard", "authors"), ("mixit", "authors"), ("mixit", "authors_deep")]


@pytest.mark.parametrize(
    "variant, preset",
    [pytest.param(*case, marks=[pytest.mark.slow] * (case not in FIRST)) for case in EVERY],
)
def test_a_step_is_that_of_their_llama_file(variant, preset):
    with jax.enable_x64(True):
        model, partition = built(variant, preset)
        params, case = parameters(model, preset), FOUND["cases"][f"{variant}, {preset}"]
        inputs, targets = map(jnp.asarray, theirs.tokens())
        trainable, frozen = partition.split(params)

        def loss_of(trainable):
            logits = model.apply({"params": Partition.merge(trainable, frozen)}, inputs)
            logp = jax.nn.log_softmax(logits)
            return -jnp.take_along_axis(logp, targets[..., None], -1).mean(), logits

        step = jax.jit(jax.value_and_grad(loss_of, has_aux=True))
        (loss, logits), gradient = step(trainable)
        close(logits, case["logits"])
        close(loss, case["loss"])
        norm = jnp.sqrt(sum((leaf**2).sum() for leaf in jax.tree.leaves(gradient)))
        close(norm, case["gradient_norm"])
        adamw = {"train": optim.AdamW(weight_decay=theirs.STEP["weight_decay"])}
        flat = optim.schedule("constant", 1, 0)
        tx = optim.optimizer(partition, adamw, theirs.STEP["clip"], flat)
        rate = theirs.STEP["learning_rate"]

        @jax.jit
        def updated(trainable):
            update, _ = tx.update(gradient, tx.init(trainable), trainable)
            trainable = jax.tree.map(lambda p, u: p + rate * u, trainable, update)
            after = flatten(Partition.merge(trainable, frozen))
            return trainable, {
                path: (leaf**2).sum() for path, leaf in after.items() if "/mix" not in path
            }

        trainable, squares = updated(trainable)
        close(step(trainable)[0][0], case["loss_after"])
        assert {*squares} == {*case["squares_after"]}
        for path, expected in case["squares_after"].items():
            np.testing.assert_allclose(squares[path], expected, rtol=TOLERANCE, err_msg=path)


@pytest.mark.parametrize("preset, scale", [("authors", "spread"), ("authors_deep", "token")])
def test_the_mixing_matrices_are_those_of_their_constructor(preset, scale):
    model, _ = built("mixit", preset)
    spec, m = model.spec, SIZES["length"]
    assert spec.mixing_scale == scale and spec.mixing_identity == (preset == "authors")
    low, high = (m * SIZES["width"] // SIZES["heads"]) ** -0.5, m**-0.5
    for layer in range(SIZES["layers"]):
        noise, uniform = theirs.noise(layer)
        std = low + uniform * (high - low) if preset == "authors" else high
        mix = attention.centred_mixing(jnp.asarray(std * noise), identity=spec.mixing_identity)
        mix = mix.at[0].set(attention.sink_mixing(m))
        np.testing.assert_allclose(mix, FOUND["mixing"][preset][layer], atol=2e-7)
    drawn = attention.mixing_std(jax.random.key(0), scale, 400, m, 400 * SIZES["width"] // 2)
    assert (drawn >= 0.999 * (low if preset == "authors" else high)).all()
    assert drawn.max() <= 1.001 * high
    assert (drawn.max() - drawn.min() > 0.9 * (high - low)) == (preset == "authors")


@pytest.mark.parametrize(
    "variant, preset, changed",
    [
        ("mixit", "authors", {"residual_scale": 1.0}),
        ("mixit", "authors", {"branch_scale": 0.5**0.5 / 3}),  # both branches of theirs at once
        pytest.param("mixit", "authors", {"base_mlp_width": 0.0}, marks=pytest.mark.slow),
        pytest.param("mixit", "authors_deep", {"base_layers": 1}, marks=pytest.mark.slow),
        pytest.param("mixit", "authors", {"act": "silu"}, marks=pytest.mark.slow),
        pytest.param("standard", "authors", {"branch_scale": 1 / 3}, marks=pytest.mark.slow),
        ("standard", "authors_deep", {"depth_alpha": 0.0}),
    ],
)
def test_another_preset_would_be_seen(variant, preset, changed):
    with jax.enable_x64(True):
        model, _ = built(variant, preset, **changed)
        inputs, _ = map(jnp.asarray, theirs.tokens())
        logits = jax.jit(model.apply)({"params": parameters(model, preset)}, inputs)
    case = FOUND["cases"][f"{variant}, {preset}"]
    assert np.abs(np.asarray(logits) - np.asarray(case["logits"])).max() > 0.01
