"""A training step computes the logits of a large vocabulary once, with their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.core import adapters
from jaxformer.core.adapters import Lora
from jaxformer.models.pretrained import tiny
from jaxformer.planning import hlo
from jaxformer.planning.operations import operations
from jaxformer.tasks import chunked_loss
from jaxformer.tasks.chunked_loss import DeferredLogits, deferred_logits
from jaxformer.tasks.known_derivative import with_derivative
from jaxformer.tasks.recall import noisy_metrics
from jaxformer.tasks.task import Batch, most_likely, token_metrics
from jaxformer.training.step import token_weighted
from tests.core.test_sharding import on_eight_devices
from tests.models.tiny_configs import CONFIGS

B, K, N, V = 3, 4, 8, 11
KEYS = jax.random.split(jax.random.key(0), 4)
H, KERNEL = jax.random.normal(KEYS[0], (B, K, N)), jax.random.normal(KEYS[1], (N, V))
TARGETS = jax.random.randint(KEYS[2], (B, K), 0, V)
WEIGHTS = {
    "some masked": jax.random.bernoulli(KEYS[3], 0.7, (B, K)) * 1.0,
    "one example masked": jnp.ones((B, K)).at[1].set(0),
    "all masked": jnp.zeros((B, K)),
    "unequal": jnp.linspace(0, 2, B * K).reshape(B, K),
}


def batch_with(weights):
    return Batch(TARGETS, TARGETS, weights)


def loss_of(logits, batch, metrics=token_metrics):
    return token_weighted(metrics(logits, batch)["loss"])


def one_pass(h, kernel, batch, chunk):
    logits = DeferredLogits(h, kernel, chunk)
    logits = with_derivative(logits, batch.targets, lambda logits: loss_of(logits, batch))
    assert logits.derivative_BxK is not None
    return loss_of(logits, batch)


@pytest.mark.parametrize("chunk", [5, 100])  # 5 divides neither 12 positions nor 11 tokens
@pytest.mark.parametrize("weights", list(WEIGHTS))
def test_loss_and_gradients_are_those_of_all_logits(weights, chunk):
    batch = batch_with(WEIGHTS[weights])
    got, want = (
        jax.jit(jax.value_and_grad(loss, (0, 1)))(H, KERNEL)
        for loss in (
            lambda h, kernel: one_pass(h, kernel, batch, chunk),
            lambda h, kernel: loss_of(h @ kernel, batch),
        )
    )
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert jnp.isfinite(a).all()
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ignored", [-100, V])
def test_positions_with_the_weight_0_may_have_targets_without_a_logit(ignored):
    """Data of transformers mark what is left out by -100; the loss was nan."""
    weights = WEIGHTS["some masked"]
    marked = Batch(TARGETS, jnp.where(weights > 0, TARGETS, ignored), weights)
    for kind in (one_pass, lambda h, kernel, batch, chunk: loss_of(h @ kernel, batch)):
        got, want = (
            jax.value_and_grad(kind, (0, 1))(H, KERNEL, batch, 5)
            for batch in (marked, batch_with(weights))
        )
        jax.tree.map(np.testing.assert_array_equal, got, want)


def test_a_loss_that_is_no_weighted_sum_of_nats_keeps_two_passes():
    """Its derivative depends on the nats, or on the nats of other tokens than the targets."""
    batch, deferred = batch_with(WEIGHTS["unequal"]), DeferredLogits(H, KERNEL, 5)

    def squared(logits):
        return (logits.scores(TARGETS, jnp.float32)[0] ** 2).sum()

    def of_other_tokens(logits):
        nats, others = (logits.scores(t, jnp.float32)[0] for t in (TARGETS, (TARGETS + 1) % V))
        return (nats - others).sum()

    def noisy(logits):
        return loss_of(logits, batch, lambda logits, batch: noisy_metrics(logits, batch, 3))

    for loss in (squared, of_other_tokens, noisy):
        assert with_derivative(deferred, TARGETS, loss).derivative_BxK is None, loss
    whole = H @ KERNEL
    assert with_derivative(whole, TARGETS, lambda logits: loss_of(logits, batch)) is whole


@pytest.mark.parametrize("times", [1, 2])
def test_a_loss_with_weights_by_the_answer_and_one_that_reads_nats_twice_keep_two_passes(times):
    """The first would take the derivative of wrong weights, the second twice the gradient."""
    batch = batch_with(WEIGHTS["unequal"])

    def wrong_answers_count_more(logits, batch):
        wrong_BxK = most_likely(logits, batch) != batch.targets
        return token_metrics(logits, batch._replace(weights=batch.weights * (1 + 3 * wrong_BxK)))

    def loss(logits):
        if times == 1:
            return loss_of(logits, batch, wrong_answers_count_more)
        return loss_of(logits, batch) + loss_of(logits, batch)

    def deferred(h, kernel):
        return loss(with_derivative(DeferredLogits(h, kernel, 5), batch.targets, loss))

    got, want = (
        jax.grad(f, (0, 1))(H, KERNEL) for f in (deferred, lambda h, kernel: loss(h @ kernel))
    )
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_answers_that_the_loss_does_not_read_leave_one_pass():
    """`in_context` of retrieval reads the most likely tokens, in a second call."""
    batch = batch_with(WEIGHTS["unequal"])

    def loss(logits):
        most_likely(logits, batch)
        return loss_of(logits, batch)

    deferred = with_derivative(DeferredLogits(H, KERNEL, 5), TARGETS, loss)
    assert deferred.derivative_BxK is not None


def test_logits_in_half_precision_have_nearly_the_gradients_of_float32():
    """Logits of a chunk are rounded, sums over the vocabulary and over positions are not."""
    keys = jax.random.split(jax.random.key(3), 3)
    h = jax.random.normal(keys[0], (4, 64, 32))
    kernel = jax.random.normal(keys[1], (32, 512)) * 32**-0.5
    targets = jax.random.randint(keys[2], (4, 64), 0, 512)
    batch = Batch(targets, targets, jnp.ones((4, 64)))

    def loss(h, kernel, dtype):
        return one_pass(h.astype(dtype), kernel, batch, 48)

    (half, half_gradients), (full, full_gradients) = (
        jax.jit(jax.value_and_grad(loss, (0, 1)), static_argnums=2)(h, kernel, dtype)
        for dtype in (jnp.bfloat16, jnp.float32)
    )
    assert abs(half / full - 1) < 1e-3
    for a, b in zip(half_gradients, full_gradients, strict=True):
        assert a.dtype == jnp.float32
        assert jnp.linalg.norm(a - b) < 0.01 * jnp.linalg.norm(b)


def products_of(function, *arguments):
    """The FLOPs of the matrix products in the compiled program of a function."""
    text = jax.jit(function).lower(*arguments).compile().as_text()
    return sum(step.times * step.flops for step in operations(hlo.parse(text)))


def test_the_compiled_head_has_three_products_and_two_if_its_kernel_is_frozen():
    batch = batch_with(WEIGHTS["unequal"])
    product = 2 * B * K * N * V

    def loss(h, kernel):
        return one_pass(h, kernel, batch, 4)

    assert products_of(jax.grad(loss, (0, 1)), H, KERNEL) == 3 * product
    assert products_of(jax.grad(loss), H, KERNEL) == 2 * product  # frozen kernel
    assert products_of(jax.grad(loss, 1), H, KERNEL) == 2 * product  # frozen blocks
    two_passes = DeferredLogits(H, KERNEL, 4)
    nats = lambda h, kernel: two_passes._replace(h_BxKxN=h, kernel_NxV=kernel)  # noqa: E731
    again = jax.grad(lambda h, kernel: loss_of(nats(h, kernel), batch), (0, 1))
    assert products_of(again, H, KERNEL) == 4 * product


def test_tied_embeddings_get_the_gradients_of_both_uses():
    model, params, _ = tiny.tiny(CONFIGS["gpt2"], 24)
    assert model.spec.tied
    tokens = jax.random.randint(jax.random.key(0), (2, 5), 0, 24)
    batch = Batch(tokens, tokens, jnp.ones((2, 5)))

    def late(params):
        logits = deferred_logits(model, params, (tokens, None), 3)
        logits = with_derivative(logits, tokens, lambda logits: loss_of(logits, batch))
        return loss_of(logits, batch)

    def whole(params):
        return loss_of(model.apply({"params": params}, tokens), batch)

    got, want = (jax.jit(jax.grad(loss))(params)["embed"]["embedding"] for loss in (late, whole))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def test_an_adapter_of_the_head_is_not_rounded_to_a_kernel_of_half_precision():
    """An update of 1/1000 of the kernel was lost in bfloat16."""
    model, params, _ = tiny.tiny(CONFIGS["llama"], 24)
    params = params | {
        "unembed": {"kernel": jnp.asarray(params["unembed"]["kernel"], jnp.bfloat16)}
    }
    tokens = jax.random.randint(jax.random.key(0), (2, 5), 0, 24)
    batch = Batch(tokens, tokens, jnp.ones((2, 5)))

    def late(params):
        return loss_of(deferred_logits(model, params, (tokens, None), 3), batch)

    def whole(params):
        return loss_of(model.apply({"params": params}, tokens), batch)

    added = adapters.add(params, {"unembed/kernel": Lora(2)}, jax.random.key(1))
    b = 3e-3 * jax.random.normal(jax.random.key(2), (2, 24))
    moved = added | {"unembed": added["unembed"] | {"lora_b": b}}
    changes = [float(loss(moved) - loss(added)) for loss in (late, whole)]
    assert changes[0] == pytest.approx(changes[1], rel=1e-2) and abs(changes[1]) > 1e-6
    got, want = (jax.jit(jax.grad(loss))(moved)["unembed"] for loss in (late, whole))
    for leaf in ("lora_a", "lora_b"):
        np.testing.assert_allclose(got[leaf], want[leaf], rtol=1e-4, atol=1e-7)


MESHES = """
import json
import jax, jax.numpy as jnp
from experiments.cli import flags
from jaxformer import build

