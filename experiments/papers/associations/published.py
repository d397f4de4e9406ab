"""Next words of published models, whole and with one matrix cut to a low rank (LASER).

These are Tables 1 and 5 and Figures 5 and 14 to 17. A source is a folder, a name on the hub, or
"tiny:FAMILY", a random tiny model for trials. Several revisions are a trajectory of training. The
results of each revision are cached, so that a stopped run over 154 revisions can resume. Results of
a folder are measured again when its files change.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers import plots
from experiments.papers.associations import prompting, prompts
from experiments.papers.associations.cutting import Rows, chosen
from experiments.papers.outcome import Outcome, exact
from jaxformer import loading, surgery
from jaxformer.build import DTYPES
from jaxformer.core import paths
from jaxformer.core.errors import NotFiniteError, UserError, check_choice
from jaxformer.models.pretrained import Pretrained, describe, folder, hub, load_folder, text, tiny
from jaxformer.models.pretrained.folder import read_json
from jaxformer.training.metrics import over_seeds

TINY = "tiny:"
WHOLE = "whole"  # the key of the uncut model
MARKERS = "os^D"
LABELS = {"target": "the right word", "wrong": "the wrong one", "the": '"the"', "them": '"them"'}
NEVER = 10**9  # a step that no training reaches


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
    """Measures the probability and rank of the next word, of the whole model and of each cut.

    The words are the right one, a wrong one of the prompt, "the" and other generic words.

    Args:
        source: see the top of this module.
        revisions: revisions of the model; "" is its only one.
        prompt: a kind of prompts, one of prompting.KINDS.
        sentences: the number of prompts; 0 takes all.
        matrix: a pattern of the addresses of the matrices to cut.
        fractions: the shares of the rank that are kept; none cuts nothing.
        dtype: the type of the parameters.
        seed: the seed of drawn prompts.
    """
    about = {
        "source": source,
        "prompt": prompt,
        "sentences": sentences,
        "matrix": matrix,
        "fractions": list(fractions),
        "dtype": dtype,
        "seed": seed,
    }
    if prompt in prompting.FOLLOWED:
        about["followed"] = list(prompting.FOLLOWED[prompt])
    rows = Rows(cache_folder(about), about)
    row_of = {(row["revision"], row.get("files")): row for row in rows.read()}
    files = {revision: files_of(source, revision) for revision in revisions}
    measured = []
    with jax.enable_x64(False):
        for i, revision in enumerate(revisions):
            key = (revision, files[revision])
            if key not in row_of:
                row = _measure_revision(source, revision, i, about)
                row_of[key] = row | {"files": files[revision]}
                rows.append(row_of[key])
            measured.append(row_of[key])
    _check_finite(measured, revisions)
    return _outcome(measured, revisions)


def _check_finite(rows: Sequence[dict[str, Any]], revisions: Sequence[str]) -> None:
    """Raises if a number of any revision is missing because its logits are not finite."""
    broken = [
        revision or "its only revision"
        for revision, row in zip(revisions, rows, strict=True)
        if any(map(_has_none, row["values"].values()))
    ]
    if broken:
        raise NotFiniteError(
            f"expected finite logits, got nan or infinity at {', '.join(broken)}: there is no "
            "probability and no rank. Try --config.figure.dtype=float32, then check the weights."
        )


def _has_none(numbers_of: dict[str, list[float | None]]) -> bool:
    return any(None in numbers for numbers in numbers_of.values())


def files_of(source: str, revision: str) -> str:
    """Returns a hash of the names, sizes and times of a local folder's files.

    Returns "" for tiny models and for models on the hub, whose revisions do not change.
    """
    place = Path(source) if Path(source).is_dir() else hub.on_shelf(source, revision)
    if source.startswith(TINY) or place is None or not place.is_dir():
        return ""
    stats = [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in sorted(place.iterdir())]
    return hashlib.sha256(json.dumps(stats).encode()).hexdigest()[:16]


def check_published(
    source: str, prompt: str, matrix: str, fractions: Sequence[float], dtype: str
) -> None:
    """Raises UserError for wrong settings that can be found without loading the model."""
    check_choice("dtype", dtype, DTYPES)
    check_choice("kind of prompt", prompt, prompting.KINDS)
    for fraction in fractions:
        surgery.check_fraction(fraction)
    if fractions:
        check_matrix(source, matrix)


def check_matrix(source: str, matrix: str) -> None:
    """Raises UserError unless the pattern matches a matrix of the model.

    Of a model on the hub, which is not downloaded for this, only the name is checked.
    """
    if source.startswith(TINY):
        kind = source.removeprefix(TINY)
        check_choice("kind of tiny model", kind, tiny.CONFIGS)
        config = tiny.CONFIGS[kind] | {"vocab_size": 1}
    elif (file := Path(source) / "config.json").is_file():
        config = read_json(file)
    else:
        return hub.check_name(source)
    shapes = folder.shapes(Pretrained(describe(config, source)))
    params = {path: jax.ShapeDtypeStruct(shape, bool) for path, shape in shapes.items()}
    surgery.matrices(paths.unflatten(params), matrix)


def open_model(source: str, revision: str, number: int, dtype: str) -> tuple[Any, Any, Any]:
    """Returns the model, its parameters and its tokenizer. `number` is the seed of a tiny model."""
    if source.startswith(TINY):
        with tempfile.TemporaryDirectory() as temporary:
            kind = source.removeprefix(TINY)
            place = tiny.save(kind, temporary, prompting.texts(), seed=number)
            model, params, _ = load_folder(place, dtype)
            return model, params, text.Text(place, model.spec.vocab_size)
    place = loading.published(source, revision or None)
    if place is None:
        raise UserError(
            f"{source} is not a published model: give its folder or its name on the hub."
        )
    model, params, _ = load_folder(place, dtype)
    return model, params, text.Text(place, model.spec.vocab_size)


def _measure_revision(
    source: str, revision: str, number: int, about: dict[str, Any]
) -> dict[str, Any]:
    """Measures one revision and returns its row, {"revision", "values", "notes"}.

    "values" has an entry for the uncut model, "whole", and for each cut, as "block_15/mlp/in@0.02".
    An entry maps each quantity (p_the, rank_the, ..) to a list with a number for each prompt. The
    number is None if the logits after the prompt are not finite.
    """
    model, params, tokenizer = open_model(source, revision, number, about["dtype"])
    asked = prompting.asked(about["prompt"], about["sentences"], about["seed"], tokenizer)
    batch = prompts.batch(tokenizer, [one.prompt for one in asked], [one.target for one in asked])
    the = prompts.next_token(tokenizer, prompting.GENERIC)[0]
    tokens = {"target": batch.targets_B, "the": np.full(len(asked), the)}
    for word in about.get("followed", ()):
        tokens[word] = np.full(len(asked), prompts.next_token(tokenizer, word)[0])
    if asked[0].wrong:
        wrong = [prompts.next_token(tokenizer, one.wrong)[0] for one in asked]
        tokens["wrong"] = np.array(wrong)

    def quantities(weights: Any) -> dict[str, list[float | None]]:
        logs_BxV = prompts.next_log_probabilities(model, weights, batch)
        numbers_of = {}
        for name, token_B in tokens.items():
            log_p_B = np.take_along_axis(logs_BxV, token_B[:, None], 1)[:, 0]
            numbers_of[f"p_{name}"] = np.exp(log_p_B).tolist()
            numbers_of[f"rank_{name}"] = prompts.ranks(logs_BxV, token_B).tolist()
        defined_B = prompts.is_finite(logs_BxV)
        return {
            name: [number if defined else None for number, defined in zip(numbers, defined_B)]
            for name, numbers in numbers_of.items()
        }

    values = {WHOLE: quantities(params)}
    if about["fractions"]:
        flat = paths.flatten(params)
        for path in chosen(params, about["matrix"]):
            kernel = jnp.asarray(flat[path])
            parts = surgery.decompose(kernel)
            for fraction in about["fractions"]:
                rank = surgery.rank_of(kernel, fraction)
                cut = surgery.recompose(*parts, rank).astype(kernel.dtype)
                name = f"{path.removesuffix('/kernel')}@{fraction:g}"
                values[name] = quantities(paths.replace(params, {path: cut}))
    return {"revision": revision, "values": values, "notes": list(batch.notes)}


def _outcome(rows: list[dict[str, Any]], revisions: Sequence[str]) -> Outcome:
    """Returns curves over the revisions, and metrics of the last one.

    Metrics of a cut model have names such as p_the/block_15/mlp/in@0.02. Its gains over the whole
    model are paired by prompt.
    """
    last = rows[-1]["values"]
    metrics = {}
    for name, values in last.items():
        suffix = "" if name == WHOLE else f"/{name}"
        for quantity in values:
            metrics[quantity + suffix] = over_seeds(np.array(values[quantity], float))
        ratio = np.mean(values["p_target"]) / max(np.mean(values["p_the"]), 1e-30)
        metrics[f"ratio{suffix}"] = exact(ratio)
        if suffix:
            for quantity in ("p_target", "p_the", "p_them"):
                if quantity not in values:
                    continue
                gain = np.subtract(values[quantity], last[WHOLE][quantity])
                metrics[f"{quantity}_gain{suffix}"] = over_seeds(gain)
    curves = {}  # means over the prompts, (revisions, whole and cuts)
    for quantity in last[WHOLE]:
        means = [[np.mean(cut[quantity]) for cut in row["values"].values()] for row in rows]
        curves[quantity] = np.array(means)
    if len(rows) > 1:
        learned = np.flatnonzero(curves["rank_the"][:, 0] <= 10)
        step = _step(revisions[int(learned[0])]) if len(learned) else NEVER
        metrics["step_of_the"] = exact(step)  # the first with "the" among the ten likeliest
    steps = np.array([_step(revision) for revision in revisions])
    return Outcome(curves | {"steps": steps}, metrics)


def draw_published(arrays, prompt: str, matrix: str, fractions: Sequence[float]):
    """Draws the probabilities and ranks of the words.

    With several revisions, x is the training step, the whole model is solid and the first cut is
    dashed. With one revision, x is the share of the rank that is kept, the whole model is dotted
    and each matrix has its own marker.
    """
    steps = arrays["steps"]
    figure, (left, right) = plots.row(2, (plots.PAGE, 2.0))
    along, n = len(steps) > 1, max(len(fractions), 1)
    marks = MARKERS[: -(-(arrays["p_target"].shape[1] - 1) // n)]
    for axis, kind in ((left, "p_"), (right, "rank_")):
        names = sorted(name for name in arrays if name.startswith(kind))
        for colour, name in zip(plots.cycle(len(names)), names):
            column, label = arrays[name], LABELS[name.removeprefix(kind)]
            if along:
                x = np.maximum(steps, 0.5)
                axis.plot(x, column[:, 0], color=colour, label=label)
                if column.shape[1] > 1:
                    axis.plot(x, column[:, 1], "--", color=colour, label=f"{label}, cut")
            else:
                for k, start in enumerate(range(1, column.shape[1], n)):
                    mark = f"{MARKERS[k % len(MARKERS)]}-"
                    axis.plot([*fractions], column[0, start : start + n], mark, color=colour)
                axis.axhline(column[0, 0], color=colour, linestyle=":", label=label)
        axis.set_xlabel("step of training" if along else "share of the rank that is kept")
        if along:
            axis.set_xscale("log")
    left.set_ylabel("probability")
    right.set(ylabel="rank, 1 is the likeliest", yscale="log")
    last = {name: arrays[name][-1] for name in arrays if name.startswith("p_")}
    texts = [f"{LABELS[name[2:]]} {values[0]:.2g}" for name, values in last.items()]
    if len(marks):
        texts = [f"{entry} (cut {last[name][1]:.2g})" for entry, name in zip(texts, last)]
    cut = f"Cut: {matrix}. " if matrix and len(fractions) else ""
    if not along:
        cut += "Dotted: nothing cut. " * bool(cut)
        cut += f"Marks {' '.join(marks)}: the matrices in their order. " * (len(marks) > 1)
    note = f"{cut}Means over the prompts of {prompt!r}. block_0 is layer 1."
    plots.headed(figure, f"Probability of the next word: {', '.join(texts)}", note, left)
    return figure


def _step(revision: str) -> int:
    """Returns the step in the name of a revision such as "step1000"; 0 for other names."""
    digits = revision.removeprefix("step")
    return int(digits) if digits.isdigit() else 0


def cache_folder(about: dict[str, Any]) -> Path:
    """Returns the folder in the user's cache for the rows of a measurement with these settings."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
    return base / "jaxformer" / "published" / name
