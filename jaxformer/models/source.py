"""The source of a loaded model: what it was loaded from, and its tokenizer.

Parameters travel beside a model, not in it: `load` returns both, and a model alone has no weights.
So what would draw new weights for a loaded model (`jaxformer.train`, `jaxformer.anatomy`) asks for
its origin first, and refuses.

The source is a field of every network here (`Loadable`), so that `clone`, `bind`, copies and
pickles keep it. It takes no part in comparisons: a loaded network computes what one that was built
with the same hyperparameters computes.
"""

import copy
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn

SPEC_SOURCE = "_loaded_from"  # the attribute of the spec of a user's own loaded module


@dataclasses.dataclass(frozen=True, eq=False)
class Source:
    """The place that a model was loaded from, and its tokenizer.

    Attributes:
        name: the source as `jaxformer.load` got it; "" if the model carries its parameters itself.
        read: a function without arguments that returns the tokenizer, or None. It is called on
            first use, because reading a tokenizer of 50,000 words takes a third of a second. It can
            be pickled, as a `functools.partial` of a function of a module can.
    """

    name: str
    read: Callable[[], Any] | None = None

    @functools.cached_property
    def tokenizer(self) -> Any:
        """The tokenizer; None without one."""
        return None if self.read is None else self.read()

    def __reduce__(self) -> Any:
        """Leaves the tokenizer out of pickles and copies: they read it again."""
        return Source, (self.name, self.read)


class Loadable(nn.Module, kw_only=True):
    """A network that `jaxformer.load` may return."""

    source: Source | None = dataclasses.field(default=None, compare=False, repr=False)


def with_source(model: Any, source: Source) -> Any:
    """A copy of the model that knows its source.

    It is a copy because the model may be the caller's own, which did not come from this source.
    """
    if isinstance(model, Loadable):
        return model.clone(source=source)
    if not isinstance(model, nn.Module):  # a wrapped module
        marked = copy.copy(model)
        marked.source = source
        return marked
    # A Linen module of the user, which has no field for it: its copies keep its spec.
    spec = copy.copy(model.spec)
    object.__setattr__(spec, SPEC_SOURCE, source)
    if "spec" in type(model).__dataclass_fields__:
        return model.clone(spec=spec)
    marked = model.clone()
    object.__setattr__(marked, "spec", spec)
    return marked


def source_of(model: Any) -> Source | None:
    """The source of a model; None for one that was built."""
    source = getattr(model, "source", None)
    if not isinstance(source, Source):
        source = getattr(getattr(model, "spec", None), SPEC_SOURCE, None)
    return source


def origin(model: Any) -> str:
    """The source that the model was loaded from; "" for one that was built."""
    source = source_of(model)
    return "" if source is None else source.name


def attached(model: Any) -> Any:
    """The tokenizer that a model knows; None without one."""
    source = source_of(model)
    return None if source is None else source.tokenizer
