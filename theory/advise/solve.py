"""Finds the smallest change of a network that meets a target, and returns it as code (--solve).

One factor x multiplies the quantity that may change. The search goes outwards from x = 1 in both
directions on a grid of ratios 2^(1/8), then finds the edge between the last miss and the first hit.
It does not assume that the target changes monotonically with x. With --solve layers the network
only loses layers: the result is the largest depth, up to the present one, that meets the target.
"""

import math
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError
from theory.advise.boundaries import edge_of
from theory.advise.question import Question
from theory.signal.architecture import Architecture
from theory.signal.backward import gradients
from theory.signal.recursion import forward, layers_of, trace

MAX_STEPS = 80  # a factor of 2^10 in both directions
# Fields of `Architecture` with standard deviations of matrices and of embedding vectors.
MATRICES = ("std_q", "std_k", "std_v", "std_o", "std_1", "std_2")
EMBEDDINGS = ("std_embed", "std_position", "std_type")
# PyTorch names of the last matrices of attention and MLP, and of the query and key matrices.
LLAMA_NAMES = (("o_proj.weight", "down_proj.weight"), ("q_proj.weight", "k_proj.weight"))
MATRIX_NAMES = {
    "gpt2": (("attn.c_proj.weight", "mlp.c_proj.weight"), ("c_attn.weight",)),
    "gpt_neox": (
        ("attention.dense.weight", "mlp.dense_4h_to_h.weight"),
        ("query_key_value.weight",),
    ),
    "llama": LLAMA_NAMES,
    "mistral": LLAMA_NAMES,
    "qwen2": LLAMA_NAMES,
    "t5": (
        ("SelfAttention.o.weight", "DenseReluDense.wo.weight"),
        ("SelfAttention.q.weight", "SelfAttention.k.weight"),
    ),
    "distilbert": (("out_lin.weight", "ffn.lin2.weight"), ("q_lin.weight", "k_lin.weight")),
}
DEFAULT_NAMES = (("output.dense.weight",), ("query.weight", "key.weight"))


def solve(question: Question, what: str, cosine: float, keys: float) -> dict[str, Any]:
    """Finds the smallest change that meets a target.

    Args:
      question: the network and its input.
      what: the quantity to change, one of `question.SOLVES`.
      cosine: largest allowed cosine after the last layer.
      keys: smallest allowed number of keys in every layer.

    Returns:
      "factor" x, the changed "architecture" with its cosine, keys and gradient ratio, and "lines"
      of code for config.json, Flax and PyTorch. UserError is raised if no factor meets the target.
    """
    keys = min(keys, question.length)
    find = _depth_factor if what == "layers" else _nearest_factor
    x = find(question, what, cosine, keys)
    net = scaled(question.architecture, what, x)
    forward_pass = trace(net, *question.inputs)
    layers = layers_of(forward_pass)
    return {
        "what": what,
        "target_cosine": cosine,
        "target_keys": keys,
        "factor": x,
        "architecture": net,
        "lines": _code_lines(question, net, what, x),
        "cosine": float(layers.cosine[-1]),
        "keys": float(np.exp(layers.entropy.min())),
        "gradient_ratio": gradients(net, forward_pass).ratio,
    }


def scaled(net: Architecture, what: str, x: float) -> Architecture:
    """Returns the architecture with the quantity `what` multiplied by x.

    Args:
        net: the architecture.
        what: "layers", "residual", "init-std", "depth-scale" or "beta".
        x: the factor. "depth-scale" scales the last matrix of each branch.
    """
    if what == "layers":
        return net.replace(layers=round(net.layers * x))
    names = {
        "residual": ("alpha_sa", "alpha_mlp"),
        "init-std": MATRICES + EMBEDDINGS,
        "depth-scale": ("std_o" if net.has_output_projection else "std_v", "std_2"),
        "beta": ("std_q", "std_k"),
    }[what]
    values = {name: getattr(net, name) for name in names}
    power = 0.5 if what == "beta" else 1.0  # beta is proportional to std_q std_k
    return net.replace(**{k: v * x**power for k, v in values.items() if v is not None})