losses = {}
for sizes in ({}, {"fsdp": 8}, {"data": 2, "fsdp": 2, "tensor": 2}):
    config = flags.load_config("configs/text/lm.py:scale=tiny")
    config.train.update(batch_size=16, throughput=False, loss_chunk=48, accumulate=2)
    config.model.update(width=16, mlp_width=32, heads=2, layers=1)
    config.devices.update({"data": 1, "fsdp": 1, "tensor": 1} | sizes)
    setup = build.phases(config)[0].setup
    feed, step = setup.batch_at(jnp.zeros(1, jnp.uint32)), jax.jit(setup.step())
    state, rows = setup.create(), []
    for i in range(3):
        state, metrics = step(state, feed(i))
        rows.append([float(metrics["loss"][0]), float(metrics["gradient_norm"][0])])
    losses[str(sizes)] = rows
print("RESULT" + json.dumps(losses))
"""


@pytest.mark.slow  # compiles three steps
def test_meshes_agree_with_one_device():
    one, *others = on_eight_devices(MESHES).values()
    for many in others:
        np.testing.assert_allclose(many, one, rtol=1e-5)


def test_a_gpu_sums_exponentials_in_one_pass_with_the_same_result(monkeypatch):
    logits = jnp.concatenate(
        [30 * jax.random.normal(KEYS[0], (5, 1001)), jnp.full((5, 3), -1e30)], 1
    )
    want = jax.nn.logsumexp(logits, -1)
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda x, *, cuda, default: jax.jit(cuda)(x))
    np.testing.assert_allclose(chunked_loss._logsumexp(logits), want, rtol=1e-6)
