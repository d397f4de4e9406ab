"""The study of one trained attention-path network: its theory, and the pruning of its heads."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers.attention_paths.heads import all_heads
from experiments.papers.attention_paths.resemblance import (
    correlation,
    lower,
    matched_minus_others,
    resemblance,
)
from experiments.papers.outcome import exact
from jaxformer.io import npz_store
from jaxformer.tasks.task import Batch
from jaxformer.training.metrics import Mean, over_seeds
from theory import attention_paths
from theory.attention_paths.kernel import kernel_of_U, kernel_task_overlap

GP_WIDTH = math.inf  # the width of the GP limit
LEADING = 5  # number of leading principal components of a kernel
CHAINS, WARMUP = 2, 300  # of the sampled posterior
METADATA = "said"  # the array of a saved study with its metrics and temperatures, as JSON
BATCH_SIZE = 250  # episodes in one call of the network


class Study(NamedTuple):
    """The results for one network."""

    metrics: dict[str, Mean]
    chosen: dict[str, float]  # width -> temperature chosen on validation classes
    arrays: dict[str, np.ndarray]


# (sampler, draws per chain) -> all chunks of draws, or None if sampling was stopped
Collect = Callable[[attention_paths.Sampler, int], list[dict] | None]


def study(model, params: Any, data: dict[str, Any], collect: Collect) -> Study | None:
    """Studies one network: its accuracy, its heads, and its theory.

    The theory is that of the Bayesian network with the same queries and keys.

    Args:
      model: The network.
      params: Its trained parameters.
      data: "train", "validation" and "test" batches; "ood", other test batches by name; "widths",
        "temperatures" and "draws" of the Bayesian network.
      collect: Samples a posterior.

    Returns:
      The study, or None if sampling was stopped.
    """
    sets: dict[str, Batch] = {"test": data["test"]} | data["ood"]
    scan = _scan(model, params, data, sets)
    # Index 0 of the widths is the GP limit, index 1 the first finite width.
    names = [width_name(width) for width in scan["widths"]]
    best = scan["validation"].argmax(1)
    chosen = {name: float(data["temperatures"][t]) for name, t in zip(names, best)}
    # Indexes (width, temperature): each width at the temperature that validation chose for it.
    at_chosen = np.arange(len(names)), best
    metrics = {}
    for name, accuracy in scan["accuracy"].items():
        accuracy_W = accuracy[at_chosen]
        for width, share in zip(names, accuracy_W):
            metrics[f"{name}/{width}"] = _proportion(share, sets[name])
        metrics |= _minus_limit(name, names, accuracy_W)
    U, overlap = (scan[name][at_chosen] for name in ("U", "overlap"))
    leading_W = (overlap[:, :LEADING] ** 2).sum(1)
    metrics |= {f"top{LEADING}_overlap/{n}": exact(x) for n, x in zip(names, leading_W)}
    metrics |= _minus_limit(f"top{LEADING}_overlap", names, leading_W)
    temperatures_W = np.log10([chosen[name] for name in names])
    metrics |= _minus_limit("log10_temperature", names, temperatures_W)

    pruned = _prune(model, params, U[1], sets)
    for name, accuracy in pruned["whole"].items():
        metrics[f"{name}/gradient_descent"] = _proportion(accuracy, sets[name])
    scores, drops = pruned["scores"], pruned["drops"]
    for name in sets:
        metrics[f"{name}/score_drop_correlation"] = correlation(scores, drops[name])
    learned_U = _gram(model, params, data["train"].inputs.shape[-1])
    learned_scores = np.concatenate(attention_paths.head_scores(learned_U, model.spec.heads))
    metrics["learned_theory_score_correlation"] = correlation(learned_scores, scores)
    metrics["learned_theory_U_correlation"] = correlation(lower(learned_U), lower(U[1]))
    resemblances = resemblance(learned_U, U[1], model.spec.heads)
    metrics |= {name: exact(value) for name, value in resemblances.items()}
    for name in sets:
        for k in range(1, len(pruned["low_first"][name])):
            low, high = (pruned[f"{order}_first"][name] for order in ("low", "high"))
            metrics[f"{name}/cost_of_pruning/{k}"] = exact(low[0] - low[k])
            metrics[f"{name}/high_minus_low/{k}"] = exact(low[k] - high[k])
    if data["draws"]:
        best_temperature = float(chosen[names[1]])
        drawn = _sample_posterior(scan, data, model.spec.heads, best_temperature, sets, collect)
        if drawn is None:
            return None
        sampled, U_sampled = drawn
        theory = {name: metrics[f"{name}/{names[1]}"].mean for name in sets}
        for name in sets:
            gap = sampled[f"{name}/{names[1]}_sampled"].mean - theory[name]
            sampled[f"{name}/{names[1]}_sampled_minus_theory"] = exact(gap)
        sampled["U_sampled_theory_correlation"] = correlation(lower(U_sampled), lower(U[1]))
        metrics |= sampled
    arrays = {"U_learned": learned_U, "U_theory": U, "overlap": overlap, "scores": scores}
    arrays |= {"scores_learned": learned_scores, "temperatures": np.array(data["temperatures"])}
    arrays |= {"validation": scan["validation"], "widths": np.array(scan["widths"])}
    for name in sets:
        arrays |= {f"{name}/scan": scan["accuracy"][name], f"{name}/drops": drops[name]}
        arrays |= {f"{name}/{order}": pruned[order][name] for order in ("low_first", "high_first")}
    return Study(metrics, chosen, arrays)


def _minus_limit(name: str, widths: list[str], values_W: np.ndarray) -> dict[str, Mean]:
    """Returns the value of each finite width minus the value of the GP limit."""
    return {
        f"{name}/{width}_minus_GP": exact(value - values_W[0])
        for width, value in zip(widths[1:], values_W[1:])
    }


def write_study(file: Path, study: Study) -> None:
    """Writes the study of a network to a file, from which a resumed run reads it."""
    metrics = {name: tuple(value) for name, value in study.metrics.items()}
    text = json.dumps({"metrics": metrics, "chosen": study.chosen})
    npz_store.write(file, study.arrays | {METADATA: np.array(text)})


def read_study(file: Path) -> Study:
    """Reads the study of a network from a file."""
    arrays = npz_store.read(file)
    metadata = json.loads(str(arrays.pop(METADATA)))
    metrics = {name: Mean(*value) for name, value in metadata["metrics"].items()}
    return Study(metrics, metadata["chosen"], arrays)


def summarise(studies: list[Study]) -> tuple[dict[str, Mean], dict[str, np.ndarray]]:
    """Returns the metrics over the seeds, and the arrays with a leading axis of seeds.

    `accuracy` is the accuracy of the trained network on held-out classes.
    """
    metrics = {
        name: over_seeds([study.metrics[name].mean for study in studies])
        for name in studies[0].metrics
    }
    metrics = {"accuracy": metrics["test/gradient_descent"]} | metrics
    arrays = {
        name: np.stack([study.arrays[name] for study in studies]) for name in studies[0].arrays
    }
    over_others_S = matched_minus_others(arrays["U_learned"], arrays["U_theory"][:, 1])
    return metrics | {"U_over_other_networks": over_seeds(over_others_S)}, arrays


def width_name(width: float) -> str:
    return "GP" if width == GP_WIDTH else f"N={width:g}"


def _scan(model, params, data, sets: dict[str, Batch]) -> dict[str, Any]:
    """Scans all widths, the GP limit first, and all temperatures.

    Returns:
      Accuracies, U, and the overlap of the kernel's components with the labels. The leading axes of
      each array are (widths, temperatures).
    """
    attend = jax.jit(lambda p, x: model.apply({"params": p}, x, method="attentioned_input"))

    def attentioned(batch: Batch) -> np.ndarray:
        parts = np.array_split(np.asarray(batch.inputs), math.ceil(len(batch.inputs) / BATCH_SIZE))
        return np.concatenate([np.asarray(attend(params, part), np.float64) for part in parts])

    train, labels = attentioned(data["train"]), _targets(data["train"])
    tests = {name: attentioned(batch) for name, batch in sets.items()}
    validation_inputs, validation_labels = (
        attentioned(data["validation"]),
        _targets(data["validation"]),
    )
    widths, temperatures = (GP_WIDTH, *data["widths"]), data["temperatures"]
    shape, paths = (len(widths), len(temperatures)), train.shape[1]
    validation, U = np.zeros(shape), np.zeros((*shape, paths, paths))
    overlap = np.zeros((*shape, len(labels)))
    accuracy = {name: np.zeros(shape) for name in sets}
    with jax.enable_x64(True):
        all_inputs = np.concatenate([validation_inputs, *tests.values()])
        stops = np.cumsum([len(validation_inputs), *(len(x) for x in tests.values())])[:-1]
        for t, temperature in enumerate(temperatures):
            for k, width in enumerate(widths):
                U[k, t] = np.eye(paths)
                if width != GP_WIDTH:
                    U[k, t] = attention_paths.order_parameter(
                        train, labels, width, temperature, model.spec.heads
                    ).U
                kernel = kernel_of_U(train, U[k, t])
                overlap[k, t] = kernel_task_overlap(kernel, jnp.asarray(labels))
                mean, _ = attention_paths.predict_at(
                    U[k, t], train, labels, temperature, all_inputs
                )
                f_validation, *f_tests = np.split(np.asarray(mean), stops)
                validation[k, t] = np.mean((f_validation > 0) == (validation_labels > 0))
                for (name, batch), f in zip(sets.items(), f_tests):
                    accuracy[name][k, t] = np.mean((f > 0) == (_targets(batch) > 0))
    numbers = dict(widths=widths, validation=validation, accuracy=accuracy, U=U, overlap=overlap)
    return numbers | dict(train=train, labels=labels, tests=tests)


def _sample_posterior(
    scan, data, heads, temperature: float, sets: dict[str, Batch], collect: Collect
):
    """Samples the exact posterior of the network of the first width.

    Returns:
      Accuracies and diagnostics of the chains, and E[U]; or None if sampling was stopped.
    """
    width = data["widths"][0]
    with jax.enable_x64(True):
        inputs = (scan["train"], scan["labels"], width, temperature, heads)
        sampler = attention_paths.Sampler.build(*inputs, WARMUP, CHAINS)
        chunks = collect(sampler, math.ceil(data["draws"] / CHAINS))
        if chunks is None:
            return None
        posterior = sampler.posterior(chunks, data["draws"])
        means = {name: posterior.mean(scan["tests"][name]) for name in sets}
    trusted = 1.0  # a factor; nan if the chains are not trusted, so that no rule is decided
    if posterior.doubts:
        print(f"the chains are not trusted: {'; '.join(posterior.doubts)}.", flush=True)
        trusted = math.nan
    metrics = {}
    for name, f in means.items():
        share = np.mean((f > 0) == (_targets(sets[name]) > 0))
        metrics[f"{name}/{width_name(width)}_sampled"] = exact(trusted * share)
    for name in ("r_hat_rank", "ess_bulk", "ess_tail", "divergences", "bfmi"):
        metrics[f"chains/{name}"] = exact(posterior.diagnostics[name])
    return metrics, trusted * posterior.gram_hidden()


def _prune(model, params, U, sets: dict[str, Batch]) -> dict[str, Any]:
    """Returns the theory's head scores, and the network's accuracy without some heads.

    "drops" has the accuracy lost without each single head. "low_first" and "high_first" have the
    accuracy as heads are dropped one by one in the order of their scores.
    """
    heads = model.spec.heads
    positions = all_heads(heads)
    scores = np.concatenate([np.asarray(s) for s in attention_paths.head_scores(U, heads)])

    @jax.jit
    def answer(params, inputs, kept):
        return model.apply({"params": params}, inputs, kept=kept)

    def accuracy(batch: Batch, dropped: set[int]) -> float:
        kept = [np.ones(count, np.float32) for count in heads]
        for index in dropped:
            layer, head = positions[index]
            kept[layer][head] = 0
        parts = np.array_split(np.asarray(batch.inputs), math.ceil(len(batch.inputs) / BATCH_SIZE))
        f = np.concatenate([np.asarray(answer(params, part, kept)) for part in parts])
        return float(np.mean((f > 0) == (_targets(batch) > 0)))

    def prune_in_order(batch: Batch, order) -> np.ndarray:
        """Returns the accuracy as heads are dropped in this order, except a layer's last one."""
        dropped, row, remaining = set(), [accuracy(batch, set())], list(heads)
        for index in order:
            layer = positions[index][0]
            if remaining[layer] > 1:
                remaining[layer] -= 1
                dropped.add(int(index))
                row.append(accuracy(batch, dropped))
        return np.array(row)

    ascending = np.argsort(scores)
    descending = ascending[::-1]
    whole = {name: accuracy(batch, set()) for name, batch in sets.items()}
    return {
        "whole": whole,
        "scores": scores,
        "drops": {
            name: np.array([whole[name] - accuracy(batch, {h}) for h in range(len(positions))])
            for name, batch in sets.items()
        },
        "low_first": {name: prune_in_order(batch, ascending) for name, batch in sets.items()},
        "high_first": {name: prune_in_order(batch, descending) for name, batch in sets.items()},
    }


def _gram(model, params, n: int) -> np.ndarray:
    """Returns the order parameter v v^T of the trained path weights v.

    v includes neither the input projection nor the normalisation.
    """
    v_DxN, _ = model.apply({"params": jax.tree.map(jnp.asarray, params)}, n, method="path_weights")
    return np.asarray(v_DxN @ v_DxN.T, np.float64)


def _targets(batch: Batch) -> np.ndarray:
    """Returns the labels as +1 and -1."""
    return 2.0 * np.asarray(batch.targets, np.float64)[:, 0] - 1


def _proportion(value: float, batch: Batch) -> Mean:
    """Returns a share of the batch's examples with its binomial standard error."""
    n = len(batch.inputs)
    return Mean(float(value), math.sqrt(value * (1 - value) / n), n)
