"""Compares the theory of attention paths with a table of reference values, over ten seeds.

    python benchmarks/attention_paths_seeds.py          about 20 CPU seconds

The task is the hidden Markov task. For i = 0 .. 9 the training data have the seed i, the test data
10000 + i and the heads 1 + i. An entry of the table agrees if the two means over seeds differ by
less than 4 sqrt(sd_reference^2 / 10 + sd_ours^2 / 10).

Paths: g (good) computes the label, d (denoising) sees only the noise, a1 and a2 are adversarial.
U is the order parameter of the paths, and U_g its diagonal entry of path g. GP is the limit of
infinite width, where U is the identity; N is a finite width.
"""

import os
import time

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
import numpy as np

from jaxformer.data import hidden_markov
from theory import attention_paths
from theory.attention_paths.kernel import (
    kernel_alignment,
    kernel_of_factor,
    kernel_task_overlap,
    store_examples,
)
from theory.attention_paths.predictor import psd_factor

T, SEEDS = 0.01, 10  # T is the temperature
WIDTHS = (10, 30, 100, 300, 1000)
# Numbers of each width. u is the first order parameter of the chain, action the minimum of S.
THEORY = ("accuracy", "U_g", "U_a1", "U_d", "U_a2", "corr(g,d)", "u", "action")
# (mean, sd) over the ten seeds of the reference.
REFERENCE = {
    "GP accuracy": (0.844, 0.013),
    "g only": (0.925, 0.014),
    "g + d": (0.953, 0.006),
    "a1": (0.594, 0.026),
    "d": (0.494, 0.014),
    "a2": (0.496, 0.010),
    "top-5 overlap, GP": (0.168, 0.086),
    "top-5 overlap, N=100": (0.287, 0.118),
    "top-5 overlap, N=30": (0.631, 0.173),
    "top-5 overlap, N=10": (0.792, 0.045),
    "top-10 overlap, GP": (0.402, 0.090),
    "top-10 overlap, N=100": (0.739, 0.051),
    "top-10 overlap, N=30": (0.820, 0.027),
    "top-10 overlap, N=10": (0.826, 0.025),
}
# For each width: "mean sd" in the order of THEORY, then the mean scores of the heads, those of
# layer 1 before those of layer 2. The accuracy is in thousandths.
BY_WIDTH = {
    10: "953 7|11.37 1.28|.43 .17|5.64 .95|.42 .12|-.519 .069|1.877 .092|7.37 1.41|.80 .59 1 .10",
    30: "949 7|6.05 .51|.72 .13|3.95 .49|.70 .13|-.326 .038|1.604 .072|8.18 .45|.76 .61 1 .18",
    100: "913 16|2.91 .21|1.14 .10|2.31 .19|1.15 .13|-.152 .018|1.381 .052|7.72 .15|.80 .71 1 .45",
    300: "872 18|1.73 .09|1.24 .06|1.56 .09|1.28 .08|-.061 .009|1.228 .033|7.32 .06|.89 .86 1 .75",
    1000: "853 17|1.258 .035|1.138 .027|1.211 .033|1.160 .035|-.021 .004|1.104 .016|7.115 .022"
    "|.96 .95 1 .92",
}
# Mean alignment of the kernel with the labels, by width.
ALIGNMENT = {"GP": 0.028, 100: 0.030, 30: 0.037, 10: 0.061}
# (mean, sd) over eight seeds of a network with the paths g and d, whose second head is uniform.
# sigma_perp = 5 is the noise perpendicular to the label.
TWO_PATHS = {
    "g only": (0.564, 0.019),
    "GP g + d": (0.825, 0.024),
    "N=10": (0.946, 0.008),
    "corr(g,d) N=10": (-0.853, 0.028),
}


def main() -> None:
    start = time.process_time()
    ours = [four_paths(seed) for seed in range(SEEDS)]
    verdicts = [
        row(name, [run[name] for run in ours], reference) for name, reference in REFERENCE.items()
    ]
    for width, line in BY_WIDTH.items():
        *pairs, scores = line.split("|")
        references = [tuple(map(float, pair.split())) for pair in pairs]
        references[0] = tuple(value / 1000 for value in references[0])  # the accuracy
        for name, reference in zip(THEORY, references):
            key = f"N={width} {name}"
            verdicts.append(row(key, [run[key] for run in ours], reference))
        means = np.mean([run[f"N={width} scores"] for run in ours], 0)
        print(f"  N={width} head scores      {np.round(means, 2)}  reference {scores}")
    for name, value in ALIGNMENT.items():
        mean = np.mean([run[f"alignment {name}"] for run in ours])
        print(f"  alignment {name!s:13s}    {mean:8.3f}   reference {value:.3f} (no sd given)")
    print("two paths, sigma_perp = 5, second head uniform, 8 seeds")
    runs = [two_paths(seed) for seed in range(8)]
    for name, reference in TWO_PATHS.items():
        verdicts.append(row(name, [run[name] for run in runs], reference))
    print(f"{sum(verdicts)} of {len(verdicts)} agree; {time.process_time() - start:.0f} CPU s")


