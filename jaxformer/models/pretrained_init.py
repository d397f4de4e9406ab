"""A model whose initial parameters are given, so that training continues from them.

    model, params, _ = jaxformer.load("gpt2")
    rules = (("block_(9|10|11)/mlp/.*", "train"), (".*", "frozen"))
    run = jaxformer.train(task, from_params(model, params), rules, steps=1000)

All seeds start with these parameters and differ in their data. `run.params` belongs to `model`:
it is captured, patched, cut and saved like the loaded parameters.
"""

from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.core import paths
from jaxformer.io.atomic_files import dumps, sha256
from jaxformer.io.checkpoint_reader import array_sha256


class FromParams:
    """A model with given instead of random initial parameters."""

    def __init__(self, model: Any, params: Any):
        self.model, self.params = model, jax.tree.map(jnp.asarray, params)

    @property
    def spec(self) -> Any:
        return self.model.spec

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
