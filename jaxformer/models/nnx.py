"""Flax NNX modules as functions `init` and `apply` over a nested dict of parameters.

    network = FromNNX(lambda rngs: Net(vocab_size=16, rngs=rngs))
    params = network.init(jax.random.key(0))["params"]      {"embed": {"embedding": ..}, ..}
    logits = network.apply({"params": params}, tokens)

A path is the chain of attribute names: `self.blocks[0].mlp.kernel` is blocks/0/mlp/kernel.
`jaxformer.wrap` makes such a network a model for `jaxformer.train`.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxformer.core import paths
from jaxformer.core.errors import UserError, one_line
from jaxformer.models.submodules import Outputs, check_method, check_takes_rngs

# What a module may keep beside its variables: constants.
ARRAYS = (jax.Array, np.ndarray, jax.ShapeDtypeStruct)


class FromNNX:
    """An NNX module without hidden state: parameters in, outputs out.

    Plain arrays, such as a mask or a table of positions, are constants.

    Args:
      module: a function of `nnx.Rngs` that returns a module, so that each seed draws its own
        parameters. Given an instance of a module, every seed begins with its parameters.
      method: the method that is applied, by name, or a function of the module and the inputs.
    """

    def __init__(
        self,
        module: nnx.Module | Callable[..., Any],
        method: str | Callable[..., Any] | None = None,
    ):
        self._module, self._method = module, method or "__call__"
        kind: Any = module if hasattr(module, "__name__") else type(module)
        self.name = kind.__name__
        if not isinstance(module, nnx.Module):
            check_takes_rngs(module, self.name)

    @cached_property
    def _graph_and_shapes(self) -> tuple[Any, nnx.State]:
        """Returns (graph, shapes of the parameters); raises if there is any other state."""
        try:
            if isinstance(self._module, nnx.Module):
                module = self._module
            elif self._builds_arrays():
                with jax.ensure_compile_time_eval():
                    module = self._make_module()
            else:  # shapes are enough, so that a large network is not built twice
                module = nnx.eval_shape(self._make_module)
        except ValueError as error:
            if "nnx.List" not in str(error):
                raise
            raise UserError(
                f"{self.name} keeps arrays or submodules in a Python list or dict, which NNX does "
                f"not see: use nnx.List or nnx.Dict ({one_line(error, 120)})."
            ) from None
        check_method(type(module), self.name, self._method)
        graph, params, random, rest = nnx.split(module, nnx.Param, nnx.RngState, ...)
        with jax.ensure_compile_time_eval():  # numbers, not tracers of a program that asks first
            constants = [
                (path, jnp.asarray(x) if isinstance(x, np.ndarray) else x)
                for path, x in nnx.to_flat_state(rest)
            ]
        kinds = {type(x).__name__ for _, x in constants if not isinstance(x, ARRAYS)}
        if kinds:
            raise UserError(
                f"{self.name} has the state {', '.join(sorted(kinds))}, which would not change "
                "from step to step. Build it without dropout and batch norm, keep constants as "
                "plain arrays, and what is trained as nnx.Param."
            )
        self._check_constants(constants)
        # A dropout layer of rate 0 has keys, too; `_call` refuses a module that draws with them.
        keys = [(path, _unused(variable)) for path, variable in nnx.to_flat_state(random)]
        self._fixed = [*keys, *constants]
        return graph, jax.eval_shape(lambda: params)

    def _builds_arrays(self) -> bool:
        """Whether the module keeps plain arrays, whose numbers are needed."""
        found = []

        def build() -> None:
            module = self._make_module()
            if not isinstance(module, nnx.Module):
                kind = type(module).__name__
                raise UserError(f"{self.name} must return an NNX module, got {kind}.")
            found.append(_keeps_arrays(module))

        jax.eval_shape(build)
        return found[0]

    def _check_constants(self, constants: Any) -> None:
        """Raises if another seed draws other constants, because all seeds would share them."""
        if not constants or isinstance(self._module, nnx.Module):
            return
        with jax.ensure_compile_time_eval():
            others = nnx.split(self._make_module(1), nnx.Param, nnx.RngState, ...)[-1]
        for (path, one), (_, other) in zip(constants, nnx.to_flat_state(others), strict=True):
            if str(one.dtype).startswith("key") or not np.array_equal(one, other, equal_nan=True):
                raise UserError(
                    f"{self.name} draws the array {_address(path)} at random: make it an "
                    "nnx.Param, and freeze it with a rule, so that each seed draws its own."
                )

    def _make_module(self, key: jax.Array | int = 0) -> nnx.Module:
        return self._module if isinstance(self._module, nnx.Module) else self._module(nnx.Rngs(key))

    def init(self, key: jax.Array, *inputs: Any) -> dict[str, Any]:
        """Returns {"params": tree}; the tree's keys are strings."""
        del inputs  # an NNX module has its shapes from the start
        # A function of the user may build another module than at the last call, and a module may
        # have been changed: what is applied belongs to what is initialised.
        vars(self).pop("_graph_and_shapes", None)
        self._graph_and_shapes  # noqa: B018  (raises if the module has other state)
        flat = nnx.to_flat_state(nnx.state(self._make_module(key), nnx.Param))
        leaves = {_address(path): variable[...] for path, variable in flat}
        return {"params": paths.unflatten(leaves)}

    def apply(self, variables: Mapping[str, Any], *inputs: Any, mutable: Any = False) -> Any:
        """Returns the module's output; with `mutable` also {}, since it writes no collections."""
        outputs = self._call(self._with_params(variables), *inputs)
        return (outputs, {}) if mutable else outputs

    def observed(
        self, variables: Mapping[str, Any], tokens: Any, outputs: Outputs
    ) -> tuple[Any, dict[str, Any]]:
        """Returns the module's output and a tree of the values that its submodules keep."""
        module = self._with_params(variables)
        for path, submodule in [*nnx.iter_modules(module)]:
            root = self._method if path == () else None
            submodule.__class__ = _recording_class(type(submodule), path, root, outputs)
        logits, kept = nnx.capture(self._call, nnx.Intermediate)(module, tokens)
        leaves = {_address(path): x[...] for path, x in nnx.to_flat_state(kept)}
        return logits, paths.unflatten(leaves)

    def _with_params(self, variables: Mapping[str, Any]) -> nnx.Module:
        graph, shapes = self._graph_and_shapes
        leaves = paths.flatten(variables["params"])
        params = [
            (path, variable.replace(leaves[_address(path)]))
            for path, variable in nnx.to_flat_state(shapes)
        ]
        return nnx.merge(graph, nnx.from_flat_state([*params, *self._fixed]))

    def _call(self, module: nnx.Module, *inputs: Any) -> Any:
        before = _fixed_values(module)
        if callable(self._method):
            outputs = self._method(module, *inputs)
        else:
            outputs = getattr(module, self._method)(*inputs)
        after = _fixed_values(module)
        changed = [path for path, value in before.items() if after.get(path) is not value]
        if any(path[-1:] == ("count",) for path in changed):
            raise UserError(
                f"{self.name} draws random numbers when it is applied, as dropout does, and "
                "training passes none: build it with deterministic=True or without dropout."
            )
        if changed:
            raise UserError(
                f"{self.name} changes the array {_address(changed[0])} when it is applied, which "
                "would not last to the next step: compute it from the tokens."
            )
        return outputs


