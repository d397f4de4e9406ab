"""The inverse problem: the smallest change after which the target is met, as lines to paste.

One number x multiplies what may change. The recursion is cheap, so x is looked for outwards from 1
on a grid of ratios 2^(1/8), in both directions, and the edge between the last miss and the first
hit is then found exactly: no slope or monotony is assumed.
"""

import math
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError
from theory.advise.diagnosis import changed, edge_of
from theory.advise.question import Question
from theory.signal.architecture import Architecture
from theory.signal.recursion import forward

STEPS = 80  # 2^10 either way
MATRICES = ("std_q", "std_k", "std_v", "std_o", "std_1", "std_2")
EMBEDDINGS = ("std_embed", "std_position", "std_type")
# The names that a model's last matrices of attention and MLP have in PyTorch.
LAST = {
    "gpt2": ("attn.c_proj.weight", "mlp.c_proj.weight"),
    "gpt_neox": ("attention.dense.weight", "mlp.dense_4h_to_h.weight"),
    "llama": ("o_proj.weight", "down_proj.weight"),
    "mistral": ("o_proj.weight", "down_proj.weight"),
    "qwen2": ("o_proj.weight", "down_proj.weight"),
    "t5": ("SelfAttention.o.weight", "DenseReluDense.wo.weight"),
    "distilbert": ("out_lin.weight", "ffn.lin2.weight"),
}
QUERIES = {
    "gpt2": ("c_attn.weight",),
    "gpt_neox": ("query_key_value.weight",),
    "llama": ("q_proj.weight", "k_proj.weight"),
    "mistral": ("q_proj.weight", "k_proj.weight"),
    "qwen2": ("q_proj.weight", "k_proj.weight"),
    "t5": ("SelfAttention.q.weight", "SelfAttention.k.weight"),
    "distilbert": ("q_lin.weight", "k_lin.weight"),
}


def solve(question: Question, what: str, cosine: float, keys: float) -> dict[str, Any]:
    """The changed architecture, its three numbers, and lines for config.json, Flax and PyTorch."""
    keys = min(keys, question.length)
    x = (
        _layers(question, cosine, keys)
        if what == "layers"
        else _factor(question, what, cosine, keys)
    )
    net = scaled(question.architecture, what, x)
    return {
        "what": what,
        "target_cosine": cosine,
        "target_keys": keys,
        "factor": x,
        "architecture": net,
        "lines": lines(question, net, what, x),
        **changed(question, net),
    }


def scaled(net: Architecture, what: str, x: float) -> Architecture:
    """The architecture with the thing named multiplied by x."""
    names: tuple[str, ...] = {
        "residual": ("alpha_sa", "alpha_mlp"),
        "init-std": MATRICES + EMBEDDINGS,
        "depth-scale": ("std_o", "std_2") if net.std_o is not None else ("std_v", "std_2"),
        "layers": (),
        "beta": ("std_q", "std_k"),
    }[what]
    if what == "layers":
        return net.replace(layers=round(net.layers * x))
    held = {name: getattr(net, name) for name in names}
    power = 0.5 if what == "beta" else 1.0
    return net.replace(**{k: v * x**power for k, v in held.items() if v is not None})


def _factor(question: Question, what: str, cosine: float, keys: float) -> float:
    net = question.architecture

    def excess(log_x: float) -> float:
        """Positive while the target is missed; the worse of the two."""
        found = forward(
            scaled(net, what, math.exp(log_x)), question.length, question.rho0, question.repeat
        )
        value = max(found.cosine[-1] - cosine, math.log(keys) - found.entropy.min())
        return float(value) if np.isfinite(value) else 1.0

    if excess(0.0) <= 0:
        return 1.0
    step = math.log(2) / 8
    for k in range(1, STEPS + 1):
        hits = [sign * k * step for sign in (-1, 1) if excess(sign * k * step) <= 0]
        if hits:
            last = hits[0] - math.copysign(step, hits[0])
            return math.exp(edge_of(excess, last, hits[0]))
    raise _none(question, what, cosine, keys)


def _layers(question: Question, cosine: float, keys: float) -> float:
    found = forward(question.architecture, question.length, question.rho0, question.repeat)
    enough = np.minimum.accumulate(found.entropy) >= math.log(keys)
    good = np.flatnonzero((found.cosine[1:] <= cosine) & enough)
    if not len(good):
        raise _none(question, "layers", cosine, keys)
    return float((good[-1] + 1) / question.architecture.layers)


def _none(question, what, cosine, keys):
    return UserError(
        f"--solve {what}: no {what} between 1/1024 and 1024 times today's gives a cosine of at "
        f"most {cosine:g} and at least {keys:g} keys; "
        "try another of residual, init-std, depth-scale, layers, beta, or a weaker target."
    )


def lines(question: Question, net: Architecture, what: str, x: float) -> dict[str, str]:
    """What to paste, by where."""
    kind = question.model_type or ""
    if x == 1:
        return {"nothing": "the target is met as it is"}
    if what == "residual":
        a, m = net.alpha_sa, net.alpha_mlp
        norm = ("", "norm(x)") if net.pre_norm else ("norm", "x")
        update = "x = {}({:.4g} * x + {}({}))"
        both = "; ".join(
            update.format(norm[0], w, f, norm[1]) for w, f in ((a, "attn"), (m, "mlp"))
        )
        return {"config.json": "has no field for it", "Flax": both, "PyTorch": both}
    if what == "layers":
        name = {"gpt2": "n_layer", "t5": "num_layers", "distilbert": "n_layers"}.get(kind)
        line = f'"{name or "num_hidden_layers"}": {net.layers}'
        return {"config.json": line, "Flax": f"layers={net.layers}", "PyTorch": f"{line}"}
    if what == "init-std":
        std = question.init_std * x
        name = "initializer_factor" if kind == "t5" else "initializer_range"
        torch = f"nn.init.normal_(weight, std={std:.4g})"
        flax = f"kernel_init=nn.initializers.normal({std:.4g}), embedding_init the same"
        if kind == "t5":
            torch = f"p.data.mul_({x:.4g}) for every parameter p"
            flax = f"the deviation of every initialiser times {x:.4g}"
        return {"config.json": f'"{name}": {std:.4g}', "Flax": flax, "PyTorch": torch}
    if what == "beta":
        names = QUERIES.get(kind, ("query.weight", "key.weight"))
        first, std, x = "query, key", net.std_q, x**0.5
    else:
        names, first, std = LAST.get(kind, ("output.dense.weight",)), "W_O", net.std_o or net.std_v
    ends = repr(names)
    flax = f"kernel_init=nn.initializers.normal({std:.4g}) of {first}"
    flax += f", normal({net.std_2:.4g}) of W_2" * (what == "depth-scale")
    # The rows of queries and keys where one matrix holds the values too.
    part = {
        "gpt2": f"[:, : {2 * net.width}]",
        "gpt_neox": f".view({net.heads}, 3, {net.head_width}, -1)[:, :2]",
    }
    entries = f"p.data{part.get(kind, '') if what == 'beta' else ''}"
    loop = f"for n, p in model.named_parameters(): n.endswith({ends}) and {entries}.mul_({x:.4g})"
    return {"config.json": "has no field for it", "Flax": flax, "PyTorch": loop}
