"""A model that begins with given parameters, so that training goes on from them.

    model, params, _ = jaxformer.load("gpt2")
    rules = (("block_(9|10|11)/mlp/.*", "train"), (".*", "frozen"))
    run = jaxformer.train(task, started(model, params), rules, steps=1000)

Every seed begins alike; what differs between them is the data. The parameters come back as
`run.params`, for `model`: they are captured, patched, cut and saved as before.
"""

from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.core import paths
from jaxformer.io.atomic_files import dumps, sha256
from jaxformer.io.checkpoint_reader import array_sha256


class Started:
    """Like `model`, except that its initial parameters are not drawn."""

    def __init__(self, model: Any, params: Any):
        self.model, self.params = model, jax.tree.map(jnp.asarray, params)

    @property
    def spec(self) -> Any:
        return self.model.spec

    def fingerprint(self) -> str:
        """Twelve digits that change with the parameters, by which a run says what it began with."""
        leaves = paths.flatten(self.params)
        said = {
            path: [leaf.shape, leaf.dtype.name, array_sha256(leaf)] for path, leaf in leaves.items()
        }
        return sha256(dumps(said).encode())[:12]

    def init(self, rngs: Any, *inputs: Any) -> dict[str, Any]:
        return {"params": self.params}

    def apply(self, variables: Any, *inputs: Any, **options: Any) -> Any:
        return self.model.apply(variables, *inputs, **options)

    def __call__(self, tokens_BxT: jax.Array, positions_BxK: jax.Array | None = None) -> Any:
        return self.apply({"params": self.params}, tokens_BxT, positions_BxK)


def started(model: Any, params: Any) -> Started:
    """The model with these parameters at step 0."""
    return Started(model, params)
