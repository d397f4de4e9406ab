"""Compares the signal of a run or a published model, layer by layer, with the prediction.

For a run of jaxformer the networks have the parameters before the first step and the parameters of
the newest checkpoint. Their inputs are sequences of the run's test set. The theory receives the
measured cosine of the embedded tokens. A published model is measured on the user's text; the theory
describes the network that its config.json initialises. Folders are read and never written.
"""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxformer import build
from jaxformer.core.errors import UserError
from jaxformer.loading import LoadedRun, load_run, params_at_start, published
from jaxformer.models.pretrained import is_pretrained, load_folder
from jaxformer.models.pretrained.gguf_file import is_gguf
from jaxformer.training.signal import by_layer
from theory.advise.input_tokens import random_tokens, repeat_probability, tokens_of_file
from theory.advise.model_architecture import architecture_of
from theory.signal import huggingface
from theory.signal.architecture import Architecture
from theory.signal.backward import gradients
from theory.signal.recursion import layers_of, trace

MAX_RUN_SEQUENCES = 32  # of a run's test set
MAX_DEFAULT_LENGTH = 128  # of a published model's inputs without --length
# "keys" is exp(entropy of an attention row), the effective number of keys that a query attends to.
QUANTITIES = ("cosine", "keys", "beta", "gradient")


def compare_run(folder: Path) -> dict[str, Any]:
    """Returns the signal of a run: predicted, measured before the first step, measured now."""
    if folder.is_dir() and is_pretrained(folder):
        raise UserError(f"{folder} is a published model, not a run: give it as --model.")
    loaded = load_run(folder)
    inputs = _test_inputs(loaded)
    length = inputs.shape[1]
    net = architecture_of(loaded.model.spec)
    start = measure_layers(loaded.model, params_at_start(loaded), inputs)
    now = measure_layers(loaded.model, loaded.params, inputs)
    rho0 = float(np.clip(start["cosine"][0], 0, 1))
    seed, rate = build.members(loaded.config).members[loaded.member]
    member = f"member {loaded.member} (seed {seed}, learning rate {rate:g})"
    return {
        "run": str(folder),
        "judged": net.describe(),
        "length": length,
        "step": loaded.step,
        "notes": [
            f"start: {member} before its first step, drawn again from its seed",
            f"now: its checkpoint of step {loaded.step}, the newest complete one",
            f"on {len(inputs)} sequences of its test set",
        ],
        "predicted": predict_layers(net, length, rho0),
        "start": start,
        "now": now,
    }


def compare_model(source: Path, tokens: Path | None, length: int | None) -> dict[str, Any]:
    """Returns the signal of a published model: predicted from its config.json, and measured now.

    Args:
      source: a folder, a GGUF file, "package:NAME", or a name on the Hugging Face hub.
      tokens: a file of text or token ids; None draws random tokens.
      length: tokens in a sequence.
    """
    folder = published(source)
    if folder is None:
        raise UserError(
            f"--model {str(source)!r} is neither a folder with config.json and safetensors, a GGUF "
            "file, package:NAME nor a name on the hub; for a run of jaxformer use --run."
        )
    model, params, _ = load_folder(folder)
    config_file = folder if is_gguf(folder) else folder / "config.json"
    parsed = huggingface.read_config(config_file, length)
    max_length = min(parsed.length or model.spec.length, model.spec.length)
    if length is not None and length > max_length:
        raise UserError(f"--length {length} is too long: {source} reads {max_length} tokens.")
    vocab_size, default_length = model.spec.vocab_size, min(max_length, MAX_DEFAULT_LENGTH)
    if tokens is None:
        inputs = random_tokens(vocab_size, length or default_length)
        text = "tokens drawn at random from its vocabulary (--tokens FILE reads your text)"
    else:
        inputs = tokens_of_file(folder, vocab_size, tokens, length, default_length)
        text = f"tokens of {tokens}"
    net, T = parsed.architecture, inputs.shape[1]
    repeat = float(np.mean([repeat_probability(row.tolist()) for row in inputs]))
    return {
        "model": str(source),
        "judged": f"{parsed.model_type}: {net.describe()}",
        "length": T,
        "notes": [
            "predicted: the network that its config.json initialises, before any training",
            f"on {len(inputs)} sequences of {text}",
            *parsed.assumptions,
        ],
        "predicted": predict_layers(net, T, None, repeat),
        "now": measure_layers(model, params, inputs),
    }


def measure_layers(model: Any, params: Any, inputs: Any) -> dict[str, list[float]]:
    """Returns the measured signal by layer: cosine, keys, beta and gradient.

    Args:
      model: a model with activation addresses (`jaxformer.training.signal`).
      params: its parameters.
      inputs: (B, T) tokens.
    """
    signal = _jitted_by_layer(model, params, np.asarray(inputs))
    return {name: np.asarray(getattr(signal, name), float).tolist() for name in QUANTITIES}


@partial(jax.jit, static_argnums=0)
def _jitted_by_layer(model, params, inputs):
    return by_layer(model, params, inputs)


def predict_layers(
    net: Architecture, length: int, rho0: float | None, repeat: float = 0.0
) -> dict[str, list[float]]:
    """Returns the predicted signal by layer, the same quantities as `measure_layers`.

    beta follows from the variance of the scores within a row; the mean of a row has no effect.

    Args:
        net: the architecture.
        length: the number of tokens T.
        rho0: the cosine of two input tokens; None takes that of the embeddings.
        repeat: the probability that two tokens are equal.

    Returns:
        {quantity: its value by layer}.
    """
    path = trace(net, length, rho0, repeat)
    layers, cells = layers_of(path), path.cells  # a cell groups rows with equally many keys
    # A row with one key has no variance within the row: it is left out of the mean.
    rows_K = np.where(cells.length_K > 1, cells.count_K, 0)
    variances = [rows_K @ block.attention.s2 / rows_K.sum() for block in path.blocks]
    return {
        "cosine": layers.cosine.tolist(),
        "keys": np.exp(layers.entropy).tolist(),
        "beta": np.sqrt(np.array(variances) / np.log(length)).tolist(),
        "gradient": gradients(net, path).size.tolist(),
    }


def _test_inputs(loaded: LoadedRun) -> np.ndarray:
    task = build.task(loaded.config)
    held_out = build.source(loaded.config, task, batch_size=1).heldout()
    return np.asarray(held_out.test.inputs[:MAX_RUN_SEQUENCES])
