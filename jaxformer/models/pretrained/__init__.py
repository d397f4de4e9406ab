"""Published models of the families in `families`, with jaxformer's paths and addresses.

    model, params, config = jaxformer.load("gpt2")                  from the hub or a folder
    capture.capture(model, params, tokens, names=["block_11/attn/weights"])
    surgery.laser(params, "block_11/mlp/in", 0.01)
    save_folder("cut", model, params, config)                       transformers reads it

`network` is one module for all families, with the hyperparameters of a `PretrainedSpec`.
`config_json` reads config.json. `folder` reads weights and `saving` writes them, by the names of
the family and the layouts in `tensor_layouts`. `peft_folder` exchanges adapters with the package
peft. `hub` downloads, and `tiny` makes random small models.

The names below are imported on first use, because `theory.advise` reads a config.json by
`config_numbers` in less time than an import of JAX takes.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxformer.models.pretrained.config_json import describe
    from jaxformer.models.pretrained.folder import is_pretrained, load_folder
    from jaxformer.models.pretrained.network import Pretrained, pretrained
    from jaxformer.models.pretrained.peft_folder import load_adapter, save_adapter
    from jaxformer.models.pretrained.saving import save_folder
    from jaxformer.models.pretrained.spec import PretrainedSpec

__all__ = [
    "Pretrained",
    "PretrainedSpec",
    "describe",
    "is_pretrained",
    "load_adapter",
    "load_folder",
    "pretrained",
    "save_adapter",
    "save_folder",
]
# Name -> the module of this package in which it is defined.
_MODULES = {
    "Pretrained": "network",
    "PretrainedSpec": "spec",
    "describe": "config_json",
    "is_pretrained": "folder",
    "load_adapter": "peft_folder",
    "load_folder": "folder",
    "pretrained": "network",
    "save_adapter": "peft_folder",
    "save_folder": "saving",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message, name=name, obj=sys.modules[__name__])
