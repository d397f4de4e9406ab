"""A training step keeps frozen bits, computes no frozen gradient, and stops diverging members."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from jaxformer.core import optim
from jaxformer.core.errors import UserError
from jaxformer.core.partition import Partition
from jaxformer.models.decoder import decoder
from jaxformer.models.encoder import encoder
from jaxformer.models.recall import recall
from jaxformer.tasks.source import Source
from jaxformer.training import random_kernel, setup, step
from jaxformer.training.population import Population
from jaxformer.training.step import create, make_evaluate, make_step
from tests.optimised import optimised
from tests.training.tiny import BATCH_SIZE, TASK, network

STANDARD = Partition([(".*", "train")])
FROZEN_QK = Partition([(".*/(query|key)/.*", "frozen"), (".*", "train")])
SOURCE = Source(TASK, jax.random.key(5), BATCH_SIZE, 0, 16, 16)


@partial(jax.jit, static_argnums=0)
def batch_of(members, step=0):
    keys = jax.random.split(jax.random.key(1), members)
    avoid = jnp.zeros(1, jnp.uint32)
    return jax.vmap(lambda key: SOURCE.batch_at(key, step, avoid))(keys)


def population(partition, rates, clip=1.0, decay=0.1, member_loop="vmap", **sizes):
    """Returns the initial state, the step and the function of a model with these rates."""
    model, spec = network(**sizes), optim.AdamW(weight_decay=decay)
    tx = optim.optimizer(partition, {"train": spec}, clip, optim.schedule("constant", 10, 0))

    def init(key):
        return model.init(key, jnp.zeros((1, 1), int))["params"]

    def apply(params, tokens, positions):
        return model.apply({"params": params}, tokens, positions)

    state = create(init, partition, tx, Population((0,), tuple(rates)))
    return state, make_step(apply, TASK, tx, member_loop), apply


def test_one_gpu_draws_by_a_kernel_and_a_mesh_does_not(monkeypatch):
    """The kernel compiles nine times faster, but XLA cannot split it over devices."""
    seen, before = [], getattr(jax.config, random_kernel.KERNEL_FLAG)
    monkeypatch.setattr(
        setup, "create", lambda *parts: seen.append(getattr(jax.config, random_kernel.KERNEL_FLAG))
    )
    for devices in (1, 8):
        mesh = SimpleNamespace(size=devices)
        parts = dict.fromkeys(setup.Setup._fields) | {"mesh": mesh}
        setup.Setup(**parts).create()
    assert seen == [True, False] and getattr(jax.config, random_kernel.KERNEL_FLAG) == before


def test_seeds_share_the_program_of_the_initial_state(tmp_path):
    """A program that the compilation cache holds for one seed serves the others."""
    tx = optim.optimizer(STANDARD, {"train": optim.AdamW()}, 1.0, optim.schedule("constant", 10, 0))
    folder = jax.config.jax_compilation_cache_dir
    compilation_cache.reset_cache()
    try:
        jax.config.update("jax_compilation_cache_dir", str(tmp_path))
        programs = []
        for seed in (0, 1):
            create(
                lambda key: {"w": jax.random.normal(key, (3,))},
                STANDARD,
                tx,
                Population((seed,), (1.0,)),
            )
            programs.append(len(list(tmp_path.glob("*-cache"))))
    finally:
        compilation_cache.reset_cache()
        jax.config.update("jax_compilation_cache_dir", folder)
    assert programs[0] == programs[1] > 0


def test_frozen_leaves_keep_their_bits_and_the_others_move():
    state, step, _ = population(FROZEN_QK, [1e-2, 1e-2])
    before = jax.device_get(state)
    step = jax.jit(step)
    for i in range(3):
        state, _ = step(state, batch_of(2, i))
    jax.tree.map(np.testing.assert_array_equal, before.frozen, jax.device_get(state.frozen))
    assert len(jax.tree.leaves(before.frozen)) == 4
    for old, new in zip(
        jax.tree.leaves(before.trainable), jax.tree.leaves(state.trainable), strict=True
    ):
        assert (old != np.asarray(new)).any()
    # Neither does a frozen leaf have a moment: only count, mu and nu of the trainable ones.
    moments = [leaf for leaf in jax.tree.leaves(state.opt_state) if leaf.ndim > 1]
    assert len(moments) == 2 * len(jax.tree.leaves(before.trainable))


def test_the_gradient_norm_and_the_clip_do_not_see_frozen_leaves():
    """The norm is that of the trainable half, computed by hand from full gradients."""
    state, step, apply = population(FROZEN_QK, [1e-2], layers=1)
    batch = batch_of(1)
    _, metrics = jax.jit(step)(state, batch)

    def loss(params):
        logits = apply(params, batch.inputs[0], None)
        nats = -jax.nn.log_softmax(logits)
        picked = jnp.take_along_axis(nats, batch.targets[0][..., None], -1)[..., 0]
        return (picked * batch.weights[0]).sum() / batch.weights[0].sum()

    whole = jax.tree.map(lambda x: x[0], Partition.merge(state.trainable, state.frozen))
    value, gradient = jax.jit(jax.value_and_grad(loss))(whole)
    trainable, frozen = FROZEN_QK.split(gradient)
    norm = lambda tree: jnp.sqrt(sum((g**2).sum() for g in jax.tree.leaves(tree)))  # noqa: E731
    np.testing.assert_allclose(metrics["gradient_norm"][0], norm(trainable), rtol=1e-5)
    np.testing.assert_allclose(metrics["loss"][0], value, rtol=1e-5)
    assert norm(frozen) > 1e-3  # it would have been seen


def flops(partition, width=32):
    state, step, _ = population(partition, [1e-2], width=width, mlp_width=4 * width)
    return jax.jit(step).lower(state, batch_of(1)).compile().cost_analysis()["flops"]


@pytest.mark.slow
def test_frozen_qk_saves_the_cost_of_its_weight_gradients():
    """dW = x^T dy costs 2 B T n^2 for each of two matrices in two layers (norms are logged too)."""
    width, tokens = 32, 8 * 7
    last_query_tokens = 8  # the last layer has queries at the scored position only
    analytic = 2 * width**2 * (3 * tokens + last_query_tokens)
    with optimised():  # the claim is about the program that users run
        saved = flops(STANDARD) - flops(FROZEN_QK)
    assert saved >= 0.8 * analytic


@pytest.mark.parametrize("member_loop", ["vmap", "map"])
def test_a_diverging_member_keeps_its_last_good_state_and_stops_alone(member_loop):
    options = {"clip": 0.0, "member_loop": member_loop, "layers": 1}
    state, step, _ = population(STANDARD, [1e-2, 1e30], **options)
    step = jax.jit(step)
    for i in range(6):
        state, metrics = step(state, batch_of(2, i))
    assert state.diverged_at[0] == -1 and 0 < state.diverged_at[1] < 6
    assert np.isfinite(metrics["loss"][0])
    assert all(np.isfinite(leaf[0]).all() for leaf in jax.tree.leaves(state.trainable))
    frozen_now = jax.tree.map(lambda x: np.asarray(x[1]), state.trainable)
    later, _ = step(state, batch_of(2, 9))
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[1]), frozen_now, later.trainable)
    assert int(later.step) == 7


def test_members_side_by_side_and_in_turn_agree_with_one_alone():
    losses = {}
    for how, rates in [("vmap", [1e-2, 3e-2]), ("map", [1e-2, 3e-2]), ("alone", [1e-2])]:
        loop = "map" if how == "map" else "vmap"
        state, step, _ = population(STANDARD, rates, member_loop=loop, layers=1)
        step = jax.jit(step)
        for i in range(3):
            batch = jax.tree.map(lambda x: x[: len(rates)], batch_of(2, i))  # noqa: B023
            state, metrics = step(state, batch)
        losses[how] = float(metrics["loss"][0])
    np.testing.assert_allclose([losses["vmap"], losses["map"]], losses["alone"], rtol=1e-5)


def test_evaluation_scores_every_example_of_every_member():
    state, _, apply = population(STANDARD, [1e-2, 1e-2], layers=1)
    test = SOURCE.heldout().test
    scores = make_evaluate(apply, TASK, 5)(state.trainable, state.frozen, test)
    assert scores["loss"].value.shape == (2, 16)
    whole = make_evaluate(apply, TASK, 16)(state.trainable, state.frozen, test)
    np.testing.assert_allclose(scores["loss"].value, whole["loss"].value, rtol=1e-5)


def test_unknown_way_to_compute_members():
    with pytest.raises(UserError, match="Did you mean 'vmap'"):
        population(STANDARD, [1.0], member_loop="vmpa")


@pytest.mark.slow  # says something with XLA's optimisations only, as in `make test-all`
@pytest.mark.parametrize("name", ["decoder", "mixit", "encoder", "recall"])
def test_what_is_quick_to_compile_draws_the_same_bits(name, monkeypatch):
    sizes = dict(vocab_size=11, length=6)
    models = {
        "decoder": decoder(**sizes, width=24, layers=2, heads=2, mlp_width=40),
        "mixit": decoder(**sizes, width=24, layers=1, heads=2, mlp_width=8, mixer="mixit"),
        "encoder": encoder(**sizes, width=24, layers=2, heads=2, beta=1.0),
        "recall": recall(**sizes, width=24, feed_forward=("mlp", "linear")),
    }
    model, tx = models[name], optax.sgd(0.1)

    def init(key):
        return model.init(key, jnp.zeros((1, 6), jnp.int32))["params"]

    everything, members = Partition(((".*", "train"),)), Population((0, 3, 8), (1e-3,))
    quick = create(init, everything, tx, members)
    monkeypatch.setattr(step, "MAX_QUICK_NUMBERS", 0)
    usual = create(init, everything, tx, members)
    jax.tree.map(np.testing.assert_array_equal, quick, usual)
