"""Plans for other machines: names of targets, the reader of compiled programs, and its numbers."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxformer
from experiments.run import main
from jaxformer.core.errors import UserError
from jaxformer.core.settings import DeviceSettings
from jaxformer.models.decoder import decoder
from jaxformer.planning import compile_plan, hlo, plan, targets
from jaxformer.planning.collectives import collectives
from jaxformer.planning.operations import COPIES, operations
from jaxformer.planning.published import TokenTask
from jaxformer.tasks.retrieval import Retrieval
from tests.experiments.conftest import tiny

ROOT = Path(__file__).parents[2]
TASK = Retrieval(max_pairs=3, vocab=16)
LLAMA = {
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "bfloat16",
}


def test_wrong_targets_are_one_line_errors():
    messages = {
        "v9:4x4": "unknown target 'v9'. The choices are: a100, cpu, h100",
        "v5e": "a target is CARD:TOPOLOGY",
        "v5e:0x4": "a target is CARD:TOPOLOGY",
        "h100:999x999": "with at most 512 devices",
        "v5e:4": "the topology of v5e has 2 sizes, got 'v5e:4'; for example v5e:4x4.",
        "v5p:2x2": "for example v5p:2x2x1",
        "cpu:2x2": "the topology of cpu has 1 sizes",
    }
    failures = []
    for text, message in messages.items():
        with pytest.raises(UserError) as error:
            targets.parse_target(text)
        if message not in str(error.value) or "\n" in str(error.value):
            failures.append((text, str(error.value)))
    assert not failures
    names = [target.name for target in targets.parse_targets(",".join(targets.EXAMPLES))]
    assert names == list(targets.EXAMPLES)


def test_flags_that_exclude_each_other_and_missing_compilers_are_one_line_errors(
    capsys, monkeypatch
):
    monkeypatch.setattr(targets.importlib.util, "find_spec", lambda name: None)
    cases = {
        ("--measure", "--target=cpu:8"): "give one of them",
        ("--target=cpu:8",): "give --dry-run too",
        ("--dry-run", "--target=v5e:4x4"): "pip install 'jaxformer[tpu]'",
        ("--dry-run", "--target=h100:8"): "pip install 'jaxformer[compile-cuda]'",
    }
    for given, message in cases.items():
        assert main([*tiny(), *given]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line


PROGRAM = """HloModule jit_f, entry_computation_layout={(f32[8,4]{1,0})->f32[8,4]{1,0}}

%body (p: (s32[], bf16[8,4])) -> (s32[], bf16[8,4]) {
  %p = (s32[], bf16[8,4]{1,0:T(8,128)(2,1)}) parameter(0)
  %x = bf16[8,4]{1,0:T(8,128)(2,1)S(1)} get-tuple-element(%p), index=1
  %gather = bf16[16,4]{1,0} all-gather(%x), replica_groups=REPLICAS, dimensions={0}
  %start = (bf16[8,4]{1,0}, bf16[8,4]{1,0}) all-reduce-start(%x), replica_groups={}, to_apply=%add
  %done = bf16[8,4]{1,0} all-reduce-done(%start)
  ROOT %t = (s32[], bf16[8,4]{1,0}) tuple(%i, %done)
}

%condition (p: (s32[], bf16[8,4])) -> pred[] {
  %bound = s32[]{:T(128)} constant(12)
  %i = s32[] get-tuple-element(%p), index=0
  ROOT %less = pred[] compare(%i, %bound), direction=LT
}

