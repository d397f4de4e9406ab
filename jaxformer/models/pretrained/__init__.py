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

from typing import TYPE_CHECKING

from jaxformer.core import lazy

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
__getattr__, __dir__ = lazy.names(
    __name__,
    {
        "Pretrained": f"{__name__}.network:Pretrained",
        "PretrainedSpec": f"{__name__}.spec:PretrainedSpec",
        "describe": f"{__name__}.config_json:describe",
        "is_pretrained": f"{__name__}.folder:is_pretrained",
        "load_adapter": f"{__name__}.peft_folder:load_adapter",
        "load_folder": f"{__name__}.folder:load_folder",
        "pretrained": f"{__name__}.network:pretrained",
        "save_adapter": f"{__name__}.peft_folder:save_adapter",
        "save_folder": f"{__name__}.saving:save_folder",
    },
)
