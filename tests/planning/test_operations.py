"""The operations of a compiled program by class, and the forecast of a step made of them."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

import jaxformer
from experiments.recipes.plan_targets import print_plans
from jaxformer.core.errors import UserError
from jaxformer.core.settings import DeviceSettings
from jaxformer.models.decoder import decoder
from jaxformer.planning import hlo, plan, roofline, targets
from jaxformer.planning.cards import CARDS
from jaxformer.planning.collectives import Collective
from jaxformer.planning.operations import Operation, operations, product_flops
from jaxformer.planning.published import TokenTask, shapes_only
from jaxformer.planning.settings_to_try import savings
from tests.planning.test_target import LLAMA

# Instructions as XLA prints them for an H100 and for a TPU v5e.
GPU_PROGRAM = """HloModule jit_step

%body (p: (s32[], bf16[12,64,8])) -> (s32[], bf16[12,64,8]) {
  %p = (s32[], bf16[12,64,8]{2,1,0}) parameter(0)
  %saved = bf16[12,64,8]{2,1,0} get-tuple-element(%p), index=1
  %x = bf16[1,64,8]{2,1,0} dynamic-slice(%saved, %i, %z, %z), dynamic_slice_sizes={1,64,8}
  %new = bf16[12,64,8]{2,1,0} dynamic-update-slice(%saved, %x, %i, %z, %z)
  ROOT %t = (s32[], bf16[12,64,8]{2,1,0}) tuple(%i, %new)
}

%fill () -> bf16[12,64,8] {
  %zero = bf16[] constant(0)
  ROOT %zeros = bf16[12,64,8]{2,1,0} broadcast(%zero), dimensions={}
}

ENTRY %main (a: bf16[64,8], w: bf16[8,32]) -> bf16[64,32] {
  %a = bf16[64,8]{1,0} parameter(0)
  %w = bf16[8,32]{1,0} parameter(1)
  %zeros = bf16[12,64,8]{2,1,0} fusion(), kind=kLoop, calls=%fill
  %loop = (s32[], bf16[12,64,8]{2,1,0}) while(%t), condition=%c, body=%body, backend_config={"known_trip_count":{"n":"12"}}
  %y = (bf16[64,32]{1,0}, s8[4096]{0}) custom-call(%a, %w), custom_call_target="__cublas$lt$matmul", metadata={op_name="jit(f)/block_0/mlp/in/dot_general"}, backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}
  %z = (f32[64,32]{1,0}, s8[4096]{0}) custom-call(%a, %w), custom_call_target="__cublas$lt$matmul", metadata={op_name="jit(f)/transpose(jvp(head))/dot_general"}, backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}
  %copied = bf16[8,64]{1,0} transpose(%a), dimensions={1,0}
  ROOT %m = f32[64,32]{1,0} multiply(%z, %z), metadata={op_name="jit(f)/optimizer/mul"}
}
"""  # noqa: E501
TPU_PRODUCT = """HloModule jit_step

ENTRY %main (x: bf16[8,1024,256,1], w: bf16[4,64,256,1]) -> bf16[8,1024,4,64] {
  %x = bf16[8,1024,256,1]{3,2,1,0} parameter(0)
  %w = bf16[4,64,256,1]{3,2,1,0} parameter(1)
  ROOT %y = bf16[8,1024,4,64]{3,2,1,0} convolution(%x, %w), window={size=1x4 pad=0_0x3_3 rhs_reversal=0x1}, dim_labels=0bf1_1oi0->0b1f
}
"""  # noqa: E501


def test_operations_are_sorted_into_classes_with_the_repeats_of_loops():
    found = {}
    for step in operations(hlo.parse(GPU_PROGRAM)):
        flops, times = found.get(step.kind, (0.0, 0))
        found[step.kind] = (flops + step.times * step.flops, times + step.times)
    product = 2.0 * 64 * 8 * 32
    assert found == {
        "stacking of a scan": (0.0, 1 + 12 + 12),  # the zeros, then slices and updates in the loop
        "products": (product, 1),
        "output head": (product, 1),
        "copies": (0.0, 1),
        "optimizer": (0.0, 1),
    }


def test_the_products_of_a_tpu_do_not_count_their_padding():
    program = hlo.parse(TPU_PRODUCT)
    scope = program.computations["main"]
    assert product_flops(scope, scope["y"]) == 2 * 8 * 1024 * 256 * (4 * 64)


@pytest.mark.parametrize("batch", ["2,", ""])  # a batch of one has no axis
def test_the_attention_kernels_of_a_tpu_count_all_scores(batch):
    """Forward two products of B H T S D terms, and backward five, of which each kernel has half."""
    q, small = f"bf16[{batch}12,64,1024]", "s8[1,2,2]{2,1,0}"
    by_head, rows = f"bf16[{batch}12,1024,64]", f"f32[{batch}512,128]"
    call = 'custom-call(%b, %q, %q, %q), custom_call_target="tpu_custom_call"'
    program = f"""HloModule jit_step

