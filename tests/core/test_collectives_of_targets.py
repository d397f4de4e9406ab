"""Communication of programs compiled for accelerators that this machine lacks.

The tests need libtpu (`pip install -e '.[tpu]'`) or the CUDA plugin of JAX (`.[cuda12]`).
"""

import importlib.util
import json
import os
import subprocess
import sys

import jax.numpy as jnp
import pytest

import jaxformer
from jaxformer.core.settings import DeviceSettings
from jaxformer.models.decoder import decoder
from jaxformer.planning.published import TokenTask
from tests.core.test_collectives import COMPILE
from tests.core.test_sharding import ROOT

H100 = """gpu_device_info { threads_per_block_limit: 1024 threads_per_warp: 32
  shared_memory_per_block: 49152 shared_memory_per_core: 233472 threads_per_core_limit: 2048
  core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535 memory_bandwidth: 3352320000000 l2_cache_size: 52428800
  clock_rate_ghz: 1.98 device_memory_size: 84929347584 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 minor: 0 } registers_per_core_limit: 65536
  registers_per_block_limit: 65536 }
platform_name: "CUDA" dnn_version_info { major: 9 minor: 7 patch: 0 }
runtime_version { major: 12 minor: 8 patch: 0 } device_description_str: "NVIDIA H100 80GB HBM3" """
TARGETS = {
    "v5e:4x4": {"platform": "tpu", "topology_name": "v5e:4x4"},
    "h100:8": {"platform": "cuda", "topology": "1x1x8", "target_config": H100},
}
TPU_HOST = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
WIDE = {
    **{"model.width": 256, "model.heads": 4, "model.mlp_width": 1024, "model.layers": 2},
    **{"task.max_pairs": 31, "task.vocab": 128, "train.batch_size": 64},
}
PROGRAM = """
from jax.experimental import topologies
BYTES |= {"bf16": 2, "f16": 2}
TOPOLOGY = topologies.get_topology_desc(**TARGET).devices
"""


def compiled(target, mesh):
    """Returns the communication and the peak memory of the training step on a target."""
    needed = "libtpu" if target.startswith("v5e") else "jax_plugins.xla_cuda12"
    if importlib.util.find_spec(needed.split(".")[0]) is None or (
        "." in needed and importlib.util.find_spec(needed) is None
    ):
        pytest.skip(f"{needed} is not installed: nothing compiles for {target}")
    program = f"CASES, TARGET = [{{'mesh': {mesh}, 'set': {WIDE}}}], {TARGETS[target]!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", program + COMPILE.replace("\nprint(", PROGRAM + "\nprint(")],
        env=os.environ | TPU_HOST | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rematerialization" not in done.stderr
    return json.loads(done.stdout.split("RESULT")[1])[0]


@pytest.mark.slow
@pytest.mark.parametrize("target, devices", [("v5e:4x4", 16), ("h100:8", 8)])
def test_fsdp_communicates_parameters_on_accelerators(target, devices):
    """Unconstrained activations took 112 MB a device on v5e:4x4, and did not compile for h100:8."""
    result = compiled(target, {"fsdp": devices})
    arrays = result["arrays"]
    assert len(arrays.get("all-to-all", ())) <= 2
    assert result["peak"] <= {"v5e:4x4": 21e6, "h100:8": 32e6}[target]
    if target == "h100:8":  # the text of a TPU program repeats each collective
        gathered = sum(size for _, size in arrays["all-gather"])
        scattered = sum(size for _, size in arrays["reduce-scatter"])
        # Each line lists the shards and the whole: 9 / 8 of the parameters.
        assert max(gathered, scattered) <= 1.13 * result["parameters"]
        assert sum(size for _, size in arrays["all-reduce"]) <= 0.02 * result["parameters"]


@pytest.mark.slow
def test_tensor_parallelism_adds_the_stream_once_a_branch_and_direction():
    arrays = compiled("h100:8", {"data": 2, "tensor": 4})["arrays"]
    rows = [shape for shape, _ in arrays["all-reduce"] if shape == [32 * 63, 256]]
    # Attention and MLP of block 0, forward and backward. Block 1 has queries and an MLP at the
    # scored token only. Its keys and values read every token: one more sum, backward.
    assert len(rows) == 5


@pytest.mark.slow
def test_the_gradient_of_embeddings_is_summed_in_parts():
    """All devices would add the whole table otherwise: 1 GiB each for a model of 8B parameters."""
    if importlib.util.find_spec("jax_cuda12_plugin") is None:
        pytest.skip("jax_cuda12_plugin is not installed: nothing compiles for h100:4")
    sizes = dict(vocab_size=4096, length=16, width=64, layers=1, heads=2, mlp_width=64)
    for dtype in (jnp.float32, jnp.bfloat16):
        plan = jaxformer.plan(
            TokenTask(16, vocab_size=4096),
            decoder(**sizes, dtype=dtype),
            target="h100:4",
            batch_size=8,
            loss_chunk=64,
            devices=DeviceSettings(fsdp=4, data=1),
        )
        added = sum(x.array_bytes for x in plan.exchanges if x.kind == "all-reduce")
        scattered = sum(x.array_bytes for x in plan.exchanges if x.kind == "reduce-scatter")
        table = 4 * 4096 * 64
        assert added < 0.01 * table and scattered > 2 * table, (dtype, plan.exchanges)
        assert all(x.kind != "all-to-all" for x in plan.exchanges)