def _nearest_factor(question: Question, what: str, cosine: float, keys: float) -> float:
    net = question.architecture

    def excess(log_x: float) -> float:
        """Returns the larger violation of the two targets; it is positive if one is missed."""
        layers = forward(scaled(net, what, math.exp(log_x)), *question.inputs)
        value = max(layers.cosine[-1] - cosine, math.log(keys) - layers.entropy.min())
        return float(value) if np.isfinite(value) else 1.0

    if excess(0.0) <= 0:
        return 1.0
    step = math.log(2) / 8
    for k in range(1, MAX_STEPS + 1):
        hits = [sign * k * step for sign in (-1, 1) if excess(sign * k * step) <= 0]
        if hits:
            hit = hits[0]  # the smaller x if both directions meet the targets
            last_miss = hit - math.copysign(step, hit)
            return math.exp(edge_of(excess, last_miss, hit))
    raise _no_solution(what, cosine, keys)


def _depth_factor(question: Question, what: str, cosine: float, keys: float) -> float:
    """Returns the largest depth that meets both targets, divided by the present depth."""
    layers = forward(question.architecture, *question.inputs)
    has_enough_keys = np.minimum.accumulate(layers.entropy) >= math.log(keys)
    good_layers = np.flatnonzero((layers.cosine[1:] <= cosine) & has_enough_keys)
    if not len(good_layers):
        raise _no_solution(what, cosine, keys)
    return float((good_layers[-1] + 1) / question.architecture.layers)


def _no_solution(what: str, cosine: float, keys: float) -> UserError:
    searched = f"no {what} between 1/1024 and 1024 times the present"
    if what == "layers":
        searched = "no number of layers up to the present one"
    return UserError(
        f"--solve {what}: {searched} gives a cosine of at most {cosine:g} and at least {keys:g} "
        "keys; "
        "try another of residual, init-std, depth-scale, layers, beta, or a weaker target."
    )


def _code_lines(question: Question, net: Architecture, what: str, x: float) -> dict[str, str]:
    """Returns the change as code for config.json, Flax and PyTorch."""
    model_type = question.model_type or ""
    if x == 1:
        return {"nothing": "the present network meets the target"}
    if what == "residual":
        outer, branch_input = ("", "norm(x)") if net.pre_norm else ("norm", "x")
        code = "; ".join(
            f"x = {outer}({weight:.4g} * x + {branch}({branch_input}))"
            for weight, branch in ((net.alpha_sa, "attn"), (net.alpha_mlp, "mlp"))
        )
        return {"config.json": "has no field for it", "Flax": code, "PyTorch": code}
    if what == "layers":
        names = {"gpt2": "n_layer", "t5": "num_layers", "distilbert": "n_layers"}
        field = f'"{names.get(model_type, "num_hidden_layers")}": {net.layers}'
        return {"config.json": field, "Flax": f"layers={net.layers}", "PyTorch": field}
    if what == "init-std":
        return _init_std_lines(model_type, question.init_std * x, x)
    return _matrix_lines(model_type, net, what, x)


def _init_std_lines(model_type: str, std: float, x: float) -> dict[str, str]:
    if model_type == "t5":
        return {
            "config.json": f'"initializer_factor": {std:.4g}',
            "Flax": f"the standard deviation of every initialiser times {x:.4g}",
            "PyTorch": f"p.data.mul_({x:.4g}) for every parameter p",
        }
    return {
        "config.json": f'"initializer_range": {std:.4g}',
        "Flax": f"kernel_init=nn.initializers.normal({std:.4g}), embedding_init the same",
        "PyTorch": f"nn.init.normal_(weight, std={std:.4g})",
    }


def _matrix_lines(model_type: str, net: Architecture, what: str, x: float) -> dict[str, str]:
    """Returns the code that scales some matrices ("beta" or "depth-scale")."""
    last_matrices, query_matrices = MATRIX_NAMES.get(model_type, DEFAULT_NAMES)
    query_key_part = ""
    if what == "beta":
        names = query_matrices
        flax = f"kernel_init=nn.initializers.normal({net.std_q:.4g}) of query, key"
        factor = x**0.5
        # Where one matrix has queries, keys and values, only queries and keys are scaled.
        query_key_part = {
            "gpt2": f"[:, : {2 * net.width}]",
            "gpt_neox": f".view({net.heads}, 3, {net.head_width}, -1)[:, :2]",
        }.get(model_type, "")
    else:
        names = last_matrices
        flax = f"kernel_init=nn.initializers.normal({net.std_o or net.std_v:.4g}) of W_O"
        flax += f", normal({net.std_2:.4g}) of W_2"
        factor = x
    loop = f"for n, p in model.named_parameters(): n.endswith({names!r})"
    torch = f"{loop} and p.data{query_key_part}.mul_({factor:.4g})"
    return {"config.json": "has no field for it", "Flax": flax, "PyTorch": torch}
