"""The hidden Markov claims over many data sets; both sides of a comparison see the same data.

The predictor of U = 1 on some paths and 0 on the others is that of the GP limit with these paths.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from experiments.papers import plots
from experiments.papers.attention_paths import problem
from experiments.papers.attention_paths.problem import Datasets, Example
from experiments.papers.outcome import Outcome
from jaxformer.training.metrics import over_seeds
from theory.attention_paths.kernel import kernel_alignment, total_kernel

NARROW, WIDE = 10, 1000


def measure_datasets(designs: Sequence[str], noises: Sequence[float], sets: Datasets) -> Outcome:
    """Gains in accuracy, entries of U and kernel alignment, each a mean over data sets."""
    four = [_four_paths(data, sets.temperature) for data in sets.examples()]
    numbers = {name: np.array([found[name] for found in four]) for name in four[0]}
    two = {}
    for design in designs:
        for noise in noises:
            examples = sets.examples(design=design, sigma_perp=float(noise))
            found = [_two_paths(data, sets.temperature) for data in examples]
            for name in found[0]:
                two[f"{name}/{design}/sigma_perp={noise:g}"] = np.array([x[name] for x in found])
        for name in ("gain/N=10 over GP limit", "gain/N=10 over good"):
            first, last = (f"{name}/{design}/sigma_perp={noises[i]:g}" for i in (0, -1))
            two[f"{name}/{design}/growth"] = two[last] - two[first]
    numbers |= two
    metrics = {name: over_seeds(values) for name, values in numbers.items()}
    return Outcome({"noises": noises} | numbers, metrics, {"chance": 0.5})


def _four_paths(data: Example, temperature: float) -> dict[str, float]:
    good, _, denoising, _ = data.names
    narrow, wide = (np.asarray(data.solve(width, temperature).U) for width in (NARROW, WIDE))
    limit = np.eye(len(data.names))
    both, alone = data.only(good, denoising), data.only(good)
    names = ("N=10", "N=1000", "GP limit", "good", "good + denoising")
    accuracy = {
        name: data.accuracy_at(U, temperature)
        for name, U in zip(names, (narrow, wide, limit, alone, both), strict=True)
    }
    found = {f"accuracy/{name}": value for name, value in accuracy.items()}
    for better, worse in (
        ("N=10", "GP limit"),
        ("N=10", "good"),
        ("N=10", "good + denoising"),
        ("good + denoising", "good"),
    ):
        found[f"gain/{better} over {worse}"] = accuracy[better] - accuracy[worse]
    for i, name in enumerate(data.names):
        found[f"U/N=10/{name}"], found[f"U/N=1000/{name}"] = narrow[i, i], wide[i, i]
        found[f"rise/{name}"] = narrow[i, i] - wide[i, i]
    found["correlation/good,denoising"] = problem.correlation(narrow, 0, 2)
    labels_P = jnp.asarray(data.labels)
    aligned = [
        float(kernel_alignment(total_kernel(data.attentioned, U), labels_P))
        for U in (narrow, limit, alone)
    ]
    found["alignment/N=10 over GP limit"] = aligned[0] - aligned[1]
    found["alignment/N=10 over good"] = aligned[0] - aligned[2]
    return found


def _two_paths(data: Example, temperature: float) -> dict[str, float]:
    U = np.asarray(data.solve(NARROW, temperature).U)
    narrow = data.accuracy_at(U, temperature)
    limit = data.accuracy_at(np.eye(2), temperature)
    good = data.accuracy_at(data.only("good"), temperature)
    return {
        "gain/N=10 over GP limit": narrow - limit,
        "gain/N=10 over good": narrow - good,
        "correlation/N=10": problem.correlation(U, 0, 1),
    }


def draw_datasets(arrays, designs: Sequence[str], noises: Sequence[float]):
    """Left: what N = 10 gains on four paths; right: on two, against the noise. A dot a data set."""
    figure, (left, right) = plots.row(2, (plots.PAGE, 2.4))
    names = [name for name in arrays if name.startswith("gain/") and name.count("/") == 1]
    for k, name in enumerate(names):
        values = 100 * arrays[name]
        left.plot(np.full(len(values), k), values, ".", color="0.7")
        look = {"fmt": "o", "color": plots.COLOURS[0]}
        plots.means(left, [k], values[:, None], **look)
    words = [name.removeprefix("gain/").replace(" over ", "\nover ") for name in names]
    words = [word.replace(" + denoising", "\n+ denoising") for word in words]
    left.set_xticks(range(len(names)), words, fontsize=plots.figure_style.SMALLEST)
    left.set(ylabel="gain in accuracy (points)", title="four paths")
    for design, colour in zip(designs, plots.COLOURS):
        for other, dashes in (("GP limit", "-"), ("good", "--")):
            kind = f"gain/N=10 over {other}/{design}/sigma_perp="
            values_SxK = np.stack([100 * arrays[f"{kind}{noise:g}"] for noise in noises], 1)
            second = "uniform" if design.endswith("uniform") else "random"
            label = f"over {other}, {second}"
            plots.means(right, noises, values_SxK, color=colour, ls=dashes, label=label)
    right.set(xlabel="perpendicular noise", ylabel="gain of N = 10 (points)")
    plots.name(right, "two paths; the second head is uniform or random", columns=2)
    for axis in (left, right):
        axis.axhline(0, color="0.4", lw=0.8)
    both = 100 * arrays["gain/N=10 over good + denoising"]
    error, all_ = both.std(ddof=1) / len(both) ** 0.5, 100 * arrays["gain/N=10 over GP limit"]
    plots.headed(
        figure,
        f"The network of width 10 has {all_.mean():+.1f} points over the GP limit, and "
        f"{both.mean():+.2f} ± {error:.2f} over good + denoising alone in that limit",
        f"{len(both)} data sets (grey), both sides of a gain on the same; bars: standard errors.",
    )
    return figure
