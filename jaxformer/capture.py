"""Run a model and return what happens inside, by name: {"block_1/attn/weights": array}."""

from collections.abc import Sequence
from typing import Any

import jax

from jaxformer import paths
from jaxformer.errors import UserError
from jaxformer.models.model import Model


def capture(model: Model, params: Any, *inputs: Any, names: Sequence[str]) -> dict[str, Any]:
    """The intermediates that any of the patterns in `names` matches (paths or modules).

    jit-safe: what is not asked for is not returned, so XLA does not keep it.
    """
    _, updates = model.apply({"params": params}, *inputs, mutable=["intermediates"])
    everything = updates.get("intermediates", {})
    if not everything:
        raise UserError(f"{type(model).__name__} records no intermediates.")
    found: dict[str, Any] = {}
    for name in names:
        found |= paths.select(everything, name)
    return found


def names(model: Model, params: Any, *inputs: Any) -> list[str]:
    """Everything that can be captured."""
    shapes = jax.eval_shape(
        lambda p: model.apply({"params": p}, *inputs, mutable=["intermediates"])[1], params
    )
    return list(paths.flatten(shapes.get("intermediates", {})))
