"""Published models of the families in `core.hub_families`, with jaxformer's paths and addresses.

    model, params, config = jaxformer.load("gpt2")                  from the hub or a folder
    capture.capture(model, params, tokens, names=["block_11/attn/weights"])
    surgery.laser(params, "block_11/mlp/in", 0.01)
    save_folder("cut", model, params, config)                       transformers reads it

`network` is one module for all families, with the hyperparameters of a `PretrainedSpec`.
`config_json` reads config.json. `folder` reads weights and `saving` writes them, by the names in
`tensor_names` and the layouts in `tensor_layouts`. `hub` downloads, and `tiny` makes random small
models.
"""

from jaxformer.models.pretrained.config_json import describe
from jaxformer.models.pretrained.folder import is_pretrained, load_folder
from jaxformer.models.pretrained.network import Pretrained, pretrained
from jaxformer.models.pretrained.saving import save_folder
from jaxformer.models.pretrained.spec import PretrainedSpec

__all__ = [
    "Pretrained",
    "PretrainedSpec",
    "describe",
    "is_pretrained",
    "load_folder",
    "pretrained",
    "save_folder",
]
