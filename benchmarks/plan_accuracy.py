"""Compares plans for this CPU with measured memory, FLOPs and time of a step, for five configs.

    python benchmarks/plan_accuracy.py [CPU_DEVICES]

The memory of a step is the growth of the process: its peak during the step minus its size before
the arguments exist. It includes the arguments, the results and all temporary arrays. By default,
malloc keeps freed arrays below 32 MB, which would count as well. Memory is therefore measured in a
process whose malloc returns them at once, and time in another process. FLOPs are those of the
matrix products in the compiled program.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

CONFIGS = {
    "retrieval": ("mixit/retrieval.py:variant=standard,scale=small", {"train.batch_size": "2048"}),
    "k-hop": ("mixit/hops.py:variant=frozen_qk,scale=small", {"train.batch_size": "512"}),
    "memorisation": (
        "mixit/memorization.py:variant=standard,scale=small",
        {"train.batch_size": "8192"},
    ),
    "Dyck-1": ("mixit/dyck.py:variant=standard,scale=small", {"train.batch_size": "512"}),
    "wide retrieval": (
        "mixit/retrieval.py:variant=standard,scale=small",
        {"model.width": "512", "model.mlp_width": "2048", "train.batch_size": "256"},
    ),
}
# Settings of glibc with which malloc returns freed arrays to the system at once.
RETURN_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_ARENA_MAX": "2"}
ROOT = Path(__file__).parents[1]
MEASURED_STEPS = 5


def main(devices: str = "1") -> None:
    print("config           peak: plan, measured  FLOPs: plan, compiled  step: plan, measured")
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": devices}
    for name in CONFIGS:
        command = [sys.executable, __file__, devices, name]
        outputs = [
            subprocess.run(command, capture_output=True, text=True, env=environment | settings)
            for settings in (RETURN_MEMORY, {})
        ]
        if failed := [out for out in outputs if out.returncode]:
            print(f"{name}: {failed[0].stderr.strip().splitlines()[-1]}")
            continue
        memory_row, time_row = (json.loads(out.stdout.splitlines()[-1]) for out in outputs)
        row = time_row | {"peak": memory_row["peak"]}
        print(
            f"{name:15}"
            + "".join(
                f"  {plan:.4g} {measured:.4g} ({plan / measured:.2f})"
                for plan, measured in (row["peak"], row["flops"], row["seconds"])
            ),
            flush=True,
        )


def measure(devices: int, name: str) -> None:
    """Prints the planned and the measured peak, FLOPs and seconds of a step as JSON."""
    import jax

    from experiments.cli import flags
    from jaxformer import build
    from jaxformer.core.settings import DeviceSettings
    from jaxformer.planning import compile_plan, targets

    file, overrides = CONFIGS[name]
    config = flags.load_with_overrides(str(ROOT / "configs" / file), overrides)
    config.n_seeds, config.optim.learning_rate = 1, config.optim.learning_rate[:1]
    config.devices.update(dict(members=1, data=1, fsdp=1, tensor=1))
    setup = build.phases(config)[0].setup
    target = targets.parse_target(f"cpu:{devices}")
    planned = compile_plan.plan_step(setup, DeviceSettings(), target)
    setup = compile_plan.on_devices(setup, DeviceSettings(), targets.devices_of(target))
    shapes = compile_plan.placed_shapes(setup)
    step = jax.jit(setup.step(), donate_argnums=0).lower(*shapes).compile()
    flops = dot_flops(step.as_text()) * setup.mesh.size
    no_heldout = jax.numpy.zeros(1, jax.numpy.uint32)  # hashes of held-out examples: a dummy
    sampler = Sampler()
    before = sampler.now()
    state = jax.device_put(setup.create(), step.input_shardings[0][0])
    batch = jax.jit(setup.batch_at(no_heldout), out_shardings=step.input_shardings[0][1])(0)
    jax.block_until_ready((state, batch))
    with sampler:
        seconds = []
        for _ in range(MEASURED_STEPS):
            began = time.perf_counter()
            state, metrics = step(state, batch)
            jax.block_until_ready((state, metrics))
            seconds.append(time.perf_counter() - began)
    row = {
        "peak": (planned.peak * devices, sampler.peak - before),
        "flops": (planned.flops, flops),
        "seconds": (planned.step_seconds, min(seconds)),
    }
    print(json.dumps(row))


def dot_flops(text: str) -> float:
    """Returns the FLOPs of the matrix products in a compiled program of a CPU."""
    from jaxformer.planning import hlo
    from jaxformer.planning.operations import operations

    return sum(step.times * step.flops for step in operations(hlo.parse(text)))


class Sampler:
    """A context whose thread records the largest resident memory of this process."""

    def __init__(self) -> None:
        self.peak = 0
        self.is_open = False

    def now(self) -> int:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def __enter__(self) -> "Sampler":
        self.is_open = True
        self.thread = threading.Thread(target=self._sample)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_open = False
        self.thread.join()

    def _sample(self) -> None:
        while self.is_open:
            self.peak = max(self.peak, self.now())
            time.sleep(0.001)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        measure(int(sys.argv[1]), sys.argv[2])
    else:
        main(*sys.argv[1:])