ENTRY %main (a: f32[8,4]) -> f32[8,4] {
  %a = f32[8,4]{1,0} parameter(0)
  %start = (s32[], bf16[8,4]{1,0}) tuple(%c, %a)
  %loop = (s32[], bf16[8,4]{1,0}) while(%start), condition=%condition, body=%body
  ROOT %add = f32[8,4]{1,0} add(%a, %a), metadata={op_name="jit(f)/block_0/mlp/add"}
}
"""


def test_collectives_are_counted_with_their_loops_and_mapped_to_mesh_axes():
    mesh = SimpleNamespace(devices=np.zeros((1, 2, 4)), axis_names=("m", "data", "fsdp"), size=8)
    axes_of_groups = {
        "{{0,1,2,3},{4,5,6,7}}": ("fsdp",),
        "{{0,4},{1,5},{2,6},{3,7}}": ("data",),
        "[2,4]<=[8]": ("fsdp",),
        "[4,2]<=[2,4]T(1,0)": ("data",),
        "mesh['axis_0'=2,'axis_1'=4] {'axis_0'}": ("data",),
        "mesh['axis_0'=4,'axis_1'=2], device_ids=([2,4]T(1,0)) {'axis_0'}": ("fsdp",),
        "mesh['axis_0'=8] {'axis_0':(1)2}": ("data",),
        "mesh['axis_0'=8] {'axis_0':(2)4}": ("fsdp",),
    }
    for groups, axes in axes_of_groups.items():
        result = collectives(hlo.parse(PROGRAM.replace("REPLICAS", groups)), mesh)
        gather = next(c for c in result if c.kind == "all-gather")
        n = {"data": 2, "fsdp": 4}[axes[0]]
        assert (gather.axes, gather.count) == (axes, 12), groups
        assert gather.array_bytes == 12 * n * 8 * 4 * 2
        assert gather.sent_bytes == 12 * (n - 1) * 8 * 4 * 2
        (reduce,) = [c for c in result if c.kind == "all-reduce"]
        assert (reduce.axes, reduce.sent_bytes) == (("data", "fsdp"), 12 * 2 * 64 * 7 // 8)
    hosts = collectives(hlo.parse(PROGRAM.replace("REPLICAS", "{{0,4}}")), mesh, 4)
    assert all(c.crosses_hosts for c in hosts)


def test_traffic_counts_what_crosses_the_memory_of_a_device():
    """Arrays in a TPU's scratch memory, S(1), do not; a library's workspace does not either."""
    program = hlo.parse(PROGRAM.replace("REPLICAS", "{{0,4}}"))
    in_loop = 12 * (16 * 4 * 2 + 8 * 4 * 2)  # the gathered array, and the reduced one
    assert hlo.traffic(program) == in_loop + 3 * 8 * 4 * 4
    assert compile_plan._largest_buffers(program)[:2] == (
        (128, "f32[8,4] block_0/mlp/add"),
        (128, "bf16[16,4]"),
    )
    message = "HLO temporaries (24.00G) exceeds available HBM (15.75G)"
    assert compile_plan._needed_bytes(message) == 24 * 2**30


def test_a_slice_that_a_tpu_prefetches_reads_this_slice_only():
    """An instruction that starts a slice has the whole array in its type."""
    large, part = "bf16[32768,768]{1,0}", "bf16[8192,768]{1,0:S(1)}"
    program = hlo.parse(f"""HloModule jit_f

ENTRY %main (x: bf16[32768,768]) -> bf16[8192,768] {{
  %x = {large} parameter(0)
  %start = (({large}), {part}, s32[]{{:S(2)}}) slice-start(%x), slice={{[0:8192], [0:768]}}
  ROOT %done = {part} slice-done(%start)
}}
""")
    assert hlo.traffic(program) == 8192 * 768 * 2
    assert [step.kind for step in operations(program)] == [COPIES]


def test_an_update_of_some_rows_moves_these_rows_only():
    operands = {"dynamic-update-slice": "%x, %u, %i, %i", "scatter": "%x, %i, %u"}
    for opcode, names in operands.items():
        program = f"""HloModule jit_f

