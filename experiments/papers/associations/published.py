"""Next tokens of published models, full and cut (LASER): Tables 1 and 5, Figures 5 and 14 to 17.

A source is a folder, a GGUF file, "package:NAME", a name on the hub, or "tiny:FAMILY", a random
tiny model without meaning. A list of revisions is a trajectory of training. The numbers of each
revision are cached, so that a stopped run resumes. The cached numbers of a folder are used while
its files are unchanged.
"""

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers import plots
from experiments.papers.associations import next_token, paper_prompts
from experiments.papers.associations.laser_search import matching_matrices
from experiments.papers.associations.row_file import ROW_FORMAT, RowFile
from experiments.papers.outcome import Figure, Outcome, exact
from jaxformer import loading, surgery
from jaxformer.core import paths
from jaxformer.core.config_fields import DTYPES
from jaxformer.core.errors import NotFiniteError, UserError, check_choice
from jaxformer.interp.prompts import first_token
from jaxformer.models.pretrained import Pretrained, describe, folder, hub, load_folder, text, tiny
from jaxformer.training.metrics import over_seeds

TINY = "tiny:"
WHOLE = "whole"
MARKERS = "os^D"  # of the cut matrices in a figure
LABELS = {"target": "the right word", "wrong": "the wrong word", "the": '"the"', "them": '"them"'}
NEVER = 10**9  # a step that no training reaches
LEARNED_RANK = 10  # "the" is learned at the first step at which its mean rank is at most this


def measure_published(
    source: str,
    revisions: Sequence[str],
    prompt: str,
    sentences: int,
    matrix: str,
    fractions: Sequence[float],
    dtype: str,
    seed: int,
) -> Outcome:
    """Measures probability and rank of the right word, the wrong word and "the", full and cut.

    Args:
      source: A folder, a GGUF file, "package:NAME", a name on the hub, or "tiny:FAMILY".
      revisions: Revisions of the model; ("",) for its only one.
      prompt: A kind of `paper_prompts.KINDS`.
      sentences: The number of prompts, or 0 for all.
      matrix: A pattern of the matrices to cut.
      fractions: Shares of the rank to keep.
      dtype: The dtype of the parameters.
      seed: The seed of the names in prompts of kind "ioi".
    """
    settings = {
        "source": source,
        "prompt": prompt,
        "sentences": sentences,
        "matrix": matrix,
        "fractions": list(fractions),
        "dtype": dtype,
        "seed": seed,
        **ROW_FORMAT,
    }
    if prompt in paper_prompts.MORE_GENERIC:
        settings["followed"] = list(paper_prompts.MORE_GENERIC[prompt])
    row_file = RowFile(cache_folder(settings), settings)
    cached = {(row["revision"], row.get("files")): row for row in row_file.read()}
    files = {revision: files_of(source, revision) for revision in revisions}
    rows = []
    with jax.enable_x64(False):
        for i, revision in enumerate(revisions):
            key = (revision, files[revision])
            if key not in cached:
                # i is a seed: each revision of a tiny model has other weights.
                row = _measure_revision(source, revision, i, settings)
                cached[key] = row | {"files": files[revision]}
                row_file.append(cached[key])
            rows.append(cached[key])
    _check_finite(rows, revisions)
    return _outcome(rows, revisions)


def _check_finite(rows: Sequence[dict[str, Any]], revisions: Sequence[str]) -> None:
    """Raises if a number of any revision is missing because its logits are not finite."""
    broken = [
        revision or "its only revision"
        for revision, row in zip(revisions, rows, strict=True)
        if any(None in values for by_name in row["values"].values() for values in by_name.values())
    ]
    if broken:
        raise NotFiniteError(
            f"expected finite logits, got nan or infinity at {', '.join(broken)}: there is no "
            "probability and no rank. Try --config.figure.dtype=float32, then check the weights."
        )


def files_of(source: str, revision: str) -> str:
    """Returns a hash of the names, sizes and times of a local model's files.

    Returns "" for a model on the hub and for a tiny model, which never change.
    """
    if source.startswith(TINY):
        return ""
    path = hub.path_of(source) if loading.is_published(source) else Path(source)
    if not path.exists():
        path = hub.local_folder(source, revision)
    if path is None or not path.exists():
        return ""
    names = sorted(path.iterdir()) if path.is_dir() else [path]
    files = [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in names]
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()[:16]


def check_published(
    source: str, prompt: str, matrix: str, fractions: Sequence[float], dtype: str
) -> None:
    """Raises if the measurement would refuse its settings; downloads nothing."""
    check_choice("dtype", dtype, DTYPES)
    check_choice("kind of prompt", prompt, paper_prompts.KINDS)
    for fraction in fractions:
        surgery.check_fraction(fraction)
    if fractions:
        check_matrix(source, matrix)


