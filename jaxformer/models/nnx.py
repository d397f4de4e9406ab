"""Flax NNX modules as functions `init` and `apply` over a nested dict of parameters.

    network = FromNNX(lambda rngs: Net(vocab_size=16, rngs=rngs))
    params = network.init(jax.random.key(0))["params"]      {"embed": {"embedding": ..}, ..}
    logits = network.apply({"params": params}, tokens)

A path is the chain of attribute names: `self.blocks[0].mlp.kernel` is blocks/0/mlp/kernel.
`jaxformer.wrap` makes such a network a model for `jaxformer.train`.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import jax
from flax import nnx

from jaxformer.core import paths
from jaxformer.core.errors import UserError


class FromNNX:
    """An NNX module without hidden state: parameters in, outputs out.

    Args:
      module: a function of `nnx.Rngs` that returns a module, so that each seed draws its own
        parameters. Given an instance of a module, every seed begins with its parameters.
    """

    def __init__(self, module: nnx.Module | Callable[..., Any]):
        self._module = module
        kind: Any = module if hasattr(module, "__name__") else type(module)
        self.name = kind.__name__

    @cached_property
    def _graph_and_shapes(self) -> tuple[Any, nnx.State]:
        """Returns (graph, shapes of the parameters); raises if there is any other state."""
        module = nnx.eval_shape(self._make_module)
        if not isinstance(module, nnx.Module):
            raise UserError(f"{self.name} must return an NNX module, got {type(module).__name__}.")
        graph, params, rest = nnx.split(module, nnx.Param, ...)
        if others := sorted({type(variable).__name__ for _, variable in nnx.to_flat_state(rest)}):
            raise UserError(
                f"{self.name} has the state {', '.join(others)}, which would not change from step "
                "to step; only nnx.Param is supported. Build it without dropout and batch norm."
            )
        return graph, params

    def _make_module(self, key: jax.Array | int = 0) -> nnx.Module:
        return self._module if isinstance(self._module, nnx.Module) else self._module(nnx.Rngs(key))

    def init(self, key: jax.Array, *inputs: Any) -> dict[str, Any]:
        """Returns {"params": tree}; the tree's keys are strings."""
        del inputs  # an NNX module has its shapes from the start
        self._graph_and_shapes  # noqa: B018  (raises if the module has other state)
        flat = nnx.to_flat_state(nnx.state(self._make_module(key), nnx.Param))
        leaves = {"/".join(map(str, path)): variable[...] for path, variable in flat}
        return {"params": paths.unflatten(leaves)}

    def apply(self, variables: Mapping[str, Any], *inputs: Any, mutable: Any = False) -> Any:
        """Returns the module's output; with `mutable` also {}, since it writes no collections."""
        graph, shapes = self._graph_and_shapes
        leaves = paths.flatten(variables["params"])
        params = [
            (path, variable.replace(leaves["/".join(map(str, path))]))
            for path, variable in nnx.to_flat_state(shapes)
        ]
        outputs = nnx.merge(graph, nnx.from_flat_state(params))(*inputs)
        return (outputs, {}) if mutable else outputs