ENTRY %main (x: f32[1000,8], i: s32[4,1], u: f32[4,8]) -> f32[1000,8] {{
  %x = f32[1000,8]{{1,0}} parameter(0)
  %i = s32[4,1]{{1,0}} parameter(1)
  %u = f32[4,8]{{1,0}} parameter(2)
  ROOT %new = f32[1000,8]{{1,0}} {opcode}({names}), to_apply=%add
}}
"""
        assert hlo.traffic(hlo.parse(program)) == 2 * 4 * 8 * 4, opcode


def test_the_traffic_of_a_program_without_loops_is_that_of_xla():
    def f(x, w):
        return jnp.tanh(x @ w).sum(), jnp.sort(x + 1)

    compiled = jax.jit(f).lower(jnp.ones((64, 32)), jnp.ones((32, 48))).compile()
    expected = compiled.cost_analysis()["bytes accessed"]
    assert 0.8 < hlo.traffic(hlo.parse(compiled.as_text())) / expected < 1.25


def plan_of(**arguments):
    sizes = dict(width=16, layers=2, heads=2, mlp_width=32)
    model = decoder(vocab_size=TASK.vocab_size, length=TASK.length, **sizes)
    return jaxformer.plan(TASK, model, target="cpu:1", batch_size=8, **arguments)


def test_a_plan_survives_json_and_names_what_does_not_fit(monkeypatch):
    monkeypatch.setattr(compile_plan, "free_host_memory", lambda: 2**16)
    monkeypatch.setattr(compile_plan.roofline, "measured_cpu", lambda n: SLOW_LINKS)
    result = plan_of()
    assert plan.Plan.from_json(json.loads(json.dumps(result.as_json()))) == result
    assert not result.fits and result.bound == "memory"
    assert result.peak >= result.arguments > 0
    text = str(result)
    assert "does not fit: a device needs" in text and "try train.accumulate=4" in text
    assert "f32[" in text and result.exchanges == ()


SLOW_LINKS = targets.Card("test", "cpu", 2**16, 1e12, 1e12, 1e6, 1e6)


def test_a_published_model_is_planned_by_its_config_alone(monkeypatch, tmp_path):
    monkeypatch.setattr(compile_plan.roofline, "measured_cpu", lambda n: SLOW_LINKS)
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    inference = jaxformer.plan(TokenTask(8), tmp_path, target="cpu:1", batch_size=4, inference=True)
    parameters = 2 * 64 * 16 + 2 * (16 * (16 + 2 * 8 + 16) + 3 * 16 * 32 + 2 * 16) + 16
    assert inference.arguments == 2 * parameters + 4 * 8 * 4  # bfloat16, and int32 tokens
    with pytest.raises(UserError, match=r"is not the config.json of a model"):
        jaxformer.plan(TokenTask(8), tmp_path / "none.json", target="cpu:1")


EIGHT = """
import json, sys
import jax, jax.numpy as jnp
import jaxformer
from jaxformer.core.settings import DeviceSettings
from jaxformer.models.decoder import decoder
from jaxformer.tasks.retrieval import Retrieval
from jaxformer.planning import compile_plan, hlo, plan, targets
from jaxformer.core.errors import UserError

