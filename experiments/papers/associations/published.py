"""What published models say next, whole and cut (LASER): Tables 1 and 5, Figures 5 and 14 to 17.

A source is a folder, a name on the hub, or "tiny:FAMILY", a random tiny model for trying things
out. Several revisions are a trajectory of training. What is known of a revision is kept in the
cache, so that a run of 154 revisions that was stopped goes on where it was; what is known of a
folder counts as long as its files are the same.
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
WHOLE = "whole"
MARKS = "os^D"
WORDS = {"target": "the right word", "wrong": "the wrong one", "the": '"the"', "them": '"them"'}
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
    """Probability and rank of the right word, of the wrong one and of "the", whole and cut."""
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
    rows = Rows(_kept(about), about)
    held = {(row["revision"], row.get("files")): row for row in rows.read()}
    files = {revision: files_of(source, revision) for revision in revisions}
    found = []
    with jax.enable_x64(False):
        for i, revision in enumerate(revisions):
            key = (revision, files[revision])
            if key not in held:
                held[key] = _one(source, revision, i, about) | {"files": files[revision]}
                rows.append(held[key])
            found.append(held[key])
    _check_finite(found, revisions)
    return _outcome(found, revisions)


def _check_finite(rows: Sequence[dict[str, Any]], revisions: Sequence[str]) -> None:
    """Raises if a number of any revision is missing because its logits are not finite."""
    broken = [
        revision or "its only revision"
        for revision, row in zip(revisions, rows, strict=True)
        if any(
            None in of_prompts for part in row["values"].values() for of_prompts in part.values()
        )
    ]
    if broken:
        raise NotFiniteError(
            f"expected finite logits, got nan or infinity at {', '.join(broken)}: there is no "
            "probability and no rank. Try --config.figure.dtype=float32, then check the weights."
        )


def files_of(source: str, revision: str) -> str:
    """What a folder on this machine holds, in a word; "" of what is on the hub and stays."""
    place = Path(source) if Path(source).is_dir() else hub.on_shelf(source, revision)
    if source.startswith(TINY) or place is None or not place.is_dir():
        return ""
    told = [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in sorted(place.iterdir())]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def check_published(
    source: str, prompt: str, matrix: str, fractions: Sequence[float], dtype: str
) -> None:
    """Raises for what a measurement would refuse, as far as it is known before it."""
    check_choice("dtype", dtype, DTYPES)
    check_choice("kind of prompt", prompt, prompting.KINDS)
    for fraction in fractions:
        surgery.check_fraction(fraction)
    if fractions:
        check_matrix(source, matrix)


def check_matrix(source: str, matrix: str) -> None:
    """Raises unless a matrix of the model matches; what is on the hub is not asked for this."""
    if source.startswith(TINY):
        kind = source.removeprefix(TINY)
        check_choice("kind of tiny model", kind, tiny.CONFIGS)
        told = tiny.CONFIGS[kind] | {"vocab_size": 1}
    elif (file := Path(source) / "config.json").is_file():
        told = read_json(file)
    else:
        return hub.check_name(source)
    shapes = folder.shapes(Pretrained(describe(told, source)))
    like = {path: jax.ShapeDtypeStruct(shape, bool) for path, shape in shapes.items()}
    surgery.matrices(paths.unflatten(like), matrix)


def opened(source: str, revision: str, number: int, dtype: str) -> tuple[Any, Any, Any]:
    """(model, params, words)."""
    if source.startswith(TINY):
        with tempfile.TemporaryDirectory() as where:
            kind = source.removeprefix(TINY)
            place = tiny.save(kind, where, prompting.texts(), seed=number)
            model, params, _ = load_folder(place, dtype)
            return model, params, text.Text(place, model.spec.vocab_size)
    place = loading.published(source, revision or None)
    if place is None:
        raise UserError(f"{source} is no published model: give its folder or its name on the hub.")
    model, params, _ = load_folder(place, dtype)
    return model, params, text.Text(place, model.spec.vocab_size)


def _one(source: str, revision: str, number: int, about: dict[str, Any]) -> dict[str, Any]:
    """{"revision", "values": {"whole": {quantity: [one a prompt]}, "block_15/mlp/in@0.02": ..}}.

    A quantity is None after a prompt whose logits are not finite.
    """
    model, params, words = opened(source, revision, number, about["dtype"])
    asked = prompting.asked(about["prompt"], about["sentences"], about["seed"], words)
    batch = prompts.batch(words, [a.prompt for a in asked], [a.target for a in asked])
    the = prompts.next_token(words, prompting.GENERIC)[0]
    tokens = {"target": batch.targets_B, "the": np.full(len(asked), the)}
    for word in about.get("followed", ()):
        tokens[word] = np.full(len(asked), prompts.next_token(words, word)[0])
    if asked[0].wrong:
        wrong = [prompts.next_token(words, one.wrong)[0] for one in asked]
        tokens["wrong"] = np.array(wrong)

    def values(weights: Any) -> dict[str, list[float | None]]:
        logs_BxV = prompts.next_log_probabilities(model, weights, batch)
        found = {}
        for name, token_B in tokens.items():
            own = np.take_along_axis(logs_BxV, token_B[:, None], 1)[:, 0]
            found[f"p_{name}"] = np.exp(own).tolist()
            found[f"rank_{name}"] = prompts.ranks(logs_BxV, token_B).tolist()
        defined_B = prompts.is_finite(logs_BxV)
        return {
            name: [number if defined else None for number, defined in zip(numbers, defined_B)]
            for name, numbers in found.items()
        }

    found = {WHOLE: values(params)}
    if about["fractions"]:
        flat = paths.flatten(params)
        for path in chosen(params, about["matrix"]):
            kernel = jnp.asarray(flat[path])
            parts = surgery.decompose(kernel)
            for fraction in about["fractions"]:
                rank = surgery.rank_of(kernel, fraction)
                cut = surgery.recompose(*parts, rank).astype(kernel.dtype)
                name = f"{path.removesuffix('/kernel')}@{fraction:g}"
                found[name] = values(paths.replace(params, {path: cut}))
    return {"revision": revision, "values": found, "notes": list(batch.notes)}


def _outcome(rows: list[dict[str, Any]], revisions: Sequence[str]) -> Outcome:
    """Metrics are of the last revision; a cut one's are p_the/block_15/mlp/in@0.02, and its gains
    against the whole model are paired by prompt."""
    last = rows[-1]["values"]
    metrics = {}
    for name, values in last.items():
        suffix = "" if name == WHOLE else f"/{name}"
        for quantity in values:
            metrics[quantity + suffix] = over_seeds(np.array(values[quantity], float))
        ratio = np.mean(values["p_target"]) / max(np.mean(values["p_the"]), 1e-30)
        metrics[f"ratio{suffix}"] = exact(ratio)
        if suffix:
            for quantity in (name for name in ("p_target", "p_the", "p_them") if name in values):
                gain = np.subtract(values[quantity], last[WHOLE][quantity])
                metrics[f"{quantity}_gain{suffix}"] = over_seeds(gain)
    curves = {
        name: np.array(
            [[np.mean(values[name]) for values in row["values"].values()] for row in rows]
        )
        for name in last[WHOLE]
    }
    if len(rows) > 1:
        learned = np.flatnonzero(curves["rank_the"][:, 0] <= 10)
        step = _step(revisions[int(learned[0])]) if len(learned) else NEVER
        metrics["step_of_the"] = exact(step)  # the first at which it is among the first ten
    steps = np.array([_step(revision) for revision in revisions])
    return Outcome(curves | {"steps": steps}, metrics)


def draw_published(arrays, prompt: str, matrix: str, fractions: Sequence[float]):
    """Along training, whole solid and cut dashed.

    Or against the share of the rank that is kept, whole dotted, every matrix with its own mark.
    """
    steps = arrays["steps"]
    figure, (left, right) = plots.row(2, (plots.PAGE, 2.0))
    along, n = len(steps) > 1, max(len(fractions), 1)
    marks = MARKS[: -(-(arrays["p_target"].shape[1] - 1) // n)]
    for axis, kind in ((left, "p_"), (right, "rank_")):
        names = sorted(name for name in arrays if name.startswith(kind))
        for colour, name in zip(plots.cycle(len(names)), names):
            column, label = arrays[name], WORDS[name.removeprefix(kind)]
            if along:
                x = np.maximum(steps, 0.5)
                axis.plot(x, column[:, 0], color=colour, label=label)
                if column.shape[1] > 1:
                    axis.plot(x, column[:, 1], "--", color=colour, label=f"{label}, cut")
            else:
                for k, start in enumerate(range(1, column.shape[1], n)):
                    mark = f"{MARKS[k % len(MARKS)]}-"
                    axis.plot([*fractions], column[0, start : start + n], mark, color=colour)
                axis.axhline(column[0, 0], color=colour, linestyle=":", label=label)
        axis.set_xlabel("step of training" if along else "share of the rank that is kept")
        if along:
            axis.set_xscale("log")
    left.set_ylabel("probability")
    right.set(ylabel="rank, 1 is the likeliest", yscale="log")
    last = {name: arrays[name][-1] for name in arrays if name.startswith("p_")}
    said = [f"{WORDS[name[2:]]} {values[0]:.2g}" for name, values in last.items()]
    if len(marks):
        said = [f"{one} (cut {last[name][1]:.2g})" for one, name in zip(said, last)]
    cut = f"Cut: {matrix}. " if matrix and len(fractions) else ""
    if not along:
        cut += "Dotted: nothing cut. " * bool(cut)
        cut += f"Marks {' '.join(marks)}: the matrices in their order. " * (len(marks) > 1)
    beware = f"{cut}Means over the prompts of {prompt!r}. block_0 is layer 1."
    plots.headed(figure, f"Probability of the next word: {', '.join(said)}", beware, left)
    return figure


def _step(revision: str) -> int:
    """Of "step1000"; 0 for any other name."""
    digits = revision.removeprefix("step")
    return int(digits) if digits.isdigit() else 0


def _kept(about: dict[str, Any]) -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
    return base / "jaxformer" / "published" / name
