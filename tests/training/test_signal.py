"""The signal by layer of networks whose signal is known exactly, and its rows in a run."""

import contextlib
import io
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxformer
from experiments.ledger import curves
from jaxformer.core.errors import UserError
from jaxformer.core.paths import flatten, unflatten
from jaxformer.core.settings import DataSettings, TrainSettings
from jaxformer.models.encoder import encoder
from jaxformer.models.recall import recall
from jaxformer.training import ranges, signal
from tests.training.tiny import TASK, network

SIZES = DataSettings(test_size=40, validation_size=40)
SHORT = dict(steps=20, eval_every=10, batch_size=8, data=SIZES, progress=False, log_every=10)


SHARP = network(qk_init_std=2.0, layers=1)


def cosine_of(x_BxTxN):
    unit = x_BxTxN / np.linalg.norm(x_BxTxN, axis=-1, keepdims=True)
    pairs = unit @ np.swapaxes(unit, 1, 2)
    T = pairs.shape[-1]
    return np.mean([one[~np.eye(T, dtype=bool)].mean() for one in pairs])


def test_blocks_that_add_nothing_leave_the_signal_unchanged():
    """Cosines stay, each attention row is uniform, and the gradient is constant."""
    model, tokens = network(), jnp.arange(24).reshape(3, 8) % 16
    params = model.init(jax.random.key(0), tokens)["params"]
    still = {p: x * (not p.endswith("kernel")) for p, x in flatten(params).items()}
    result = jax.jit(lambda p: signal.by_layer(model, p, tokens))(unflatten(still))
    embedded = np.asarray(params["embed"]["embedding"])[np.asarray(tokens)]
    np.testing.assert_allclose(result.cosine, np.full(3, cosine_of(embedded)), atol=1e-6)
    even = np.exp(np.log(np.arange(1, 9)).mean())
    np.testing.assert_allclose(result.keys, np.full(2, even), rtol=1e-5)
    np.testing.assert_allclose(result.beta, np.zeros(2), atol=1e-3)
    np.testing.assert_allclose(result.gradient, np.ones(3), rtol=1e-6)


def test_tokens_may_be_numpy_arrays():
    signal.check(network(), np.zeros((2, 8), np.int64))


@pytest.mark.slow
def test_the_signal_of_a_random_encoder_equals_a_direct_computation():
    """The direct one uses captured activations and forward-mode derivatives."""
    model = encoder(vocab_size=0, length=5, width=8, layers=1, heads=2, beta=1.5, sigma_v2=1.0)
    with jax.enable_x64(True):
        inputs = jax.random.normal(jax.random.key(0), (2, 5, 8), float)
        params = model.init(jax.random.key(1), inputs)["params"]
        result = signal.by_layer(model, params, inputs)
        names = ["block_0/before", "block_0/states", "block_0/attn/weights"]
        kept = jaxformer.capture.capture(model, params, inputs, names=names)
        first, last, rows = (np.asarray(kept[name]) for name in names)
        draws = jax.random.split(jax.random.key(1), 2)
        direction = jnp.stack([jax.random.normal(key, (5, 8), float) for key in draws])

        def loss(x):
            edits = {"block_0/before": x}
            return jnp.sum(direction * jaxformer.capture.intervene(model, params, inputs, edits))

        slopes = jax.jacfwd(loss)(first)
    np.testing.assert_allclose(result.cosine, [cosine_of(first), cosine_of(last)], rtol=1e-9)
    entropy = -(rows * np.log(rows)).sum(-1).mean()
    np.testing.assert_allclose(result.keys, [np.exp(entropy)], rtol=1e-9)
    spread = np.log(rows).var(-1, ddof=1).mean()
    np.testing.assert_allclose(result.beta, [(spread / np.log(5)) ** 0.5], rtol=1e-9)
    size = [np.sqrt(np.mean(np.square(d))) for d in (slopes, direction)]
    np.testing.assert_allclose(result.gradient, [size[0] / size[1], 1], rtol=1e-6)