ENTRY %main (q: {q}, b: {small}) -> {by_head} {{
  %q = {q} parameter(0)
  %b = {small} parameter(1)
  %splash_mha_fwd_residuals.1 = ({rows}, {by_head}, f32[{batch}12,1024,128]) {call}
  %splash_mha_dq_no_residuals.1 = ({rows}, {by_head}) {call}
  %splash_mha_dkv_no_residuals.1 = ({rows}, {by_head}, {by_head}) {call}
}}
"""
    steps = operations(hlo.parse(program))
    product = 2 * (2 if batch else 1) * 12 * 1024 * 1024 * 64
    assert [(step.kind, step.flops) for step in steps] == [
        ("attention kernel", 2 * product),
        ("attention kernel", 2.5 * product),
        ("attention kernel", 2.5 * product),
    ]


def test_a_gpu_takes_the_sum_over_its_operations_and_a_tpu_the_longest_resource():
    card = CARDS["h100"]
    product = Operation("products", "bf16", card.bfloat16_rate, 0.0, 2)  # 2 times 1 s
    pointwise = Operation("elementwise", "bf16", 0.0, card.memory_bandwidth, 1)  # 1 s
    classes = roofline.class_times(card, [product, pointwise], links=0.25)
    assert [(part.kind, part.bound, part.count) for part in classes] == [
        ("products", 2.0, 2),
        ("elementwise", 1.0, 1),
        ("communication", 0.25, 0),
    ]
    seconds = {"compute": 2.0, "memory": 1.0, "links": 0.25}
    common = dict(mesh={}, fits=True, capacity=0, seconds=seconds, classes=classes)
    gpu, tpu = plan.Plan("h100:1", **common), plan.Plan("v5e:1x1", **common)
    assert (gpu.step_seconds, tpu.step_seconds) == (3.0, 2.0)
    share, _, memory_share, launch = 0.657, 0.445, 0.835, 3e-6
    forecast = 2 / share + 1 / memory_share + 3 * launch + 0.25
    assert gpu.forecast_seconds == pytest.approx(forecast)
    assert "forecast: a step takes about 4.49 s" in str(gpu)


def test_the_forecast_names_the_largest_part_that_a_setting_avoids():
    def setup_with(**fields):
        spec = SimpleNamespace(**dict(scan=True, remat=False, fused=True, dtype=jnp.bfloat16))
        vars(spec).update(fields)
        return SimpleNamespace(model=SimpleNamespace(spec=spec))

    card = CARDS["h100"]
    steps = [
        Operation("stacking of a scan", "bf16", 0.0, card.memory_bandwidth, 1),
        Operation("attention weights", "f32", 0.0, 2 * card.memory_bandwidth, 1),
        Operation("products", "f32", card.float32_rate, 0.0, 1, "rematted_computation/dot"),
    ]
    named = {
        saving.setting: saving.seconds
        for saving in savings(setup_with(fused=False, remat=True), steps, card)
    }
    assert list(named) == ["model.fused=True", "model.remat=False", "model.scan=False"]
    assert named["model.scan=False"] == pytest.approx(1 / 0.835 + 3e-6)
    (only,) = savings(setup_with(), steps, card)
    assert "1.2e+03 ms for what a scan over blocks stacks" in str(only)
    bfloat16 = savings(setup_with(scan=False, dtype=float), steps, card)
    assert [saving.setting for saving in bfloat16] == ["model.dtype=bfloat16"]


def compiled_texts(*arguments, **options):
    """Plans for this machine; gives the plan and the text of the compiled program."""
    texts, parse = [], hlo.parse
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hlo, "parse", lambda text: texts.append(text) or parse(text))
        planned = jaxformer.plan(
            *arguments, target="cpu:1", batch_size=4, devices=DeviceSettings(data=1), **options
        )
    return planned, texts[0]


def test_products_that_no_result_needs_do_not_count():
    """A published model traces all logits before the loss in chunks replaces them."""
    task, model = shapes_only(TokenTask(16), LLAMA | {"torch_dtype": "float32"})
    planned, text = compiled_texts(task, model, loss_chunk=8)
    steps = operations(hlo.parse(text))
    assert planned.flops == sum(step.times * step.flops for step in steps) > 0


def test_the_parts_of_a_step_have_their_names_in_the_compiled_program():
    sizes = dict(vocab_size=64, length=8, width=16, layers=1, heads=2, mlp_width=32)
    _, text = compiled_texts(TokenTask(8, vocab_size=64), decoder(**sizes), loss_chunk=8)
    kinds = {step.kind for step in operations(hlo.parse(text))}
    assert {"output head", "optimizer", "attention weights", "products"} <= kinds


def test_blocks_one_after_the_other_stack_nothing_and_a_scan_stacks_less_with_remat():
    sizes = dict(vocab_size=64, length=8, width=16, layers=3, heads=2, mlp_width=32)
    tokens = jax.ShapeDtypeStruct((4, 8), jnp.int32)

    def stacked_bytes(**fields):
        model = decoder(**sizes, **fields)
        params = jax.eval_shape(model.init, jax.random.key(0), tokens)["params"]
        gradient = jax.jit(jax.grad(lambda p, x: model.apply({"params": p}, x).sum()))
        steps = operations(hlo.parse(gradient.lower(params, tokens).compile().as_text()))
        return sum(s.times * s.moved for s in steps if s.kind == "stacking of a scan")

    activation = 4 * 8 * 16 * 4  # bytes of the states of all tokens
    unrolled, scan, with_remat = (
        stacked_bytes(**fields) for fields in ({}, {"scan": True}, {"scan": True, "remat": True})
    )
    # Zeros to which gradients of embeddings are added stay.
    assert unrolled < 4 * activation < with_remat < scan / 2


def backward_products(text, of):
    """The number of compiled products of the backward pass that belong to a module."""
    return sum(
        step.times
        for step in operations(hlo.parse(text))
        if step.flops and "transpose(" in step.name and f"/{of}" in step.name
    )


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_the_gradient_of_a_frozen_kernel_has_no_product(dtype):
    """Frozen queries and keys pass on a gradient, and blocks below the first trained one none."""
    sizes = dict(vocab_size=64, length=8, width=16, layers=2, heads=2, mlp_width=32)
    model, task = decoder(**sizes, dtype=dtype), TokenTask(8, vocab_size=64)
    rules = (
        ("(embed|block_0)/.*", "frozen"),
        (".*/(query|key)/.*", "frozen"),
        (".*", "train"),
    )
    found = {}
    for name, partition in {"all": ((".*", "train"),), "part": rules}.items():
        _, text = compiled_texts(task, model, partition)
        found[name] = [
            backward_products(text, of)
            for of in ("block_0", "block_1/attn/attn._queries_keys", "block_1/mlp")
        ]
    # A kernel has two products, its own gradient and that of its inputs; attention has four more.
    assert found["all"] == [7 * 2 + 4, 2 * 2, 3 * 2], found
    # The norm before queries and keys is trained, so the gradient of their inputs remains.
    assert found["part"] == [0, 2 * 1, 3 * 2], found


def test_a_refused_target_says_which_variable_to_set(monkeypatch):
    def refuse(target, card):
        raise ValueError("topology not implemented for cuda\nmore")

    monkeypatch.setattr(targets, "check_compiler", lambda target: None)
    monkeypatch.setattr(targets, "_topology", refuse)
    platforms = jax.config.jax_platforms
    try:
        jax.config.update("jax_platforms", None)
        with pytest.raises(UserError, match="set JAX_PLATFORMS=cpu before Python starts"):
            targets.devices_of(targets.parse_target("h100:1"))
        jax.config.update("jax_platforms", "cpu")
        with pytest.raises(UserError) as error:
            targets.devices_of(targets.parse_target("h100:1"))
    finally:
        jax.config.update("jax_platforms", platforms)
    assert "JAX_PLATFORMS" not in str(error.value) and "\n" not in str(error.value)


def test_a_plan_with_classes_survives_json():
    classes = (roofline.ClassTime("products", 1.0, 2.0, 3.0, 4.0, 5),)
    exchanges = (Collective("all-reduce", ("data",), 1, 2, 3),)
    planned = plan.Plan("h100:1", {}, fits=True, capacity=1, classes=classes, exchanges=exchanges)
    assert plan.Plan.from_json(planned.as_json()) == planned
    fields = planned.as_json()
    del fields["classes"], fields["savings"]  # as plans were stored before
    assert plan.Plan.from_json(fields).classes == ()


def test_plans_of_several_targets_are_one_table_with_forecasts(capsys):
    seconds = {"compute": 1.0, "memory": 2.0, "links": 0.0}
    classes = (roofline.ClassTime("products", 2.5, 3.25, 0.0, 0.0, 5),)
    common = dict(mesh={}, fits=True, capacity=2**34, seconds=seconds)
    print_plans([plan.Plan("h100:1", classes=classes, **common), plan.Plan("cpu:1", **common)])
    header, gpu, cpu = (line.split() for line in capsys.readouterr().out.splitlines())
    assert header[-4:] == ["least", "bound", "forecast", "compiled"]
    assert gpu[-7:-2] == ["2.5", "s", "memory", "3.25", "s"] and cpu[-3] == "-"
