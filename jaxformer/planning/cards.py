"""Accelerators: memory, peak rates and bandwidths of one device, as their makers publish them.

Rates are FLOPs per second of dense matrix products at JAX's default precision. A TPU multiplies
float32 matrices in bfloat16, and an NVIDIA GPU in TF32. Bandwidths are bytes per second. The
bandwidth of links is that of one direction, summed over all links of a device.
"""

from dataclasses import dataclass, field

# {platform: shares of the published rates that products in half precision, products in float32 and
# reads and writes reach, and the seconds between two operations}. On an H100 these are 650 and 220
# TFLOP/s and 2.8 TB/s, which met two measured steps within 6 % (docs/devices.md). The shares of
# TPUs are assumed.
REACHED = {"cuda": (0.657, 0.445, 0.835, 3e-6), "tpu": (0.8, 0.8, 0.85, 0.5e-6)}


@dataclass(frozen=True)
class Card:
    """The published numbers of an accelerator."""

    name: str
    platform: str  # "tpu", "cuda" or "cpu"
    memory: int  # bytes that programs can use
    bfloat16_rate: float
    float32_rate: float
    memory_bandwidth: float
    link_bandwidth: float  # to devices of the same host or slice
    network_bandwidth: float = 0.0  # to devices of other hosts
    devices_per_host: int = 0  # 0: all devices of a target are linked directly
    source: str = ""
    compiler: dict[str, str] = field(default_factory=dict)  # settings that the compiler needs

    def rate(self, dtype: str) -> float:
        """Returns the FLOPs per second of matrix products of a dtype."""
        return self.bfloat16_rate if dtype in ("bfloat16", "float16") else self.float32_rate

    def reached(self, is_half: bool) -> tuple[float, float, float]:
        """Shares of the product rate and the bandwidth that operations reach, and launch seconds.

        Args:
            is_half: whether the products are in half precision.
        """
        half, full, memory, launch = REACHED[self.platform]
        return half if is_half else full, memory, launch


GIB = 2**30
# The chips of two GPU generations, as fields of XLA's `GpuTargetConfigProto`.
HOPPER = """gpu_device_info {{ threads_per_block_limit: 1024 threads_per_warp: 32
  shared_memory_per_block: 49152 shared_memory_per_core: 233472 threads_per_core_limit: 2048
  core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535 memory_bandwidth: {bandwidth} l2_cache_size: 52428800
  clock_rate_ghz: 1.98 device_memory_size: {memory} shared_memory_per_block_optin: 232448
  cuda_compute_capability {{ major: 9 minor: 0 }} registers_per_core_limit: 65536
  registers_per_block_limit: 65536 }}"""
AMPERE = """gpu_device_info {{ threads_per_block_limit: 1024 threads_per_warp: 32
  shared_memory_per_block: 49152 shared_memory_per_core: 167936 threads_per_core_limit: 2048
  core_count: 108 fpus_per_core: 64 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535 memory_bandwidth: {bandwidth} l2_cache_size: 41943040
  clock_rate_ghz: 1.41 device_memory_size: {memory} shared_memory_per_block_optin: 166912
  cuda_compute_capability {{ major: 8 minor: 0 }} registers_per_core_limit: 65536
  registers_per_block_limit: 65536 }}"""
CUDA_VERSIONS = """platform_name: "CUDA"  dnn_version_info { major: 9 minor: 7 patch: 0 }
  runtime_version { major: 12 minor: 8 patch: 0 }"""


def _gpu(generation: str, memory: int, bandwidth: int, description: str) -> dict[str, str]:
    """Returns the description of a GPU in the format of XLA's `GpuTargetConfigProto`."""
    device = generation.format(memory=memory, bandwidth=bandwidth)
    return {"config": f'{device} {CUDA_VERSIONS} device_description_str: "{description}"'}


TPU_DOCS = "https://cloud.google.com/tpu/docs"
NVIDIA_DOCS = "https://www.nvidia.com/en-us/data-center"
# The memory of a device in bytes.
H100_MEMORY, H200_MEMORY, A100_MEMORY = 84_929_347_584, 150_110_011_392, 84_974_239_744
CARDS = {
    card.name: card
    for card in (
        Card(
            name="v5e",
            platform="tpu",
            memory=int(15.75 * GIB),
            bfloat16_rate=197e12,
            float32_rate=197e12,
            memory_bandwidth=819e9,
            link_bandwidth=200e9,
            source=f"{TPU_DOCS}/v5e",
            compiler={"generation": "v5e", "accelerator": "v5litepod-4"},
        ),
        Card(
            name="v5p",
            platform="tpu",
            memory=int(95 * 1e9),
            bfloat16_rate=459e12,
            float32_rate=459e12,
            memory_bandwidth=2765e9,
            link_bandwidth=600e9,
            source=f"{TPU_DOCS}/v5p",
            compiler={"generation": "v5", "accelerator": "v5p-8"},
        ),
        Card(
            name="v6e",
            platform="tpu",
            memory=int(31.25 * GIB),
            bfloat16_rate=918e12,
            float32_rate=918e12,
            memory_bandwidth=1600e9,
            link_bandwidth=400e9,
            source=f"{TPU_DOCS}/v6e",
            compiler={"generation": "v6e", "accelerator": "v6e-4"},
        ),
        Card(
            name="h100",
            platform="cuda",
            memory=H100_MEMORY,
            bfloat16_rate=989e12,
            float32_rate=494e12,
            memory_bandwidth=3352e9,
            link_bandwidth=450e9,
            network_bandwidth=50e9,
            devices_per_host=8,
            source=f"{NVIDIA_DOCS}/h100",
            compiler=_gpu(HOPPER, H100_MEMORY, 3_352_320_000_000, "NVIDIA H100 80GB HBM3"),
        ),
        Card(
            name="h200",
            platform="cuda",
            memory=H200_MEMORY,
            bfloat16_rate=989e12,
            float32_rate=494e12,
            memory_bandwidth=4800e9,
            link_bandwidth=450e9,
            network_bandwidth=50e9,
            devices_per_host=8,
            source=f"{NVIDIA_DOCS}/h200",
            compiler=_gpu(HOPPER, H200_MEMORY, 4_800_000_000_000, "NVIDIA H200"),
        ),
        Card(
            name="a100",
            platform="cuda",
            memory=A100_MEMORY,
            bfloat16_rate=312e12,
            float32_rate=156e12,
            memory_bandwidth=2039e9,
            link_bandwidth=300e9,
            network_bandwidth=25e9,
            devices_per_host=8,
            source=f"{NVIDIA_DOCS}/a100",
            compiler=_gpu(AMPERE, A100_MEMORY, 2_039_000_000_000, "NVIDIA A100-SXM4-80GB"),
        ),
    )
}