def test_models_without_a_signal_are_refused_in_one_line():
    tokens = jnp.zeros((2, 4), int)
    memory = recall(vocab_size=16, length=4, width=8)
    for model, inputs, message in (
        (network(mixer="mixit"), tokens, "needs softmax attention; Decoder has 'mixit'"),
        (network(), tokens[:, :1], "two tokens or more"),
        (memory, tokens, "Recall"),
    ):
        with pytest.raises(UserError, match=message) as error:
            signal.check(model, inputs)
        assert "\n" not in str(error.value)
    with pytest.raises(UserError, match=r"^signal .* needs eval_every"):
        TrainSettings(signal=True, eval_every=0)


def test_values_outside_of_their_range_are_reported():
    good = dict(cosine=[1.0, 0.5, 0.9], keys=[20.0, 9.0], gradient=[500.0, 3.0, 1.0], length=64)
    assert ranges.outside(**good) == {}
    assert ranges.least_keys(16) == 4 and ranges.least_keys(128) == 8
    for changes, what, message in (
        ({"cosine": [0, 0.995, 0.992]}, "tokens are alike", "0.9950 after block 0"),
        ({"keys": [9.0, 7.9]}, "queries see few keys", "7.90 keys in block 1; range: at least 8"),
        ({"gradient": [1, 0.009, 1.0]}, "gradients vanish", "0.009 of the last block's after bl"),
        ({"gradient": [1, 101.0, 1.0]}, "gradients explode", "101 of the last block's after blo"),
        ({"gradient": [1, float("nan"), 1.0]}, None, None),
    ):
        result = ranges.outside(**good | changes)
        assert list(result) == [what] * (what is not None)
        assert what is None or message in result[what]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Returns the same run with and without the signal; few keys are visible from the start."""
    folder, stderr = tmp_path_factory.mktemp("signal") / "run", io.StringIO()
    with contextlib.redirect_stderr(stderr):
        watched = jaxformer.train(TASK, SHARP, signal=True, seeds=2, workdir=folder, **SHORT)
    plain = jaxformer.train(TASK, SHARP, seeds=2, **SHORT)
    return watched, plain, folder, stderr.getvalue()


def test_the_signal_changes_no_bit_and_is_in_the_record(runs):
    watched, plain, folder, _ = runs
    jax.tree.map(np.testing.assert_array_equal, watched.trained.params, plain.trained.params)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    seen = {row["step"]: row["signal"] for row in rows if "signal" in row}
    assert list(seen) == [0, 10, 20]
    assert {n: np.shape(v) for n, v in seen[20].items()} == {
        "cosine": (2, 2),
        "keys": (2, 1),
        "gradient": (2, 2),
    }
    held = watched.trained.session.heldout.validation.inputs[: signal.LOGGED_SEQUENCES]
    now = jax.jit(lambda p: signal.by_layer(SHARP, p, held))(watched.member(1))
    np.testing.assert_allclose(seen[20]["cosine"][1], now.cosine, rtol=1e-5)
    metrics = watched.result.metrics
    assert metrics["signal_keys_end"].mean == pytest.approx(np.min(seen[20]["keys"], 1).mean())
    assert metrics["signal_cosine_start"].mean == pytest.approx(
        np.max(np.array(seen[0]["cosine"])[:, 1:], 1).mean()
    )
    assert not [name for name in plain.result.metrics if name.startswith("signal")]
    assert watched.curves["signal_cosine"].shape == (3, 2, 2)
    assert list(watched.curves["signal_step"]) == [0, 10, 20]
    # A record keeps every evaluation, and the rows of training as they were.
    kept = curves.of_rows(rows)
    assert [step for step, _ in kept["signal"]["gradient/1"]] == [0, 10, 20]
    assert [step for step, _ in kept["training"]["loss"]] == [10, 20]


def test_a_range_that_is_left_is_reported_once(runs):
    lines = [line for line in runs[3].splitlines() if "warning" in line]
    assert len(lines) == 1
    assert lines[0].startswith("warning: step 0: queries see few keys in 2 of 2 members: ")
    assert lines[0].endswith(" keys in block 0; range: at least 1.75 (seed 0, rate 0.001)")
