"""The origin of a loaded model, which the model and its copies know.

Parameters travel beside a model, not in it: `load` returns both, and a model alone has no weights.
So what would draw new weights for a loaded model (`jaxformer.train`, `jaxformer.anatomy`) asks for
its origin first, and refuses.
"""

import copy
import weakref
from typing import Any

import flax.linen as nn

from jaxformer.models.pretrained_init import FromParams
from jaxformer.models.words import READER

ORIGIN = "_loaded_from"  # the attribute of a loaded model
# {id of the spec of a loaded model: (weak reference to it, source)}. A spec has no such attribute,
# because `decoder(**vars(spec))` builds a model of its fields.
_sources: dict[int, tuple[weakref.ref, str]] = {}


def with_origin(model: Any, source: object) -> Any:
    """A copy of the model that knows what its parameters were loaded from.

    Its spec is known as well, because `model.clone()` of Flax keeps the spec and nothing else that
    is no field. It is a copy because the model may be the caller's own, which did not come from
    this source.
    """
    spec = copy.copy(model.spec)
    if isinstance(model, nn.Module):
        has_spec = "spec" in type(model).__dataclass_fields__
        marked = model.clone(spec=spec) if has_spec else model.clone()
        if hasattr(model, READER):  # the tokenizer
            object.__setattr__(marked, READER, getattr(model, READER))
    else:
        marked = copy.copy(model)
        if "spec" in vars(marked):
            marked.spec = spec
    object.__setattr__(marked, ORIGIN, str(source))
    if marked.spec is spec:
        _note(spec, str(source))
    return marked


def origin(model: Any) -> str:
    """The source that the model was loaded from; "" for one that was built."""
    found = getattr(model, ORIGIN, "")
    if found or isinstance(model, FromParams):  # its parameters are given, whatever its spec
        return found
    spec = getattr(model, "spec", None)
    reference, source = _sources.get(id(spec), (None, ""))
    return source if reference is not None and reference() is spec else ""


def _note(spec: Any, source: str) -> None:
    key = id(spec)
    try:
        reference = weakref.ref(spec, lambda _: _sources.pop(key, None))
    except TypeError:  # a user's spec with __slots__: only the model itself knows its source
        return
    _sources[key] = reference, source
