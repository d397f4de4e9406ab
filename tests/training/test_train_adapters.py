"""Training with adapters: what moves, what stays, members, phases, saving, and other modules."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxformer
from jaxformer import adapters
from jaxformer.core import optim, paths
from jaxformer.core.adapters import Lora
from jaxformer.core.errors import UserError
from jaxformer.core.partition import Partition
from jaxformer.core.settings import DataSettings, DeviceSettings, TrainSettings
from jaxformer.models.decoder import decoder
from jaxformer.models.pretrained import tiny
from jaxformer.models.pretrained_init import from_params
from jaxformer.models.recall import recall
from jaxformer.tasks.retrieval import Retrieval
from jaxformer.tasks.source import make_source
from jaxformer.training.phases import make_phases
from jaxformer.training.population import population
from jaxformer.training.setup import make_setup
from tests.core.test_sharding import on_eight_devices

TASK = Retrieval(max_pairs=2, vocab=8)
SIZES = dict(width=8, layers=2, heads=2, mlp_width=16)
ONLY_LORA = ((".*/(query|value)/kernel", "lora(2)"), (".*", "frozen"))
QUICK = dict(batch_size=8, progress=False, warmup=0, data=None)


def build(**more):
    return decoder(vocab_size=TASK.vocab_size, length=TASK.length, **SIZES, **more)


def test_only_adapters_move_and_frozen_bits_stay(tmp_path):
    """Four members: two seeds at two rates, in one program; the folder is read again."""
    rates = (1e-2, 3e-2)
    run = jaxformer.train(
        TASK, build(), ONLY_LORA, steps=100, seeds=2, learning_rate=rates, workdir=tmp_path, **QUICK
    )
    drawn = jax.jit(jax.vmap(lambda key: build().init(key, TASK.blank())["params"]))
    keys = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(seed), 0))(jnp.arange(2))
    before = paths.flatten(drawn(keys))
    members = [paths.flatten(run.member(i)) for i in range(4)]
    for path, leaf in before.items():
        for i, member in enumerate(members):
            np.testing.assert_array_equal(member[path], leaf[i % 2], err_msg=path)
    b = [member["block_1/attn/value/lora_b"] for member in members]
    a = [member["block_1/attn/value/lora_a"] for member in members]
    assert all(np.abs(leaf).max() > 1e-3 for leaf in b)
    assert not any(np.array_equal(a[0], other) for other in a[1:])
    model, params, _ = jaxformer.load(tmp_path, member=1)
    for path, leaf in paths.flatten(params).items():
        np.testing.assert_array_equal(leaf, members[1][path])
    tokens = TASK.blank()
    one, two = (model.apply({"params": p}, tokens) for p in (params, adapters.merge(params)))
    np.testing.assert_allclose(one, two, atol=1e-5 * np.abs(one).max())


@pytest.mark.slow
def test_a_published_model_in_half_precision_trains_adapters_in_float32():
    """The given parameters start every member, and each seed draws adapters of its own."""
    model, params, _ = tiny.tiny("llama", TASK.vocab_size)
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.bfloat16), params)
    run = jaxformer.train(
        TASK, from_params(model, params), ONLY_LORA, steps=2, seeds=2, learning_rate=1e-3, **QUICK
    )
    trained, before = paths.flatten(run.member(1)), paths.flatten(params)
    for path, leaf in before.items():
        assert trained[path].dtype == jnp.bfloat16
        np.testing.assert_array_equal(trained[path], leaf, err_msg=path)
    assert trained["block_0/attn/query/lora_b"].dtype == jnp.float32
    other = run.member(0)["block_0"]["attn"]["query"]["lora_a"]
    assert not np.array_equal(trained["block_0/attn/query/lora_a"], other)


def test_a_wrapped_module_trains_adapters():
    class Net(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            x = nn.Embed(8, 6, name="embed")(tokens)
            return nn.Dense(8, name="unembed")(nn.tanh(nn.Dense(6, name="middle")(x)))

    model = jaxformer.wrap(Net(), vocab_size=TASK.vocab_size, length=TASK.length)
    rules = (("middle/kernel", "lora(2, alpha=4)"), (".*", "frozen"))
    run = jaxformer.train(TASK, model, rules, steps=3, learning_rate=1e-2, **QUICK)
    middle = run.params["middle"]
    assert np.abs(middle["lora_b"]).max() > 0
    update = 2 * np.asarray(middle["lora_a"]) @ np.asarray(middle["lora_b"])
    merged = adapters.merge(run.params)["middle"]["kernel"]
    np.testing.assert_allclose(merged - middle["kernel"], update, atol=1e-6)
    tokens = TASK.blank()
    one = model.apply({"params": run.params}, tokens)
    plain = Net().apply({"params": adapters.merge(run.params)}, tokens)
    np.testing.assert_allclose(one, plain, atol=1e-6)


@pytest.mark.slow  # compiles two runs
def test_training_goes_on_with_adapters_that_are_there(tmp_path):
    model, params, _ = tiny.tiny("llama", TASK.vocab_size)
    added = adapters.add(params, Partition(ONLY_LORA).adapters(params), jax.random.key(0))
    rules = ((".*/lora_[ab]", "train"), (".*", "frozen"))
    start = from_params(model, added)
    runs = [
        jaxformer.train(TASK, start, rules, steps=2, learning_rate=1e-2, workdir=tmp_path, **QUICK)
        for _ in range(2)
    ]
    one, again = (paths.flatten(run.params) for run in runs)
    for path, leaf in paths.flatten(added).items():
        is_equal = np.array_equal(one[path], leaf)
        assert is_equal == (not path.endswith(("lora_a", "lora_b"))), path
        np.testing.assert_array_equal(again[path], one[path])


@pytest.mark.slow  # compiles two phases
def test_a_later_phase_may_add_the_label():
    rules = ((".*norm/scale", "train"), (".*", "frozen"))
    later = ((".*norm/scale", "train"), *ONLY_LORA)
    run = jaxformer.train(
        TASK, build(), rules, steps=4, unfreeze=[(2, later)], learning_rate=1e-2, **QUICK
    )
    assert np.abs(run.params["block_0"]["attn"]["query"]["lora_b"]).max() > 0


@pytest.mark.parametrize(
    ("first", "later", "frozen"),
    [
        (((".*", "train"),), ONLY_LORA, ["query", "value"]),
        (((".*/query/kernel", "lora(2)"), (".*", "train")), ONLY_LORA, ["value"]),
        (ONLY_LORA, ((".*", "train"),), []),  # from then on the kernels are trained too
        (((".*norm/scale", "train"), (".*", "frozen")), ONLY_LORA, ["query", "value"]),
    ],
)
def test_an_adapter_does_not_train_before_the_phase_that_adds_it(first, later, frozen):
    setup = make_setup(
        TASK,
        build(),
        Partition(first),
        optax.sgd(0.1),
        make_source(TASK, DataSettings(), 8),
        population(0, 1, (1e-2,)),
        TrainSettings(8),
        DeviceSettings(),
    )
    begin, end = make_phases(setup, 4, [(2, later)], lambda partition: optax.sgd(0.1))
    for name in ("query", "value"):
        is_frozen = begin.setup.partition.label(f"block_1/attn/{name}/lora_a") == "frozen"
        assert is_frozen == (name in frozen), name
    assert end.setup.partition.rules == later


def test_phases_with_different_ranks_are_refused():
    other = ((".*/query/kernel", "lora(1)"), (".*", "frozen"))
    with pytest.raises(UserError, match=r"two phases give .*/query/kernel different adapters"):
        jaxformer.train(TASK, build(), ONLY_LORA, steps=4, unfreeze=[(2, other)], **QUICK)


def test_a_model_with_linear_maps_of_its_own_is_refused():
    model = recall(vocab_size=TASK.vocab_size, length=TASK.length, width=8)
    rules = ((".*/value/kernel", "lora(1)"), (".*", "frozen"))
    with pytest.raises(UserError, match=r"Recall takes no adapter at .*its linear maps are not"):
        jaxformer.train(TASK, model, rules, steps=2, **QUICK)


def test_adapters_have_the_optimizer_of_their_label_or_that_of_train():
    partition = Partition(((".*/query/kernel", "lora(1)"), (".*", "train")))
    module = {"kernel": jnp.ones((2, 2)), "bias": jnp.ones(2)}
    params = adapters.add({"query": module}, {"query/kernel": Lora(1)}, jax.random.key(0))
    params = {"attn": params}
    trainable, _ = partition.split(params)
    for specs, expected in (
        ({"train": optim.SGD()}, -1.0),
        ({"train": optim.SGD(), "lora": optim.SGD(multiplier=5.0)}, -5.0),
    ):
        tx = optim.optimizer(partition, specs, 0.0, lambda step: 1.0)
        ones = jax.tree.map(jnp.ones_like, trainable)
        updates, _ = tx.update(ones, tx.init(trainable), trainable)
        assert updates["attn"]["query"]["lora_b"].tolist() == [[expected] * 2]
        assert updates["attn"]["query"]["bias"].tolist() == [-1.0] * 2


MESHES = """
import json
import jax
import numpy as np
import jaxformer
from jaxformer.core import paths
from jaxformer.core.settings import DeviceSettings
from tests.training.test_train_adapters import ONLY_LORA, QUICK, TASK, build

