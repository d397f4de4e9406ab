"""Measures gains in accuracy on the hidden Markov task, over many data sets.

A gain is the difference of two predictors on the same data set. A diagonal order parameter U, 1 for
some paths and 0 for the others, is the GP limit with these paths only. N is the width. S is the
axis of data sets, P of training examples, K of noise levels.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from experiments.papers import plots
from experiments.papers.attention_paths import problem
from experiments.papers.attention_paths.problem import Datasets, Example
from experiments.papers.outcome import Figure, Outcome
from jaxformer.stats import standard_error
from theory.attention_paths.kernel import kernel_alignment, kernel_of_U

NARROW, WIDE = 10, 1000  # widths N; the names of metrics contain them


def measure_datasets(designs: Sequence[str], noises: Sequence[float], sets: Datasets) -> Outcome:
    """Measures gains in accuracy, entries of U and kernel alignment, as means over data sets."""
    four_path_numbers = [_numbers_of_four_paths(data, sets.temperature) for data in sets.examples()]
    outcome = Outcome({"noises": noises}, baselines={"chance": 0.5})
    for name in four_path_numbers[0]:
        outcome.scalar(name, np.array([numbers[name] for numbers in four_path_numbers]))
    for design in designs:
        for noise in noises:
            examples = sets.examples(design=design, sigma_perp=float(noise))
            two_path_numbers = [_numbers_of_two_paths(data, sets.temperature) for data in examples]
            for name in two_path_numbers[0]:
                by_set = np.array([numbers[name] for numbers in two_path_numbers])
                outcome.scalar(f"{name}/{design}/sigma_perp={noise:g}", by_set)
        for name in ("gain/N=10 over GP limit", "gain/N=10 over good"):
            first, last = (f"{name}/{design}/sigma_perp={noises[i]:g}" for i in (0, -1))
            growth = outcome.arrays[last] - outcome.arrays[first]
            outcome.scalar(f"{name}/{design}/growth", growth)
    return outcome


def _numbers_of_four_paths(data: Example, temperature: float) -> dict[str, float]:
    good, _, denoising, _ = data.names
    narrow, wide = (np.asarray(data.solve(width, temperature).U) for width in (NARROW, WIDE))
    limit = np.eye(len(data.names))
    combined, alone = data.only(good, denoising), data.only(good)
    names = ("N=10", "N=1000", "GP limit", "good", "good + denoising")
    accuracy = {
        name: data.accuracy_at(U, temperature)
        for name, U in zip(names, (narrow, wide, limit, alone, combined), strict=True)
    }
    numbers = {f"accuracy/{name}": value for name, value in accuracy.items()}
    for better, worse in (
        ("N=10", "GP limit"),
        ("N=10", "good"),
        ("N=10", "good + denoising"),
        ("good + denoising", "good"),
    ):
        numbers[f"gain/{better} over {worse}"] = accuracy[better] - accuracy[worse]
    for i, name in enumerate(data.names):
        numbers[f"U/N=10/{name}"], numbers[f"U/N=1000/{name}"] = narrow[i, i], wide[i, i]
        numbers[f"rise/{name}"] = narrow[i, i] - wide[i, i]
    numbers["correlation/good,denoising"] = problem.correlation(narrow, 0, 2)
    labels_P = jnp.asarray(data.labels)
    aligned_narrow, aligned_limit, aligned_alone = (
        float(kernel_alignment(kernel_of_U(data.attentioned, U), labels_P))
        for U in (narrow, limit, alone)
    )
    numbers["alignment/N=10 over GP limit"] = aligned_narrow - aligned_limit
    numbers["alignment/N=10 over good"] = aligned_narrow - aligned_alone
    return numbers


def _numbers_of_two_paths(data: Example, temperature: float) -> dict[str, float]:
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
    """Draws the gains of N = 10: with four paths (left), and with two against the noise (right)."""
    figure, (left, right) = plots.row(2, (plots.PAGE, 2.4))
    names = [name for name in arrays if name.startswith("gain/") and name.count("/") == 1]
    for k, name in enumerate(names):
        values = 100 * arrays[name]
        left.plot(np.full(len(values), k), values, ".", color="0.7")
        plots.means(left, [k], values[:, None], fmt="o", color=plots.COLOURS[0])
    labels = [name.removeprefix("gain/").replace(" over ", "\nover ") for name in names]
    labels = [label.replace(" + denoising", "\n+ denoising") for label in labels]
    left.set_xticks(range(len(names)), labels, fontsize=plots.figure_style.SMALLEST)
    left.set(ylabel="gain in accuracy (points)", title="four paths")
    for design, colour in zip(designs, plots.COLOURS):
        for other, dashes in (("GP limit", "-"), ("good", "--")):
            kind = f"gain/N=10 over {other}/{design}/sigma_perp="
            values_SxK = np.stack([100 * arrays[f"{kind}{noise:g}"] for noise in noises], 1)
            second = "uniform" if design.endswith("uniform") else "random"
            label = f"over {other}, {second}"
            plots.means(right, noises, values_SxK, color=colour, ls=dashes, label=label)
    right.set(xlabel="perpendicular noise", ylabel="gain of N = 10 (points)")
    plots.label_panel(right, "two paths; the second head is uniform or random", columns=2)
    for axis in (left, right):
        axis.axhline(0, color="0.4", lw=0.8)
    over_combined = 100 * arrays["gain/N=10 over good + denoising"]
    n_sets = len(over_combined)
    error = standard_error(over_combined)
    over_limit = 100 * arrays["gain/N=10 over GP limit"]
    plots.add_finding(
        figure,
        f"The network of width 10 has {over_limit.mean():+.1f} points over the GP limit, and "
        f"{over_combined.mean():+.2f} ± {error:.2f} over good + denoising alone in that limit",
        f"{n_sets} data sets (grey), both sides of a gain on the same; bars: standard errors.",
    )
    return figure


DATASETS = Figure(measure=measure_datasets, draw=draw_datasets)