def check_matrix(source: str, matrix: str) -> None:
    """Raises unless a matrix of the model matches; a model on the hub is not downloaded for it."""
    if source.startswith(TINY):
        kind = source.removeprefix(TINY)
        check_choice("kind of tiny model", kind, tiny.CONFIGS)
        config = tiny.CONFIGS[kind] | {"vocab_size": 1}  # any size: only paths are compared
    elif loading.is_published(source):
        config = folder.read_config(hub.path_of(source))
    else:
        return hub.check_name(source)
    shapes = folder.shapes(Pretrained(describe(config, source)))
    abstract = {path: jax.ShapeDtypeStruct(shape, bool) for path, shape in shapes.items()}
    surgery.matrices(paths.unflatten(abstract), matrix)


def open_model(source: str, revision: str, seed: int, dtype: str) -> tuple[Any, Any, Any]:
    """Returns (model, params, tokenizer). The seed draws the weights of a tiny model."""

    def load(path: Path) -> tuple[Any, Any, Any]:
        model, params, _ = load_folder(path, dtype)
        return model, params, text.Text(path, model.spec.vocab_size)

    if source.startswith(TINY):
        with tempfile.TemporaryDirectory() as path:
            kind = source.removeprefix(TINY)
            return load(tiny.save(kind, path, paper_prompts.texts(), seed=seed))
    path = loading.published(source, revision or None)
    if path is None:
        raise UserError(
            f"{source} is no published model: give its folder, GGUF file, package:NAME or its name "
            "on the hub."
        )
    return load(path)


def _measure_revision(
    source: str, revision: str, seed: int, settings: dict[str, Any]
) -> dict[str, Any]:
    """Returns {"revision", "values": {cut: {quantity: [a number for each prompt]}}, "notes"}.

    A cut is "whole" or a name such as "block_15/mlp/in@0.02". A quantity is None after a prompt
    whose logits are not finite.
    """
    model, params, tokenizer = open_model(source, revision, seed, settings["dtype"])
    prompts = paper_prompts.prompts_of(
        settings["prompt"], settings["sentences"], settings["seed"], tokenizer
    )
    batch = next_token.encode(tokenizer, [p.text for p in prompts], [p.target for p in prompts])

    def first_tokens(words: Sequence[str]) -> np.ndarray:
        return np.array([first_token(tokenizer, word)[0] for word in words])

    tokens = {"target": batch.targets_B}
    for word in (paper_prompts.GENERIC, *settings.get("followed", ())):
        tokens[word] = first_tokens([word] * len(prompts))
    if prompts[0].wrong:
        tokens["wrong"] = first_tokens([p.wrong for p in prompts])

    def values_at(params: Any) -> dict[str, list[float | None]]:
        logs_BxV = next_token.log_probabilities(model, params, batch)
        is_finite_B = next_token.is_finite(logs_BxV)
        quantities = {}
        for name, token_B in tokens.items():
            log_p_B = np.take_along_axis(logs_BxV, token_B[:, None], 1)[:, 0]
            quantities[f"p_{name}"] = np.exp(log_p_B).tolist()
            quantities[f"rank_{name}"] = next_token.ranks(logs_BxV, token_B).tolist()
        return {
            name: [number if finite else None for number, finite in zip(numbers, is_finite_B)]
            for name, numbers in quantities.items()
        }

    by_cut = {WHOLE: values_at(params)}
    if settings["fractions"]:
        flat = paths.flatten(params)
        for path in matching_matrices(params, settings["matrix"]):
            kernel = jnp.asarray(flat[path])
            parts = surgery.decompose(kernel)
            for fraction in settings["fractions"]:
                rank = surgery.rank_of(kernel, fraction)
                cut = surgery.recompose(*parts, rank).astype(kernel.dtype)
                name = f"{path.removesuffix('/kernel')}@{fraction:g}"
                by_cut[name] = values_at(paths.replace(params, {path: cut}))
    return {"revision": revision, "values": by_cut, "notes": list(batch.notes)}


def _outcome(rows: list[dict[str, Any]], revisions: Sequence[str]) -> Outcome:
    """Returns the metrics of the last revision and the curves of all.

    Metrics of a cut model are called p_the/block_15/mlp/in@0.02. Its gains over the full model are
    paired by prompt.
    """
    last = rows[-1]["values"]
    metrics = {}
    for cut, values in last.items():
        suffix = "" if cut == WHOLE else f"/{cut}"
        for quantity in values:
            metrics[quantity + suffix] = over_seeds(np.array(values[quantity], float))
        ratio = np.mean(values["p_target"]) / max(np.mean(values["p_the"]), 1e-30)
        metrics[f"ratio{suffix}"] = exact(ratio)
        if not suffix:
            continue
        for quantity in ("p_target", "p_the", "p_them"):
            if quantity in values:
                gain = np.subtract(values[quantity], last[WHOLE][quantity])
                metrics[f"{quantity}_gain{suffix}"] = over_seeds(gain)
    curves = {  # (revision, cut)
        quantity: np.array(
            [[np.mean(values[quantity]) for values in row["values"].values()] for row in rows]
        )
        for quantity in last[WHOLE]
    }
    if len(rows) > 1:
        learned = np.flatnonzero(curves["rank_the"][:, 0] <= LEARNED_RANK)
        metrics["step_of_the"] = exact(_step(revisions[int(learned[0])]) if len(learned) else NEVER)
    steps = np.array([_step(revision) for revision in revisions])
    matrix_names = dict.fromkeys(cut.split("@")[0] for cut in last if cut != WHOLE)
    return Outcome(curves | {"steps": steps, "matrices": np.array([*matrix_names], str)}, metrics)


