"""Losses in chunks have the same values and gradients as with all logits, and need less memory."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.cli import flags
from jaxformer import build
from jaxformer.core.errors import UserError
from jaxformer.models.pretrained import tiny
from jaxformer.tasks.chunked_loss import DeferredLogits, check_head, deferred_logits
from jaxformer.tasks.recall import noisy_metrics
from jaxformer.tasks.retrieval import Retrieval
from jaxformer.tasks.task import Batch, token_metrics
from jaxformer.training.cost import flops, memory
from tests.models.tiny_configs import CONFIGS

TINY = "configs/text/lm.py:scale=tiny"


def built(**train):
    config = flags.load_config(TINY)
    config.train.update(batch_size=4, throughput=False, **train)
    config.model.update(width=16, mlp_width=16, layers=1)
    return build.phases(config)[0].setup


@pytest.mark.parametrize("chunk", [1, 7, 12, 100])
def test_scores_and_gradients_are_those_of_all_logits(chunk):
    keys = jax.random.split(jax.random.key(0), 4)
    h, kernel = jax.random.normal(keys[0], (3, 4, 5)), jax.random.normal(keys[1], (5, 11))
    targets = jax.random.randint(keys[2], (3, 4), 0, 11)
    batch = Batch(targets, targets, jax.random.bernoulli(keys[3], 0.7, (3, 4)) * 1.0)

    def scores(late, h, kernel):
        logits = DeferredLogits(h, kernel, chunk) if late else h @ kernel
        assert logits.shape == (3, 4, 11)
        result = token_metrics(logits, batch)
        return (result["loss"].value * result["loss"].weight).sum(), result

    one, two = (
        jax.jit(jax.value_and_grad(scores, (1, 2), has_aux=True), static_argnums=0)(late, h, kernel)
        for late in (True, False)
    )
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_the_gradient_of_a_head_in_half_precision_is_summed_in_float32():
    """1,024 chunks of one position, each with the gradient (-.5, .5)."""
    h = jnp.ones((4, 256, 1), jnp.bfloat16)
    targets = jnp.zeros((4, 256), int)

    def nats(kernel):
        return DeferredLogits(h, kernel, 1).scores(targets, jnp.float32)[0].sum()

    gradient = jax.jit(jax.grad(nats))(jnp.zeros((1, 2), jnp.bfloat16))
    assert gradient.dtype == jnp.bfloat16 and gradient.tolist() == [[-512, 512]]


def test_tasks_with_scores_of_their_own_have_them_too():
    """Retrieval needs the guess, and recall needs probabilities."""
    keys = jax.random.split(jax.random.key(1), 2)
    h, kernel = jax.random.normal(keys[0], (5, 9, 4)), jax.random.normal(keys[1], (4, 16))
    retrieval = Retrieval(max_pairs=4, vocab=16)
    one = jax.vmap(retrieval.example)(jax.random.split(keys[0], 5), jnp.arange(5))
    for metrics in (retrieval.metrics, lambda logits, batch: noisy_metrics(logits, batch, 3)):
        deferred = jax.jit(lambda: metrics(DeferredLogits(h, kernel, 7), one))  # noqa: B023
        late, whole = deferred(), jax.jit(lambda: metrics(h @ kernel, one))()  # noqa: B023
        for a, b in zip(jax.tree.leaves(late), jax.tree.leaves(whole), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_step_in_chunks_is_the_step():
    whole, parts = built(), built(loss_chunk=32)
    feed = whole.batch_at(jnp.zeros(1, jnp.uint32))
    for setup in (whole, parts):
        state, metrics = jax.jit(setup.step())(setup.create(), feed(0))
        if setup is whole:
            expected = metrics["loss"], state.trainable
    np.testing.assert_allclose(metrics["loss"], expected[0], rtol=1e-6)
    for a, b in zip(jax.tree.leaves(state.trainable), jax.tree.leaves(expected[1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_no_chunk_of_the_program_is_as_large_as_all_logits():
    setup = built(loss_chunk=32)
    state, batch = jax.eval_shape(setup.create), memory.batch_shapes(setup)
    program = jax.make_jaxpr(setup.step())(state, batch)
    logits = batch.targets.size * setup.task.vocab_size
    full = jax.make_jaxpr(built().step())(state, batch)
    largest = [
        max(v.aval.size for v in everything(one.jaxpr) if v.aval.shape[-1:] == (66,))
        for one in (program, full)
    ]
    assert largest[0] < logits / 3 and largest[1] == logits


def everything(program):
    """Returns the shapes of all arrays of a program and its inner programs."""
    for step in program.eqns:
        yield from step.outvars
        for inside in flops.inner_programs(step):
            yield from everything(inside)


def test_a_model_without_a_head_of_its_own_is_refused():
    with pytest.raises(UserError, match=r"loss_chunk needs .* takes no head=False"):
        config = flags.load_config("configs/two_failure_modes/fig4_entropy.py:scale=tiny")
        config.train.update(loss_chunk=8, probes=())
        build.phases(config)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_published_model_has_the_scores_of_all_its_logits(kind):
    """Its unembedding is a separate kernel, or the transposed embedding."""
    model, params, _ = tiny.tiny(CONFIGS[kind], 24)
    tokens = jax.random.randint(jax.random.key(0), (2, 5), 0, 24)
    positions = jnp.array([[0, 2, 4], [1, 2, 3]])
    batch = Batch(tokens, tokens[:, :3], jnp.ones((2, 3)))
    check_head(model)

    @jax.jit
    def both(params):
        late = deferred_logits(model, params, (tokens, positions), 2)
        whole = model.apply({"params": params}, tokens, positions)
        assert late.shape == whole.shape
        return token_metrics(late, batch), token_metrics(whole, batch)

    late, whole = both(params)
    for a, b in zip(jax.tree.leaves(late), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_head_that_is_not_linear_is_refused():
    spec = SimpleNamespace(tied=True, family="gemma2", logit_cap=30.0)
    with pytest.raises(UserError, match="SimpleNamespace has a cap of the logits after its last"):
        check_head(SimpleNamespace(spec=spec, __call__=lambda tokens: tokens))


def test_products_are_counted_with_their_loops():
    def f(a, b):
        c = jax.lax.map(lambda row: row @ b, a)  # 3 x (4 x 5)
        return jax.lax.cond(c.sum() > 0, lambda: c @ b.T, lambda: a) @ b  # 3x4x5, then 3x4x5

    a, b = jnp.ones((3, 4)), jnp.ones((4, 5))
    assert flops.matmul_flops(f, a, b) == 2 * (3 * 4 * 5) * 3
    n = 2 * 3 * 4 * 5
    assert flops.matmul_flops(jax.grad(lambda a, b: (a @ b).sum(), (0, 1)), a, b) == 3 * n
    assert flops.matmul_flops(jax.grad(lambda b, a: (a @ b).sum()), b, a) == 2 * n


@pytest.mark.slow
def test_frozen_queries_and_keys_cost_less():
    """The FLOPs allow 1.0 to 1.1 of the papers' 1.24 and 1.32."""
    counts = {}
    for variant in ("standard", "frozen_qk", "mixit"):
        setup = build.phases(flags.load_config(f"configs/text/lm.py:variant={variant}"))[0].setup
        state, batch = jax.eval_shape(setup.create), memory.batch_shapes(setup)
        counts[variant] = flops.matmul_flops(setup.step(), state, batch)
    assert 1.0 < counts["standard"] / counts["frozen_qk"] < 1.1
    assert 1.0 < counts["frozen_qk"] / counts["mixit"] < 1.2
