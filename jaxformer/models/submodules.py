"""Addresses for the outputs of the submodules of a network that has no `tap`.

    att/query/output        what the submodule att/query returns
    att/query/output_1      what it returns when the same pass calls it again
    embed/attend            what its method `attend` returns
    cell/output/0 /1        the arrays of a tuple; the keys of a dict, the fields of a dataclass
    logits                  what the whole network returns

`jaxformer.wrap` uses it for modules that somebody else wrote: Flax' own hooks around each method
call give the address, and the active `Request` keeps or replaces the value. A submodule that is
reachable by two names has one address, which begins like the paths of its parameters.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxformer.core import paths
from jaxformer.core.errors import UserError, did_you_mean
from jaxformer.models.activation_points import INTERMEDIATES, Request

LOGITS = "logits"
OUTPUT = "output"
# A submodule may be called "output" too (BERT's is), so that a kept value needs another name.
KEPT = "@"
Keep = Callable[[str, jax.Array], bool]  # stores a value under a name; False if it cannot


class Outputs:
    """The outputs of one pass, in the order in which the calls return."""

    def __init__(self, request: Request):
        self.request = request
        self._addresses: set[str] = set()
        self._not_kept: set[str] = set()  # addresses that are asked for but lost in a scan
        self._calls: dict[tuple[int, str], int] = {}  # {(id of a trace, address): calls}
        self._traces: list[Any] = []  # kept alive, so that no id is used twice

    def record(
        self,
        trace: Any,
        path: tuple[Any, ...],
        method: str,
        outputs: Any,
        keep: Keep,
        is_leaf: Callable[[Any], bool] | None = None,
    ) -> Any:
        """Gives the arrays in `outputs` their addresses and returns them after the edits.

        Args:
            trace: an object that is another one when a lifted transformation, such as a scan,
                traces the same call again: calls are counted for each.
            path: the names that lead to the submodule.
            method: the method that was called.
            outputs: what it returned; anything but arrays passes unchanged.
            keep: stores a value with the submodule.
            is_leaf: whether a part of the output is passed on whole.
        """
        name = OUTPUT if method == "__call__" else method
        base = "/".join(map(str, (*path, name)))
        key = (id(trace), base)
        self._traces.append(trace)
        calls = self._calls[key] = self._calls.get(key, -1) + 1
        suffix = f"_{calls}" if calls else ""

        def record_leaf(place: Any, value: Any) -> Any:
            if not isinstance(value, jax.Array) or jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
                return value
            inside = jax.tree_util.keystr(place, simple=True, separator="/")
            leaf = f"{name}{suffix}/{inside}" if inside else f"{name}{suffix}"
            address = "/".join(map(str, (*path, leaf)))
            if address in self.request.shapes and address not in self._addresses:
                return value  # the module itself calls `tap`, which has applied the edits
            self._addresses.add(address)
            value = self.request.record(address, value)
            if self.request.keeps(address) and not keep(KEPT + leaf, value):
                self._not_kept.add(address)
            return value

        return jax.tree_util.tree_map_with_path(record_leaf, outputs, is_leaf=is_leaf)

    def record_logits(self, outputs: Any, kept: dict[str, Any]) -> Any:
        """Records the output of the whole network; `kept` gets it if it is asked for."""
        if not isinstance(outputs, jax.Array) or LOGITS in self.request.shapes:
            return outputs
        logits = self.request.record(LOGITS, outputs)
        if self.request.keeps(LOGITS):
            kept[LOGITS] = logits
        return logits

    def check(self, kept: Mapping[str, Any]) -> None:
        """Raises, after a pass, for a pattern that matches only what cannot be had."""
        for pattern in self.request.names:
            lost = [a for a in self._not_kept if paths.matches(pattern, a, modules=True)]
            if lost and not any(paths.matches(pattern, a, modules=True) for a in kept):
                raise UserError(
                    f"{min(lost)} cannot be kept: a lifted transformation around it, such as "
                    f"nn.scan, drops what its body stores. Give it "
                    f"variable_axes={{'{INTERMEDIATES}': 0}}; or replace the value, which works."
                )
        for pattern in self.request.edits:
            sown = [a for a in kept if a not in self.request.shapes and paths.matches(pattern, a)]
            if pattern not in self.request.used and sown:
                raise UserError(
                    f"{sown[0]} can be captured but not replaced, because the module sows a copy. "
                    "Replace the output of a submodule, or call "
                    "jaxformer.models.activation_points.tap in the module."
                )


def flat_values(written: Mapping[str, Any]) -> dict[str, Any]:
    """Returns {address: value} of a tree of kept values, and of those that the module sows."""
    flat: dict[str, Any] = {}
    for path, value in paths.flatten(written).items():
        address = path.replace(KEPT, "", 1)
        values = value if isinstance(value, tuple) else (value,)  # a plain `sow` collects a tuple
        for number, each in enumerate(values):
            flat[f"{address}_{number}" if number else address] = each
    return flat


def intercept_linen(outputs: Outputs, root_method: str) -> Any:
    """A context in which the submodules of a Linen module record their outputs."""

    def record(next_function: Any, args: Any, kwargs: Any, context: Any) -> Any:
        module, method = context.module, context.method_name
        returned = next_function(*args, **kwargs)
        is_root = module.path == () and method == root_method
        if (
            is_root or method == "setup" or not method.isidentifier()
        ):  # "<lambda>" of a lifted class
            return returned

        def keep(name: str, value: jax.Array) -> bool:
            return module.sow(INTERMEDIATES, name, value, reduce_fn=_last)

        return outputs.record(module.scope.root, module.path, method, returned, keep)

    return nn.intercept_methods(record)


def _last(_: Any, new: Any) -> Any:
    """Makes `sow` store the array itself instead of a tuple."""
    return new


def check_method(kind: type, name: str, method: str | Callable[..., Any] | None) -> None:
    """Raises unless a module of this class has the method, and it takes tokens alone.

    Args:
        kind: the class of the module.
        name: the name of the module in messages.
        method: as in `jaxformer.wrap`.
    """
    example = "method=lambda net, tokens: net(inputs=tokens, train=False)"
    function: Any = method or "__call__"
    if isinstance(function, str):
        known = [m for m, _ in inspect.getmembers(kind, inspect.isfunction) if m[0] != "_"]
        if not hasattr(kind, function) or (function == "__call__" and "__call__" not in dir(kind)):
            raise UserError(
                f"{name} has no method {function!r}.{did_you_mean(function, known)} "
                f"Give the one that maps tokens to logits, such as {example}."
            )
        function = getattr(kind, function)
    try:
        inspect.signature(function).bind(None, "tokens")
    except TypeError as error:
        raise UserError(
            f"{name} cannot be called with tokens alone ({error}). Say how, such as {example}."
        ) from None
    except ValueError:  # a callable without a signature
        return


def check_takes_rngs(module: Callable[..., Any], name: str) -> None:
    """Raises unless `module` can be called with nnx.Rngs to build an NNX module."""
    if isinstance(module, type) and issubclass(module, nn.Module):
        raise UserError(f"{name} is a class of Linen: give an instance, such as {name}().")
    try:
        inspect.signature(module).bind("rngs")
    except TypeError:
        raise UserError(
            f"{name} must take one argument, nnx.Rngs, such as lambda rngs: Net(16, rngs=rngs)."
        ) from None
    except ValueError:  # a callable without a signature
        return