runs = [
    jaxformer.train(TASK, build(), ONLY_LORA, steps=3, learning_rate=1e-2, devices=mesh, **QUICK)
    for mesh in (DeviceSettings(data=1), DeviceSettings(data=1, fsdp=2, tensor=2))
]
one, two = (paths.flatten(run.params) for run in runs)
apart = [np.abs(np.asarray(leaf) - np.asarray(two[path])).max() for path, leaf in one.items()]
largest = float(max(apart))
moved = float(np.abs(np.asarray(two["block_0/attn/query/lora_b"])).max())
print("RESULT" + json.dumps([largest, moved]))
"""


@pytest.mark.slow  # eight simulated devices in a process of their own
def test_a_mesh_trains_the_same_adapters():
    largest, moved = on_eight_devices(MESHES)
    assert largest < 1e-5 and moved > 1e-3


@pytest.mark.slow  # compiles two steps
def test_a_plan_counts_the_moments_of_adapters_only():
    plans = [
        jaxformer.plan(TASK, build(), rules, target="cpu:1", batch_size=8)
        for rules in (ONLY_LORA, ((".*", "train"),))
    ]
    assert plans[0].peak < plans[1].peak


def stored_bytes(rules, layers=6):
    """The activations that the backward pass of one step reads."""
    model = decoder(vocab_size=TASK.vocab_size, length=TASK.length, **SIZES | {"layers": layers})
    partition = Partition(rules)
    shapes = jax.eval_shape(model.init, jax.random.key(0), TASK.blank())["params"]
    shapes = adapters.add_shapes(shapes, partition.adapters(shapes))
    trainable, frozen = partition.split(shapes)

    def residuals(trainable, frozen, tokens):
        def logits(trainable):
            return model.apply({"params": Partition.merge(trainable, frozen)}, tokens)

        return jax.vjp(logits, trainable)[1]

    tokens = jax.ShapeDtypeStruct((64, TASK.length), jnp.int32)
    leaves = jax.tree.leaves(jax.eval_shape(residuals, trainable, frozen, tokens))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves if leaf.shape[:1] == (64,))


def test_blocks_below_the_first_trained_one_keep_no_activations():
    whole, last = (
        stored_bytes(((f"block_({blocks})/.*", "train"), (".*", "frozen")))
        for blocks in ("0|1|2|3|4|5", "5")
    )
    adapter = stored_bytes((("block_5/attn/query/kernel", "lora(2)"), (".*", "frozen")))
    assert adapter <= last < 0.25 * whole
