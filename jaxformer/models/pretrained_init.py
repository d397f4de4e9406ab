"""Models whose initial parameters are given, so that training continues from them.

    model, params, _ = jaxformer.load("gpt2")
    rules = (("block_(9|10|11)/mlp/.*", "train"), (".*", "frozen"))
    run = jaxformer.train(task, model, rules, params=params, steps=1000)

All seeds start with these parameters and differ in their data. `run.params` are
parameters of `model`: capture, patch, cut and save them as you would the loaded ones.
"""

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import dumps, sha256
from jaxformer.io.checkpoint_reader import array_sha256
from jaxformer.models.source import Source, source_of


@dataclass(frozen=True, kw_only=True)
class LoadedSpec:
    """The fields of a config's model section with the name "loaded"."""

    source: str  # a published model; "" is a tiny random Llama
    vocab_size: int  # tokens in the vocabulary of the text, and of the model
    length: int  # the longest sequence


class FromParams:
    """A model with given instead of random initial parameters."""

    def __init__(self, model: Any, params: Any):
        self.model, self.params = model, jax.tree.map(jnp.asarray, params)

    @property
    def spec(self) -> Any:
        return self.model.spec

    @property
    def source(self) -> Source | None:
        """The source of the model, without a name: the parameters are given, not loaded."""
        found = source_of(self.model)
        return found and replace(found, name="")

    def fingerprint(self) -> str:
        """Returns twelve hexadecimal digits that identify the parameters in config.json."""
        hashes = {
            path: [leaf.shape, leaf.dtype.name, array_sha256(leaf)]
            for path, leaf in paths.flatten(self.params).items()
        }
        return sha256(dumps(hashes).encode())[:12]

    def init(self, rngs: Any, *inputs: Any) -> dict[str, Any]:
        """Returns {"params": the given parameters}."""
        return {"params": self.params}

    def apply(self, variables: Any, *inputs: Any, **options: Any) -> Any:
        """Applies the model."""
        return self.model.apply(variables, *inputs, **options)

    def __call__(self, tokens_BxT: jax.Array, positions_BxK: jax.Array | None = None) -> Any:
        return self.apply({"params": self.params}, tokens_BxT, positions_BxK)


def from_params(model: Any, params: Any) -> FromParams:
    """Returns the model with these parameters at step 0.

    Args:
      model: a model, such as the first value of `jaxformer.load`.
      params: its parameters, a tree of arrays.
    """
    return FromParams(model, params)


def loaded(**fields) -> Any:
    """Returns the model of a `LoadedSpec` with its parameters at step 0."""
    spec = LoadedSpec(**fields)
    return _load_published(spec, _versions(spec.source)) if spec.source else _tiny_llama(spec)


def _versions(source: str) -> tuple[tuple[str, int], ...]:
    """The names and times of the files of a local model, which change when one is written."""
    path = Path(source)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return tuple((file.name, file.stat().st_mtime_ns) for file in files if file.is_file())


@functools.lru_cache(1)
def _load_published(spec: LoadedSpec, versions: tuple[tuple[str, int], ...]) -> FromParams:
    """Loads a model once, and again after one of its files was written anew."""
    from jaxformer.models.pretrained import hub, load_folder

    del versions
    model, params, _ = load_folder(hub.path_of(spec.source))
    published = model.spec
    if published.vocab_size != spec.vocab_size:
        raise UserError(
            f"{spec.source} has {published.vocab_size:,} tokens and the text {spec.vocab_size:,}. "
            "Prepare the text with the tokenizer of the model "
            "(jaxformer prepare --tokenizer=FOLDER). "
            "If the model has more tokens than its tokenizer, give "
            f"task.vocab={published.vocab_size}."
        )
    if published.length < spec.length:
        raise UserError(
            f"{spec.source} takes {published.length:,} tokens, task.window is {spec.length:,}."
        )
    return from_params(model, params)


def _tiny_llama(spec: LoadedSpec) -> Any:
    from jaxformer.models.pretrained import pretrained
    from jaxformer.models.pretrained.rotary import Rotary

    return pretrained(
        family="llama",
        vocab_size=spec.vocab_size,
        length=spec.length,
        width=16,
        layers=2,
        heads=2,
        kv_heads=1,
        head_width=8,
        mlp_width=32,
        norm="rms",
        act="silu",
        gated=True,
        tied=True,
        rotary=Rotary(width=8),
    )
