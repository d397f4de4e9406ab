"""Names in config.json files of Hugging Face and in jaxformer. This module does not import jax."""

# {activation function in transformers: in jaxformer}
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
