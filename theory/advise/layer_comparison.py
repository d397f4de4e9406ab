"""A network as it is, beside the prediction of what its kind is at initialisation.

A run of ours: its own parameters before the first step, and those of its newest checkpoint, on its
own test sequences; what they make of the embedding, the cosine rho0, is measured and given to the
theory. A published model: its weights on your text, and what its config.json draws at first.
Folders are read and never written.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxformer import build
from jaxformer.core.errors import UserError
from jaxformer.loading import Loaded, at_start, load_run, published
from jaxformer.models.pretrained import is_pretrained, load_folder
from jaxformer.training.signal import by_layer
from theory.advise import model_architecture
from theory.advise.input_tokens import of_vocabulary, sequences
from theory.signal import huggingface
from theory.signal.architecture import Architecture
from theory.signal.backward import gradients
from theory.signal.recursion import layers_of, trace

SEQUENCES = 32  # of a run; of a published model those of tokens.py
LENGTH = 128  # at most, of a published model, unless --length says more
MEASURED = ("start", "now")
NUMBERS = ("cosine", "keys", "beta", "gradient")


def of_run(run: Path) -> dict[str, Any]:
    """By layer: predicted at the start, measured at the start, measured now."""
    if run.is_dir() and is_pretrained(run):
        raise UserError(f"{run} is a published model, not a run: give it as --model.")
    loaded = load_run(run)
    inputs = _test_inputs(loaded)
    length = inputs.shape[1]
    net = model_architecture.architecture(loaded.model.spec, length)
    start, now = (
        measured(loaded.model, params, inputs) for params in (at_start(loaded), loaded.params)
    )
    rho0 = float(np.clip(start["cosine"][0], 0, 1))
    seed, rate = build.members(loaded.config).members[loaded.member]
    who = f"member {loaded.member} (seed {seed}, learning rate {rate:g})"
    return {
        "run": str(run),
        "judged": net.describe(),
        "length": length,
        "step": loaded.step,
        "said": [
            f"start is {who} before its first step, drawn again from its seed",
            f"now is its checkpoint of step {loaded.step}, the newest that is whole",
            f"on {len(inputs)} sequences of its test set",
        ],
        "predicted": predicted(net, length, rho0),
        "start": start,
        "now": now,
    }


def of_model(source: Path, tokens: Path | None, length: int | None) -> dict[str, Any]:
    """By layer: what its config.json draws, predicted, and its weights, measured."""
    folder = published(source)
    if folder is None:
        raise UserError(
            f"--model {str(source)!r} is neither a folder with config.json and safetensors nor a "
            "name on the hub; a run of ours is given as --run."
        )
    model, params, _ = load_folder(folder)
    reading = huggingface.read(folder / "config.json", length)
    longest = min(reading.length or model.spec.length, model.spec.length)
    if length is not None and length > longest:
        raise UserError(f"--length {length} is too long: {source} reads {longest} tokens.")
    vocabulary = model.spec.vocab_size
    if tokens is None:
        inputs = of_vocabulary(vocabulary, length or min(longest, LENGTH))
        text = "tokens drawn at random from its vocabulary (--tokens FILE reads your text)"
    else:
        inputs = sequences(folder, vocabulary, tokens, length, min(longest, LENGTH))
        text = f"tokens of {tokens}"
    net, T = reading.architecture, inputs.shape[1]
    repeat = float(np.mean([_repeats(row) for row in inputs]))
    return {
        "model": str(source),
        "judged": f"{reading.model_type}: {net.describe()}",
        "length": T,
        "said": [
            "predicted is a network that its config.json draws, before any training",
            f"on {len(inputs)} sequences of {text}",
            *reading.assumptions,
        ],
        "predicted": predicted(net, T, None, repeat),
        "now": measured(model, params, inputs),
    }


def measured(model: Any, params: Any, inputs: Any) -> dict[str, list[float]]:
    """Cosine of different tokens of a sequence, keys, beta and gradient of every layer."""

    found = _look(model, params, np.asarray(inputs))
    return {name: np.asarray(getattr(found, name), float).tolist() for name in NUMBERS}


@partial(jax.jit, static_argnums=0)
def _look(model, params, inputs):
    return by_layer(model, params, inputs)


def predicted(
    net: Architecture, length: int, rho0: float | None, repeat: float = 0.0
) -> dict[str, list[float]]:
    """What `measured` measures; of the scores the part that differs from token to token."""
    cells, states, steps = trace(net, length, rho0, repeat)
    layers = layers_of(cells, states, steps)
    rows_K = np.where(cells.length_K > 1, cells.count_K, 0)
    spread = [rows_K @ step.seen.s2 / rows_K.sum() for step in steps]
    return {
        "cosine": layers.cosine.tolist(),
        "keys": np.exp(layers.entropy).tolist(),
        "beta": np.sqrt(np.array(spread) / np.log(length)).tolist(),
        "gradient": gradients(net, cells, states, steps).size.tolist(),
    }


def not_finite(found: dict[str, Any]) -> list[str]:
    """Returns the measured numbers of `of_run` or `of_model` that are nan or infinity.

    Each is named with its first layer: "cosine of now from layer 1".
    """
    out = []
    rows = len(found["predicted"]["cosine"])
    for kind in MEASURED:
        for name, values in found.get(kind, {}).items():
            broken = np.flatnonzero(~np.isfinite(values))
            if len(broken):
                out.append(f"{name} of {kind} from layer {broken[0] + rows - len(values)}")
    return out


def as_json(found: dict[str, Any], broken: list[str]) -> str:
    """Returns strict JSON: null in place of nan and infinity, with the list "not_finite"."""
    answer = dict(found)
    for kind in ("predicted", *MEASURED):
        if kind in found:
            answer[kind] = {
                name: [value if np.isfinite(value) else None for value in values]
                for name, values in found[kind].items()
            }
    if broken:
        answer["not_finite"] = broken
    return json.dumps(answer, allow_nan=False)


def _test_inputs(loaded: Loaded) -> np.ndarray:
    task = build.task(loaded.config)
    held = build.source(loaded.config, task, batch_size=1).heldout()
    return np.asarray(held.test.inputs[:SEQUENCES])


def _repeats(tokens_T: np.ndarray) -> float:
    """The chance that two tokens of a sequence are the same."""
    _, counts = np.unique(tokens_T, return_counts=True)
    T = len(tokens_T)
    return float(np.sum(counts * (counts - 1)) / (T * (T - 1)))