def _fixed_values(module: nnx.Module) -> dict[tuple[Any, ...], Any]:
    """{path: value} of constants and of counts of drawn numbers, which a call may not replace.

    A replaced value is another object, also inside of jit.
    """
    nodes = nnx.iter_graph(module)
    return {
        path: node.get_value() if isinstance(node, nnx.RngCount) else node
        for path, node in nodes
        if isinstance(node, (nnx.RngCount, *ARRAYS))
    }


def _keeps_arrays(module: nnx.Module) -> bool:
    plain = (list, tuple, dict)  # whose arrays NNX takes for static while it traces
    return any(
        isinstance(leaf, ARRAYS)
        for _, node in nnx.iter_graph(module)
        if isinstance(node, (*plain, *ARRAYS))
        for leaf in jax.tree.leaves(node)
    )


def _address(path: tuple[Any, ...]) -> str:
    return "/".join(map(str, path))


def _unused(variable: Any) -> Any:
    """The variable of a random stream with a value, which no layer may read."""
    return variable.replace(
        jax.random.key(0) if isinstance(variable, nnx.RngKey) else jnp.uint32(0)
    )


def _recording_class(kind: type, path: tuple[Any, ...], root_method: Any, outputs: Outputs) -> type:
    """A subclass of a module's class whose methods record what they return.

    Only the instances of this pass have it, so that no other user of the class sees a change.
    """

    def recording(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            returned = method(self, *args, **kwargs)

            def keep(leaf: str, value: jax.Array) -> bool:
                return self.sow(
                    nnx.Intermediate,
                    leaf,
                    value,
                    reduce_fn=lambda _, new: new,
                    init_fn=lambda: None,
                )

            return outputs.record(self, path, name, returned, keep, _is_module)

        return functools.wraps(method)(call)

    methods = {
        name: recording(name, method)
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if name != root_method
        and (name == "__call__" or not (name.startswith("__") or hasattr(nnx.Module, name)))
    }
    return type(kind.__name__, (kind,), methods)


def _is_module(value: Any) -> bool:
    return isinstance(value, nnx.Module)
