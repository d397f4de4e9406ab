"""Headlines of the demo: the runs of each paper, and the sentence with their numbers."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from experiments.ledger.record_numbers import record_number
from jaxformer.io.run_folder import Workdir

Runs = Mapping[str, Workdir]


class Part(NamedTuple):
    """A run: its config, its overrides, and its approximate CPU seconds."""

    config: str
    seconds: float
    overrides: Mapping[str, str] = {}


class Headline(NamedTuple):
    """A claim of a paper with the runs that show it."""

    paper: str  # a key of PAPERS
    item: str  # "Table 2, retrieval"
    parts: Mapping[str, Part]
    say: Callable[[Runs], str]

    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts.values())


def freezing(runs: Runs) -> str:
    """Returns which parts must be trained for retrieval and for memorisation."""
    guess = result(runs["retrieval, Frozen-QK"])["baselines"]["in_context_guess"]
    said = {name: percent(run) for name, run in runs.items()}
    return (
        "a transformer whose random queries and keys are never trained answers "
        f"{said['retrieval, Frozen-QK']} of look-ups, one that is trained whole "
        f"{said['retrieval, Standard']}. With fixed random mixing in place of attention it is "
        f"{said['retrieval, MixiT']}, where naming any value of the context gives "
        f"{100 * guess:.1f} %. Of random facts fixed mixing memorises "
        f"{said['memorisation, MixiT']}, a transformer {said['memorisation, Standard']}"
    )


def stochastic_equation(runs: Runs) -> str:
    """Returns how far the SDE's distribution is from that of networks."""
    workdir = runs["SDE and networks"]
    widths = result(workdir)["config"]["figure"]["widths"]
    width = sorted(widths)[len(widths) // 2]
    with np.load(workdir / "arrays.npz") as arrays:
        theory = arrays["sde/log_trace"][:, -1]
        networks = arrays[f"n={width}/log_trace"][:, -1]
        tau = arrays["times"][-1]
    metrics = result(workdir)["metrics"]
    names = [name for name in metrics if name.endswith(f"tau={tau:g}/n={width}")]
    worst = max(metrics[name]["mean"] for name in names)
    return (
        f"in networks of random mixing of width {width} and depth {tau * width:g} the mean "
        f"logarithm of the tokens' size is {_mean(networks)}; the stochastic differential "
        f"equation says {_mean(theory)}. Their distributions differ by at most {worst:.3f}, and "
        f"two samples of one by up to {metrics['ks_noise']['mean']:.3f} (Kolmogorov distance)"
    )


def trainability(runs: Runs) -> str:
    """Returns how many networks lie on the predicted side of the diagram."""
    workdir = runs["trainability diagram"]
    figure = result(workdir)["config"]["figure"]
    with np.load(workdir / "arrays.npz") as arrays:
        measured_BxAxS = arrays["measured"]
        betas, alphas = arrays["measured_beta"], arrays["measured_alpha"]
        edge_B = np.interp(betas, arrays["beta"], arrays["critical_alpha"])
    cosine_BxA = measured_BxAxS.mean(-1)
    agree_BxA = (cosine_BxA > 1 - figure["epsilon"]) == (alphas[None] < edge_B[:, None])
    low, high = (_mean(measured_BxAxS[0, i]) for i in (0, -1))
    return (
        f"after {figure['layers']} layers two tokens have cosine {low} (1: all alike) with skip "
        f"connections of strength {alphas[0]:g}, and {high} with {alphas[-1]:g}. Theory puts the "
        f"border at {edge_B[0]:.2f}. Of {agree_BxA.size} measured networks {agree_BxA.sum()} lie "
        "on the side that it says"
    )


def order_parameter(runs: Runs) -> str:
    """Returns the sampled order parameter of two paths."""
    workdir = runs["collapsed posterior"]
    held = result(workdir)
    good_denoising = held["metrics"]["U/good,denoising"]
    with np.load(workdir / "arrays.npz") as arrays:
        saddle = arrays["U_theory"][0, 2]  # the order of paths is good, a1, denoising, a2
    return (
        f"a Bayesian transformer of width {held['config']['posterior']['width'][0]} subtracts the "
        "denoising path from the good one: their entry in the order parameter is "
        f"{_say(good_denoising)}, below zero (the theory, an approximation for wide networks, has "
        f"{saddle:.2f}). It classifies {percent(workdir)} of new sequences, a network of infinite "
        f"width {100 * held['baselines']['accuracy_gp_limit']:.1f} %"
    )


def noise(runs: Runs) -> str:
    """Returns the probabilities with and without the last feed-forward layer."""
    metrics = result(runs["noisy recall"])["metrics"]
    say = {name: _say(value, digits=3) for name, value in metrics.items()}
    return (
        "without the last feed-forward layer the probability of the right token goes from "
        f"{say['p_correct']} to {say['p_correct_without_f2']}, that of the noise from "
        f"{say['p_noise']} to {say['p_noise_without_f2']}: it holds the noise"
    )


def result(workdir: Workdir) -> dict[str, Any]:
    return workdir.read("result.json")


def percent(workdir: Workdir) -> str:
    """Returns a run's accuracy with the error of its test set, such as "99.6 ± 0.1 %"."""
    held = result(workdir)
    number = record_number(held["metrics"]["accuracy"], held["members"], "accuracy")
    return f"{number.percent()} %"


def _say(value: Mapping[str, Any], digits: int = 2) -> str:
    error = "" if value["sem"] is None else f" ± {value['sem']:.{digits}f}"
    return f"{value['mean']:.{digits}f}{error}"


def _mean(values: np.ndarray) -> str:
    error = values.std(ddof=1) / len(values) ** 0.5
    return f"{values.mean():.3f} ± {error:.3f}"


SEEDS = {"n_seeds": "3"}
# Between tiny, which only shows that it runs, and small, which takes ten times as long.
RECALL = SEEDS | {
    "task.context": "32",
    "model.width": "128",
    "train.batch_size": "32",
    "train.steps": "250",
    "train.eval_every": "250",
    "optim.learning_rate": "0.05",
    "recall.probe_every": "50",
    "recall.followed": "()",
    "data.test_size": "128",
}
HEADLINES = (
    Headline(
        "mixit",
        "Table 2, retrieval",
        {
            f"{task}, {name}": Part(f"configs/mixit/{file}:variant={variant},scale=tiny", 15, SEEDS)
            for task, file, name, variant in (
                ("retrieval", "retrieval.py", "Standard", "standard"),
                ("retrieval", "retrieval.py", "Frozen-QK", "frozen_qk"),
                ("retrieval", "retrieval.py", "MixiT", "mixit"),
                ("memorisation", "memorization.py", "Standard", "standard"),
                ("memorisation", "memorization.py", "MixiT", "mixit"),
            )
        },
        freezing,
    ),
    Headline(
        "random_attention",
        "Theorem 2.1",
        {
            "SDE and networks": Part(
                "configs/mixit/sde_paths.py:scale=small", 20, {"figure.widths": "(50, 200)"}
            )
        },
        stochastic_equation,
    ),
    Headline(
        "two_failure_modes",
        "Figure 1c",
        {
            "trainability diagram": Part(
                "configs/two_failure_modes/fig1_trainability.py:scale=small", 30
            )
        },
        trainability,
    ),
    Headline(
        "associations",
        "Figure 3",
        {"noisy recall": Part("configs/associations/recall.py:scale=tiny", 20, RECALL)},
        noise,
    ),
    Headline(
        "attention_paths",
        "Figure 2c, bottom",
        {"collapsed posterior": Part("configs/attention_paths/posterior.py:scale=small", 25)},
        order_parameter,
    ),
)
