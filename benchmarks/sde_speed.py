"""CPU seconds of the covariance SDE, after compilation, and its peak memory.

    python benchmarks/sde_speed.py        about 3 minutes on one core

Targets for m tokens: m=8, 10,000 paths, 300 steps in at most 4 CPU seconds; m=64, 1,000 paths, 300
steps in at most 30 CPU seconds, within 2 GiB. The second table compares the structured step (two
m x m products) with the textbook step (square root of the p x p covariance of the noise,
p = m(m+1)/2). Its times are those of one path and step.
"""

import os
import resource
import time

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import numpy as np

from theory import covariance_sde as cs


def cpu_seconds(run) -> float:
    """Returns the CPU seconds of a call after one that compiles."""
    jax.block_until_ready(run(jax.random.key(0)))
    start = time.process_time()
    jax.block_until_ready(run(jax.random.key(1)))
    return time.process_time() - start


def start(m: int) -> np.ndarray:
    """Returns the initial covariance of m tokens: 1 on the diagonal and 0.5 elsewhere."""
    return 0.5 * np.eye(m) + 0.5


def predict_seconds(m: int, paths: int, steps: int, solver: cs.Factor | cs.Euler) -> float:
    return cpu_seconds(lambda key: cs.predict(key, start(m), 0.1, paths, steps, solver=solver))


def main() -> None:
    print(f"{'what':44s} {'CPU s':>8s} {'target':>8s} {'peak GiB':>9s}")

    def row(what: str, seconds: float, target: str = "") -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{what:44s} {seconds:8.2f} {target:>8s} {peak:9.2f}", flush=True)

    row("predict m=8, 10,000 paths, 300 steps", predict_seconds(8, 10_000, 300, cs.Factor()), "4")
    row("predict m=64, 1,000 paths, 300 steps", predict_seconds(64, 1_000, 300, cs.Factor()), "30")
    exact = cpu_seconds(lambda key: cs.measure(key, start(8), 200, 100, 2_000))
    row("measure m=8, n=200, depth 100, 2,000 samples", exact)
    network = {"network": cs.Network()}
    # A tenth of the depth and a twentieth of the samples of the row above.
    recursion = cpu_seconds(lambda key: cs.measure(key, start(8), 200, 10, 100, **network))
    row("the same by the recursion of h, extrapolated", recursion * 200)

    print(f"\n{'m':>4s} {'p':>5s} {'structured us':>14s} {'textbook us':>12s} {'ratio':>8s}")
    previous = None
    for m, paths in ((4, 2000), (8, 200), (16, 20)):
        structured = predict_seconds(m, 40 * paths, 20, cs.Factor()) / (40 * paths * 20) * 1e6
        textbook = predict_seconds(m, paths, 20, cs.Euler()) / (paths * 20) * 1e6
        growth = ""
        if previous:
            exponents = np.log2([structured / previous[0], textbook / previous[1]])
            growth = f"   growth as m^{exponents[0]:.1f} and m^{exponents[1]:.1f}"
        previous = structured, textbook
        ratio = textbook / structured
        print(
            f"{m:4d} {m * (m + 1) // 2:5d} {structured:14.3f} {textbook:12.1f} {ratio:8.0f}{growth}"
        )


if __name__ == "__main__":
    with jax.enable_x64(True):
        main()