def draw_published(arrays, prompt: str, matrix: str, fractions: Sequence[float]):
    """Draws probabilities and ranks against the training step, or against the kept rank.

    Against the step, the full model is solid and the first cut dashed. Against the share of the
    rank, the full model is dotted and every matrix has its own marker. A single checkpoint without
    a cut has nothing to draw against, so it gets bars.
    """
    steps = arrays["steps"]
    if len(steps) == 1 and not len(fractions):
        return _draw_bars(arrays, prompt)
    figure, (left, right) = plots.row(2, (plots.PAGE, 2.0))
    is_trajectory = len(steps) > 1
    # Column 0 of an array is the full model. Then follow the columns of each matrix, one for each
    # fraction.
    per_matrix = max(len(fractions), 1)
    n_matrices = math.ceil((arrays["p_target"].shape[1] - 1) / per_matrix)
    markers = MARKERS[:n_matrices]
    for axis, kind in ((left, "p_"), (right, "rank_")):
        names = sorted(name for name in arrays if name.startswith(kind))
        for colour, name in zip(plots.cycle(len(names)), names):
            values, label = arrays[name], LABELS[name.removeprefix(kind)]
            if is_trajectory:
                x = np.maximum(steps, 0.5)
                axis.plot(x, values[:, 0], color=colour, label=label)
                if values.shape[1] > 1:
                    axis.plot(x, values[:, 1], "--", color=colour, label=f"{label}, cut")
                continue
            for k, start in enumerate(range(1, values.shape[1], per_matrix)):
                marker, stop = f"{MARKERS[k % len(MARKERS)]}-", start + per_matrix
                axis.plot([*fractions], values[0, start:stop], marker, color=colour)
            axis.axhline(values[0, 0], color=colour, linestyle=":", label=label)
        axis.set_xlabel("training step" if is_trajectory else "share of the rank that is kept")
        if is_trajectory:
            axis.set_xscale("log")
    left.set_ylabel("probability")
    right.set(ylabel="rank, 1 is the likeliest", yscale="log")
    last = {name: arrays[name][-1] for name in arrays if name.startswith("p_")}
    finals = [f"{LABELS[name[2:]]} {values[0]:.2g}" for name, values in last.items()]
    if markers:
        finals = [f"{final} (cut {values[1]:.2g})" for final, values in zip(finals, last.values())]
    cut_text = f"Cut: {matrix}. " if matrix and len(fractions) else ""
    if cut_text and not is_trajectory:
        cut_text += "Dotted: the full model. "
    if len(markers) > 1 and not is_trajectory:
        marked_matrices = [
            f"{marker} {matrix}" for marker, matrix in zip(markers, arrays["matrices"])
        ]
        cut_text = f"Cut: {', '.join(marked_matrices)}. Dotted: the full model. "
    caption = f"{cut_text}Means over the prompts of {prompt!r}. block_0 is layer 1."
    plots.add_finding(figure, f"Probability of the next word: {', '.join(finals)}", caption, left)
    return figure


def _draw_bars(arrays, prompt: str):
    """Draws probability and rank of each word after the prompts, for the full model alone."""
    words: dict[tuple[float, float], list[str]] = {}  # by probability and rank
    for word in (name.removeprefix("p_") for name in arrays if name.startswith("p_")):
        numbers = float(arrays[f"p_{word}"][0, 0]), float(arrays[f"rank_{word}"][0, 0])
        words.setdefault(numbers, []).append(LABELS[word])
    labels = [", ".join(names) for names in words.values()]
    figure, (left, right) = plots.row(2, (plots.PAGE, 0.8 + 0.3 * len(words)), sharey=True)
    for axis, values in zip((left, right), zip(*words, strict=True), strict=True):
        colours = plots.COLOURS[: len(values)]
        bars = axis.barh(range(len(values)), values, height=0.6, color=colours)
        axis.bar_label(bars, fmt="%.2g", padding=3)
        axis.set_xlim(0, 1.15 * max(values))  # the number beside the longest bar needs room
    left.set(xlabel="probability", ylim=(len(words) - 0.5, -0.5))
    left.set_yticks(range(len(words)), labels)
    right.set_xlabel("rank, 1 is the likeliest")
    finals = [f"{label} {p:.2g}" for label, (p, _) in zip(labels, words, strict=True)]
    plots.add_finding(
        figure,
        f"Probability of the next word: {'; '.join(finals)}",
        f"Means over the prompts of {prompt!r}.",
        left,
    )
    return figure


def _step(revision: str) -> int:
    """Parses the step of a revision such as "step1000"; 0 for any other revision."""
    digits = revision.removeprefix("step")
    return int(digits) if digits.isdigit() else 0


def cache_folder(settings: dict[str, Any]) -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
    return base / "jaxformer" / "published" / name


PUBLISHED = Figure(measure=measure_published, draw=draw_published, check=check_published)