def row(name: str, values: list[float], reference: tuple[float, ...]) -> bool:
    """Prints a row of the table; returns whether the means agree."""
    mean, sd = np.mean(values), np.std(values, ddof=1)
    tolerance = 4 * np.hypot(reference[1], sd) / len(values) ** 0.5
    agrees = bool(abs(mean - reference[0]) < tolerance)
    print(
        f"  {name:22s} {mean:9.3f} +- {sd:.3f}   reference {reference[0]:7.3f} +- "
        f"{reference[1]:.3f}   tolerance {tolerance:.3f}   {'agrees' if agrees else 'DIFFERS'}"
    )
    return agrees


def load(seed: int, design: str, sigma_perp: float):
    """Returns path inputs and labels of the training set, then of the test set."""
    forms = hidden_markov.bilinear_forms(1 + seed, design)
    arrays = []
    for data_seed, count in ((seed, 100), (10_000 + seed, 1000)):
        tokens, labels = hidden_markov.examples(data_seed, count, sigma_perp=sigma_perp)
        arrays += [hidden_markov.attentioned_input(tokens, forms), labels]
    return arrays


def four_paths(seed: int) -> dict:
    """Returns the numbers of one seed of the network with four paths, by their names."""
    xi, labels, xi_test, labels_test = load(seed, "four_paths", 1.0)

    def accuracy(U):
        mean, _ = attention_paths.predict_at(U, xi, labels, T, xi_test)
        return np.mean(np.sign(mean) == labels_test)

    # The paths are in the order g, a1, d, a2.
    run = {"GP accuracy": accuracy(np.eye(4))}
    subsets = {"g only": [0], "g + d": [0, 2], "a1": [1], "d": [2], "a2": [3]}
    for name, paths in subsets.items():
        run[name] = accuracy(np.diag(np.isin(np.arange(4), paths).astype(float)))
    kernels = {"GP": np.eye(4)}
    for width in WIDTHS:
        solution = attention_paths.order_parameter(xi, labels, width, T, (2, 2))
        U = kernels[width] = np.asarray(solution.U)
        correlation = U[0, 2] / (U[0, 0] * U[2, 2]) ** 0.5
        u, action = float(solution.chain[0]), float(solution.action)
        values = (accuracy(U), *np.diag(U), correlation, u, action)
        run |= {f"N={width} {name}": value for name, value in zip(THEORY, values)}
        scores = attention_paths.head_scores(U, (2, 2))
        run[f"N={width} scores"] = np.concatenate(scores)
    for name in ("GP", 100, 30, 10):
        overlaps, alignment = overlap(xi, labels, kernels[name])
        label = name if name == "GP" else f"N={name}"
        for top in (5, 10):
            run[f"top-{top} overlap, {label}"] = (np.asarray(overlaps)[:top] ** 2).sum()
        run[f"alignment {name}"] = float(alignment)
    return run


@jax.jit
def overlap(xi, labels, U):
    """Returns the overlap of the labels with each kernel component, and the kernel's alignment."""
    kernel = kernel_of_factor(store_examples(xi), psd_factor(U))
    return kernel_task_overlap(kernel, labels), kernel_alignment(kernel, labels)


def two_paths(seed: int) -> dict:
    """Returns the numbers of one seed of the network with the paths g and d, by their names."""
    xi, labels, xi_test, labels_test = load(seed, "two_paths_uniform", 5.0)

    def accuracy(U):
        mean, _ = attention_paths.predict_at(U, xi, labels, T, xi_test)
        return np.mean(np.sign(mean) == labels_test)

    U = np.asarray(attention_paths.order_parameter(xi, labels, 10, T, (2, 1)).U)
    return {
        "g only": accuracy(np.diag([1.0, 0.0])),
        "GP g + d": accuracy(np.eye(2)),
        "N=10": accuracy(U),
        "corr(g,d) N=10": U[0, 1] / (U[0, 0] * U[1, 1]) ** 0.5,
    }


if __name__ == "__main__":
    with jax.enable_x64(True):
        main()