P, target = jax.P, targets.parse_target("cpu:8")
mesh = jax.make_mesh((2, 4), ("data", "fsdp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
place = lambda *axes: jax.NamedSharding(mesh, P(*axes))

def loss(x, w):
    def layer(x, w):
        w = jax.lax.with_sharding_constraint(w, place())
        x = jax.lax.with_sharding_constraint(jnp.tanh(x @ w), place(("data", "fsdp")))
        return x, None
    return jax.lax.scan(layer, x, w)[0].sum()

x = jax.ShapeDtypeStruct((64, 32), jnp.float32, sharding=place(("data", "fsdp")))
w = jax.ShapeDtypeStruct((3, 32, 32), jnp.float32, sharding=place(None, "fsdp"))
result = compile_plan.compiled_plan(jax.jit(loss), (x, w), mesh, target, is_calibrated=False)
task = Retrieval(max_pairs=3, vocab=16)
model = decoder(vocab_size=16, length=task.length, width=16, layers=1, heads=2, mlp_width=16)
try:
    devices = DeviceSettings(data=3, fsdp=4)
    jaxformer.plan(task, model, target="cpu:8", batch_size=8, devices=devices)
except UserError as error:
    print(error)
print(json.dumps(result.as_json()))
"""


@pytest.mark.slow
def test_eight_virtual_devices_exchange_what_the_mesh_says():
    target = targets.parse_target("cpu:8")
    environment = {**os.environ, **target.environment(), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", EIGHT]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert not done.returncode, done.stderr
    line, fields = done.stdout.splitlines()
    assert line == (
        "a mesh of members=1 x data=3 x fsdp=4 x tensor=1 needs 12 devices, the target has 8."
    )
    result = plan.Plan.from_json(json.loads(fields))
    gather = next(c for c in result.exchanges if c.kind == "all-gather")
    assert (gather.axes, gather.count, gather.array_bytes) == (("fsdp",), 3, 3 * 32 * 32 * 4)
    assert result.flops == 3 * 2 * 64 * 32 * 32
    assert result.arguments == (64 // 8 * 32 + 3 * 32 // 4 * 32) * 4


def test_a_cpu_adds_the_times_that_an_accelerator_overlaps():
    """One core cannot move memory while it multiplies; a card does both at once."""
    seconds = {"compute": 0.2, "memory": 0.3, "links": 0.05}
    common = dict(mesh={}, fits=True, capacity=0, seconds=seconds)
    cpu, card = plan.Plan("cpu:8", **common), plan.Plan("h100:8", **common)
    assert cpu.step_seconds == pytest.approx(0.55) and "a step takes about 0.55 s" in str(cpu)
    assert card.step_seconds == 0.3 and "a step takes at least 0.3 s (memory)" in str(card)


def test_devices_that_a_mesh_leaves_out_are_named():
    common = dict(mesh={"data": 4, "fsdp": 1}, fits=True, capacity=0)
    assert "\n3 of 7 devices are idle" in str(plan.Plan("h100:7", **common))
    assert "idle" not in str(plan.Plan("h100:4", **common))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "package"),
    [("v5e:2x2", "libtpu"), ("h100:8", "jax_cuda12_plugin"), ("h100:2x8", "jax_cuda12_plugin")],
)
def test_accelerators_that_are_absent_compile_a_tiny_config(name, package, capfd):
    if not find_spec(package):
        pytest.skip(f"needs the compiler of {name}: pip install {package}")
    flags = tiny("--config.devices.fsdp=4", "--config.train.batch_size=32")
    assert main([*flags, "--dry-run", f"--target={name}"]) == 0
    out = capfd.readouterr().out
    assert "memory of a device" in out and "all-gather along fsdp" in out
    assert "a step takes at least" in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "package"), [("v5e:2x2", "libtpu"), ("h100:2", "jax_cuda12_plugin")]
)
def test_prepared_text_is_planned_for_accelerators_that_are_absent(name, package, capfd):
    if not find_spec(package):
        pytest.skip(f"needs the compiler of {name}: pip install {package}")
    assert main(["--config=configs/text/lm.py:scale=tiny", "--dry-run", f"--target={name}"]) == 0
    assert "all-reduce along data" in capfd.readouterr().out


def test_the_memory_of_arguments_is_that_of_the_arrays(monkeypatch):
    """A plan counts the bytes that a run puts on a device: state and batch."""
    monkeypatch.setattr(compile_plan.roofline, "measured_cpu", lambda n: SLOW_LINKS)
    sizes = dict(width=16, layers=2, heads=2, mlp_width=32)
    model = decoder(vocab_size=TASK.vocab_size, length=TASK.length, **sizes)
    result = plan_of(devices=DeviceSettings(data=1))
    params = model.init(jax.random.key(0), TASK.blank())["params"]
    state = 3 * sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    batch = 3 * 8 * TASK.length * 4
    # The compiler drops arrays that a step does not read, and adds counts of steps.
    assert abs(result.arguments / (state + batch) - 1) < 0.01
