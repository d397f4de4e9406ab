"""A network that somebody else wrote has activations: every submodule's output has an address."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxformer
from jaxformer import capture, surgery
from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.interp import lens
from jaxformer.models.activation_points import tap
from tests.models.own_transformers import LinenTransformer, NNXTransformer, Tagger

SIZES = {"vocab_size": 16, "length": 8}
TOKENS = jnp.arange(16).reshape(2, 8)
OTHERS = TOKENS[:, ::-1]
# {kind: (module, the attention of the last block, the last block)}
TRANSFORMERS = {
    "linen": (LinenTransformer(), "blocks_1/att", "blocks_1"),
    "nnx": (NNXTransformer, "blocks/1/att", "blocks/1"),
}


def wrapped(module, **options):
    model = jaxformer.wrap(module, **SIZES, **options)
    return model, jax.jit(model.init)(jax.random.key(0), TOKENS)["params"]


def logits_of(model, params, tokens=TOKENS):
    return model.apply({"params": params}, tokens)


@pytest.fixture(scope="module", params=TRANSFORMERS)
def transformer(request):
    module, attention, block = TRANSFORMERS[request.param]
    return *wrapped(module), attention, block


def test_every_submodule_has_an_address_that_begins_like_its_parameters(transformer):
    model, params, attention, block = transformer
    names = capture.names(model)
    assert names[0] == "embed/output" and "logits" in names
    # In the order of computation: queries, the attention, the block, the logits.
    chain = [f"{attention}/query/output", f"{attention}/output", f"{block}/output", "logits"]
    assert [name for name in names if name in chain] == chain
    for path in paths.flatten(params):
        if "/" in path:  # all but parameters of the network itself
            assert f"{path.rpartition('/')[0]}/output" in names


def test_captured_outputs_are_those_of_the_submodules_and_change_nothing(transformer):
    model, params, attention, _ = transformer
    logits, values = capture.run(model, params, TOKENS, names=[".*"])
    np.testing.assert_array_equal(logits, logits_of(model, params))
    np.testing.assert_array_equal(values["logits"], logits)
    # The output projection of attention is its last submodule.
    np.testing.assert_array_equal(values[f"{attention}/out/output"], values[f"{attention}/output"])
    flat = paths.flatten(params)
    np.testing.assert_array_equal(values["embed/output"], flat["embed/embedding"][TOKENS])


def test_a_replaced_output_acts_like_a_removed_submodule(transformer):
    model, params, attention, _ = transformer
    replaced = capture.intervene(model, params, TOKENS, {f"{attention}/output": 0})
    dropped = surgery.drop(params, f"{attention}/out")
    np.testing.assert_allclose(replaced, logits_of(model, dropped), rtol=1e-5, atol=1e-5)
    assert np.abs(replaced - logits_of(model, params)).max() > 0.01


def test_patching_the_last_block_restores_the_clean_metric(transformer):
    model, params, attention, block = transformer

    def metric(logits):
        return logits[:, -1, 3] - logits[:, -1, 5]

    clean = metric(logits_of(model, params))
    corrupted = metric(logits_of(model, params, OTHERS))
    arguments = model, params, TOKENS, OTHERS
    restored = capture.patch(*arguments, f"{block}/output", metric, by=["position"])
    by_position = restored[f"{block}/output"]
    np.testing.assert_allclose(by_position[-1], clean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(by_position[:-1], np.tile(corrupted, (7, 1)), rtol=1e-4, atol=1e-5)
    by_head = capture.patch(*arguments, f"{attention}/query", metric, by=["head"])
    assert by_head[f"{attention}/query/output"].shape == (2, 2)  # heads, examples
    slopes = capture.gradients(model, params, TOKENS, names=block, metric=lambda x: metric(x).sum())
    assert slopes[f"{block}/output"].shape == (2, 8, 16)


def test_the_logit_lens_reads_the_states_of_any_blocks(transformer):
    model, params, _, block = transformer
    pattern = block.replace("1", "[0-9]") + "/output"
    read = lens.logit_lens(model, params, TOKENS, names=pattern)
    assert len(read) == 2
    np.testing.assert_allclose(read[f"{block}/output"], logits_of(model, params), rtol=1e-5)
    first, last = read.values()
    assert np.abs(first - last).max() > 0.01


def test_laser_takes_the_address_of_a_submodule(transformer):
    _, params, _, block = transformer
    matrix = "in" if block == "blocks_1" else "mlp/layers/0"
    cut = paths.flatten(surgery.laser(params, f"{block}/{matrix}", 0.25))
    assert np.linalg.matrix_rank(cut[f"{block}/{matrix}/kernel"], tol=1e-4) == 4


class Block(nn.Module):
    """A block whose last layer is called "output", as in BERT."""

    @nn.compact
    def __call__(self, x):
        return x + nn.Dense(16, name="output")(nn.relu(nn.Dense(16, name="inner")(x)))


class Step(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        return Block(name="block")(x), None


class Net(nn.Module):
    kind: str

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(16, 16, name="embed")(tokens)
        if self.kind == "shared":
            block = Block(name="block")
            x = block(block(x))
        if self.kind == "remat":
            x = nn.remat(Block)(name="block")(x)
        if self.kind == "jit":
            x = nn.jit(Block)(name="block")(x)
        if self.kind.startswith("scan"):
            axes: Any = {"params": 0} | ({"intermediates": 0} if self.kind == "scan, kept" else {})
            scan = nn.scan(Step, variable_axes=axes, split_rngs={"params": True}, length=3)
            x, _ = scan(name="layers")(x, None)
        if self.kind == "lstm":
            x = nn.RNN(nn.LSTMCell(16), return_carry=True, name="rnn")(x)[1]
        if self.kind == "tap":
            x = tap(self, "states", x)
        return nn.Dense(16, name="head")(x)


class NNXBlock(nnx.Module):
    def __init__(self, rngs):
        self.inner, self.output = (nnx.Linear(16, 16, rngs=rngs) for _ in range(2))

    def __call__(self, x):
        return x + self.output(nnx.relu(self.inner(x)))


class NNXNet(nnx.Module):
    def __init__(self, rngs, kind):
        self.kind, self.embed = kind, nnx.Embed(16, 16, rngs=rngs)
        self.block, self.head = NNXBlock(rngs), nnx.Linear(16, 16, rngs=rngs)
        if kind == "shared":
            self.same = self.block
        if kind == "list":
            self.blocks = [NNXBlock(rngs)]

    def __call__(self, tokens):
        x = self.embed(tokens)
        if self.kind == "shared":
            x = self.same(self.block(x))
        if self.kind == "remat":
            x = nnx.remat(lambda block, x: block(x))(self.block, x)
        return self.head(x)


NETS = {
    "linen": lambda kind: Net(kind),
    "nnx": lambda kind: lambda rngs: NNXNet(rngs, kind),
}


@pytest.mark.parametrize("make", NETS.values(), ids=NETS)
def test_a_shared_submodule_has_one_address_and_a_number_for_each_further_call(make):
    model, params = wrapped(make("shared"))
    _, values = capture.run(model, params, TOKENS, names=["block/output.*"])
    assert {"block/output", "block/output_1", "block/output/output"} <= set(values)
    first = capture.intervene(model, params, TOKENS, {"block/output": 1})
    second = capture.intervene(model, params, TOKENS, {"block/output_1": 1})
    assert np.abs(first - second).max() > 0.01
    ones = params["head"]["kernel"].sum(0) + params["head"]["bias"]
    np.testing.assert_allclose(second[0, 0], ones, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "framework, kind", [("linen", "remat"), ("linen", "jit"), ("nnx", "remat")]
)
def test_edits_reach_into_compiled_submodules(framework, kind):
    model, params = wrapped(NETS[framework](kind))
    (inner,) = capture.capture(model, params, TOKENS, names=["block/output/output"]).values()
    for scale in (0.0, 2.0):  # the second edit must not meet the program of the first
        _, values = capture.run(
            model,
            params,
            TOKENS,
            names=["block/output/output"],
            edits={"block/output/output": lambda value, scale=scale: scale * value},
        )
        np.testing.assert_allclose(values["block/output/output"], scale * inner, rtol=1e-6)


def test_layers_of_a_scan_are_kept_along_an_axis_if_the_scan_passes_them_on():
    model, params = wrapped(Net("scan, kept"))
    values = capture.capture(model, params, TOKENS, names=["layers/block/output"])
    assert values["layers/block/output"].shape == (3, 2, 8, 16)


def test_layers_of_a_scan_that_drops_them_can_be_edited_but_not_kept():
    model, params = wrapped(Net("scan"))
    edited = capture.intervene(model, params, TOKENS, {"layers/block/output/output": 0})
    embedded = paths.flatten(params)["embed/embedding"][TOKENS]
    head = params["head"]
    np.testing.assert_allclose(
        edited, embedded @ head["kernel"] + head["bias"][None, None], rtol=1e-5, atol=1e-6
    )
    with pytest.raises(UserError, match=r"cannot be kept.*variable_axes=\{'intermediates': 0\}"):
        capture.capture(model, params, TOKENS, names=["layers/block/output"])


def test_each_array_of_a_tuple_has_an_address():
    names = capture.names(wrapped(Net("lstm"))[0])
    assert {"rnn/output/0/0", "rnn/output/0/1", "rnn/output/1"} <= set(names)


def test_a_tap_of_the_module_keeps_its_address():
    model, params = wrapped(Net("tap"))
    twice = {"states": lambda x: x + 1}
    _, values = capture.run(model, params, TOKENS, names=["states", "embed/output"], edits=twice)
    np.testing.assert_allclose(values["states"], values["embed/output"] + 1, rtol=1e-6)


def test_sown_attention_weights_are_captured_but_replacing_them_is_refused():
    model, params = wrapped(LinenTransformer())
    address = "blocks_1/att/attention_weights"
    weights = capture.capture(model, params, TOKENS, names=[address])[address]
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
    with pytest.raises(UserError, match="captured but not replaced"):
        capture.intervene(model, params, TOKENS, {address: 0})


class Methods(nn.Module):
    def setup(self):
        self.embed, self.head = nn.Embed(16, 16), nn.Dense(16)

    def encode(self, tokens):
        return self.embed(tokens)

    def score(self, tokens, *, train):
        return self.head(self.encode(tokens))


def test_logits_may_come_from_another_method():
    model, params = wrapped(Methods(), method=lambda net, tokens: net.score(tokens, train=False))
    assert {"encode", "score", "logits"} <= set(capture.names(model))
    zeros = capture.intervene(model, params, TOKENS, {"encode": 0})
    np.testing.assert_array_equal(zeros[0, 0], params["head"]["bias"])


def test_an_example_of_flax_is_patched_without_an_edit():
    def score(net, tokens):
        return net(inputs=tokens, train=False)

    model, params = wrapped(Tagger(), method=score, causal=False)
    heads = "TaggerBlock_1/MultiHeadDotProductAttention_0/(query|key)/output"
    effects = capture.patch(
        model, params, TOKENS, OTHERS, heads, lambda logits: logits[0, 3, 2], by=["head"]
    )
    assert [effect.shape for effect in effects.values()] == [(2,), (2,)]
    assert len({*np.concatenate(list(effects.values())).tolist()}) == 4
    with pytest.raises(
        UserError, match=r"Tagger cannot be called with tokens alone .* net\(inputs"
    ):
        wrapped(Tagger())


@pytest.mark.parametrize(
    "module, method, message",
    [
        (Methods(), None, "Methods has no method '__call__'"),
        (Methods(), "scor", "Methods has no method 'scor'. Did you mean 'score'"),
        (Methods(), "score", "cannot be called with tokens alone .*method=lambda net, tokens"),
        (lambda rngs: NNXNet(rngs, ""), "cal", "has no method 'cal'"),
        (lambda rngs: NNXNet(rngs, "list"), None, "use nnx.List"),
    ],
)
def test_a_module_that_cannot_be_called_is_a_one_line_error(module, method, message):
    with pytest.raises(UserError, match=message) as error:
        wrapped(module, method=method)
    assert "\n" not in str(error.value)


def test_parameters_in_boxes_of_logical_axes_are_plain_arrays():
    init = nn.with_logical_partitioning(nn.initializers.normal(), ("embed", "vocab"))
    model, params = wrapped(nn.Sequential([nn.Embed(16, 16), nn.Dense(16, kernel_init=init)]))
    assert isinstance(params["layers_1"]["kernel"], jax.Array)
    assert capture.names(model) == ["layers_0/output", "layers_1/output", "logits"]


def test_other_instances_of_a_class_do_not_record():
    model, params = wrapped(NNXTransformer)
    capture.capture(model, params, TOKENS, names=["blocks/0"])
    assert type(NNXTransformer(nnx.Rngs(0)).embed) is nnx.Embed
