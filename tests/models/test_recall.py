"""The recall model: equations, paths, and the restriction to scored positions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from jaxformer.core.errors import UserError
from jaxformer.models.recall import Recall, RecallSpec

SPEC = {"vocab_size": 7, "length": 9, "width": 8}
VARIANTS = {
    "paper": {"factored_values": False, "scale_scores": False},
    "authors": {},
    "linear": {"feed_forward": ("linear_relu", "linear")},
    "single_mlp": {"feed_forward": ("none", "none", "mlp"), "factored_keys": True},
    "rotary": {"positions": "rotary", "factored_keys": True, "parallel": True},
    "tied": {"positions": "sin_cos", "tie_output": True, "parallel": True},
}
TOKENS = jax.random.randint(jax.random.key(0), (3, 9), 0, 7)
POSITIONS = jnp.array([[1, 4, 8], [0, 0, 2], [8, 7, 3]])


# The other variants share the code of the last layer and are slow tests.
QUICK = ("paper", "authors", "rotary")
CHOICES = [v if v in QUICK else pytest.param(v, marks=pytest.mark.slow) for v in VARIANTS]


@pytest.fixture(scope="module", params=CHOICES)
def fitted(request):
    model = Recall(RecallSpec(**SPEC, **VARIANTS[request.param]))
    return model, model.init(jax.random.key(1), TOKENS)["params"]


def test_gathered_positions_give_the_full_loss_and_gradient(fitted):
    model, params = fitted
    weights = jax.random.uniform(jax.random.key(2), POSITIONS.shape)

    def gathered(params):
        logits = model.apply({"params": params}, TOKENS, POSITIONS)
        return (weights * jax.nn.log_softmax(logits)[..., 2]).sum()

    def full(params):
        logits = jax.nn.log_softmax(model.apply({"params": params}, TOKENS))[..., 2]
        return (weights * jnp.take_along_axis(logits, POSITIONS, 1)).sum()

    (value, gradient), (whole, expected) = (
        jax.jit(jax.value_and_grad(f))(params) for f in (gathered, full)
    )
    np.testing.assert_allclose(value, whole, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), gradient, expected)


def test_no_token_sees_the_future(fitted):
    model, params = fitted
    changed = TOKENS.at[:, 5].set((TOKENS[:, 5] + 1) % 7)
    a, b = (model.apply({"params": params}, tokens) for tokens in (TOKENS, changed))
    np.testing.assert_array_equal(a[:, :5], b[:, :5])
    assert jnp.abs(a[:, 5:] - b[:, 5:]).max() > 1e-3


def test_the_logits_follow_the_equations():
    model = Recall(RecallSpec(**SPEC))
    params = model.init(jax.random.key(1), TOKENS)["params"]
    p = {"/".join(k): np.asarray(v, float) for k, v in flatten_dict(params).items()}
    x = p["embed/embedding"][np.asarray(TOKENS[0])] + p["positions/embedding"]
    for block in ("block_0", "block_1"):
        out = np.zeros_like(x)
        for t in range(9):
            score = [x[t] @ p[f"{block}/attn/key/kernel"].T @ x[s] / 8**0.5 for s in range(t + 1)]
            a = np.exp(score - np.max(score))
            value = (a / a.sum()) @ x[: t + 1] @ p[f"{block}/attn/value/kernel"]
            out[t] = x[t] + value @ p[f"{block}/attn/out/kernel"]
        hidden = np.maximum(out @ p[f"{block}/mlp/in/kernel"], 0)
        x = out + hidden @ p[f"{block}/mlp/out/kernel"]
    logits = model.apply({"params": params}, TOKENS)[0]
    np.testing.assert_allclose(logits, x @ p["unembed/kernel"], rtol=1e-4, atol=1e-4)


def test_paths_and_initial_scales():
    spec = RecallSpec(vocab_size=50, length=40, width=64, feed_forward=("linear", "mlp"))
    params = Recall(spec).init(jax.random.key(0), TOKENS)["params"]
    shapes = {"/".join(k): v.shape for k, v in flatten_dict(params).items()}
    attn = {f"block_{i}/attn/{n}/kernel": (64, 64) for i in (0, 1) for n in ("key", "value", "out")}
    assert shapes == attn | {
        "embed/embedding": (50, 64),
        "positions/embedding": (40, 64),
        "unembed/kernel": (64, 50),
        "block_0/mlp/in/kernel": (64, 64),
        "block_1/mlp/in/kernel": (64, 256),
        "block_1/mlp/out/kernel": (256, 64),
    }
    for name, bound in (("in", 1 / 8), ("out", 1 / 16)):
        kernel = params["block_1"]["mlp"][name]["kernel"]
        assert 0.98 * bound < jnp.abs(kernel).max() <= bound
        np.testing.assert_allclose(kernel.std(), bound / 3**0.5, rtol=0.03)
    np.testing.assert_allclose(params["embed"]["embedding"].std(), 1, rtol=0.05)
    np.testing.assert_allclose(params["positions"]["embedding"].std(), 1, rtol=0.05)


def test_captured_attention_weights_are_causal_probabilities():
    model = Recall(RecallSpec(**SPEC))
    params = model.init(jax.random.key(1), TOKENS)
    _, state = model.apply({"params": params["params"]}, TOKENS, mutable=["intermediates"])
    for block in ("block_0", "block_1"):
        weights = state["intermediates"][block]["attn"]["weights"]
        np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
        np.testing.assert_array_equal(jnp.triu(weights, 1), 0)


def test_impossible_fields_and_too_long_sequences_raise_one_line_errors():
    bad = {
        "Did you mean 'linear'": {"feed_forward": ("lineer",)},
        r"an F for each layer, .* got \(\)": {"feed_forward": ()},
        "an F for each layer, .* got 'mlp'": {"feed_forward": "mlp"},
        "Did you mean 'rotary'": {"positions": "rotery"},
        "even width": {"positions": "rotary", "width": 7},
        "width must be at least 1": {"width": 0},
    }
    for message, change in bad.items():
        with pytest.raises(UserError, match=message):
            RecallSpec(**(SPEC | change))
    with pytest.raises(UserError, match="at most 9 tokens, got"):
        Recall(RecallSpec(**SPEC)).init(jax.random.key(0), jnp.zeros((1, 10), int))


# The loss of the authors' variant on fixed tokens. A change means another initialisation or forward
# pass, so that earlier records describe a different model.
GOLDEN = 2.225293


def test_golden_number():
    model = Recall(RecallSpec(**SPEC))
    params = jax.jit(model.init)(jax.random.key(1), TOKENS)["params"]
    nats = -jax.nn.log_softmax(model.apply({"params": params}, TOKENS))[:, :-1]
    loss = jnp.take_along_axis(nats, TOKENS[:, 1:, None], axis=-1).mean()
    np.testing.assert_allclose(loss, GOLDEN, rtol=1e-4)
