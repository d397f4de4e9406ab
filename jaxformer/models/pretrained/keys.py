"""The tensor names of the four families on disk, and the layouts of their tensors.

A line maps a tensor name on disk to our paths with a layout; # is the number of a block. Layouts:

    same        (inputs, outputs), as ours
    transposed  (outputs, inputs), as in PyTorch
    columns     several of our kernels joined along the outputs of (inputs, outputs)
    rows        several of our kernels joined along the outputs of (outputs, inputs)
    per_head    (heads, 3, D, inputs): query, key and value of each head in turn (GPT-NeoX)
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxformer.core.errors import check_choice
from jaxformer.models.pretrained.spec import PretrainedSpec

FUSED = ("columns", "rows", "per_head")
QKV = ("block_#/attn/query/", "block_#/attn/key/", "block_#/attn/value/")


class Line(NamedTuple):
    """A tensor on disk and the parameters that it contains."""

    theirs: str
    ours: tuple[str, ...]
    layout: str


def _line(theirs: str, ours: str | Sequence[str], layout: str = "same") -> Line:
    return Line(theirs, (ours,) if isinstance(ours, str) else tuple(ours), layout)


def _dense(theirs: str, ours: str, layout: str = "transposed") -> list[Line]:
    kernel = _line(f"{theirs}.weight", f"{ours}/kernel", layout)
    return [kernel, _line(f"{theirs}.bias", f"{ours}/bias")]


def _qkv(theirs: str, layout: str) -> list[Line]:
    return [
        _line(f"{theirs}.weight", [f"{name}kernel" for name in QKV], layout),
        _line(f"{theirs}.bias", [f"{name}bias" for name in QKV], layout),
    ]


def _norm(theirs: str, ours: str) -> list[Line]:
    return [_line(f"{theirs}.weight", f"{ours}/scale"), _line(f"{theirs}.bias", f"{ours}/bias")]


GPT2 = (
    _line("transformer.wte.weight", "embed/embedding"),
    _line("transformer.wpe.weight", "positions/embedding"),
    *_norm("transformer.h.#.ln_1", "block_#/attn_norm"),
    *_qkv("transformer.h.#.attn.c_attn", "columns"),
    *_dense("transformer.h.#.attn.c_proj", "block_#/attn/out", "same"),
    *_norm("transformer.h.#.ln_2", "block_#/mlp_norm"),
    *_dense("transformer.h.#.mlp.c_fc", "block_#/mlp/in", "same"),
    *_dense("transformer.h.#.mlp.c_proj", "block_#/mlp/out", "same"),
    *_norm("transformer.ln_f", "final_norm"),
    _line("lm_head.weight", "unembed/kernel", "transposed"),
)
GPT_NEOX = (
    _line("gpt_neox.embed_in.weight", "embed/embedding"),
    *_norm("gpt_neox.layers.#.input_layernorm", "block_#/attn_norm"),
    *_norm("gpt_neox.layers.#.post_attention_layernorm", "block_#/mlp_norm"),
    *_qkv("gpt_neox.layers.#.attention.query_key_value", "per_head"),
    *_dense("gpt_neox.layers.#.attention.dense", "block_#/attn/out"),
    *_dense("gpt_neox.layers.#.mlp.dense_h_to_4h", "block_#/mlp/in"),
    *_dense("gpt_neox.layers.#.mlp.dense_4h_to_h", "block_#/mlp/out"),
    *_norm("gpt_neox.final_layer_norm", "final_norm"),
    _line("embed_out.weight", "unembed/kernel", "transposed"),
)
_STREAM = (
    _line("model.embed_tokens.weight", "embed/embedding"),
    _line("model.layers.#.input_layernorm.weight", "block_#/attn_norm/scale"),
    _line("model.layers.#.post_attention_layernorm.weight", "block_#/mlp_norm/scale"),
    *_dense("model.layers.#.self_attn.o_proj", "block_#/attn/out"),
    *_dense("model.layers.#.mlp.down_proj", "block_#/mlp/out"),
    _line("model.norm.weight", "final_norm/scale"),
    _line("lm_head.weight", "unembed/kernel", "transposed"),
)
LLAMA = (
    *_STREAM,
    *_dense("model.layers.#.self_attn.q_proj", "block_#/attn/query"),
    *_dense("model.layers.#.self_attn.k_proj", "block_#/attn/key"),
    *_dense("model.layers.#.self_attn.v_proj", "block_#/attn/value"),
    *_dense("model.layers.#.mlp.gate_proj", "block_#/mlp/gate"),
    *_dense("model.layers.#.mlp.up_proj", "block_#/mlp/in"),
)
GATE_UP = ("block_#/mlp/gate/kernel", "block_#/mlp/in/kernel")
PHI3 = (
    *_STREAM,
    *_qkv("model.layers.#.self_attn.qkv_proj", "rows"),
    _line("model.layers.#.mlp.gate_up_proj.weight", GATE_UP, "rows"),
)
FAMILIES = {"gpt2": GPT2, "gpt_neox": GPT_NEOX, "llama": LLAMA, "phi3": PHI3}
# Prefixes that names on disk may lack: GPT-2's hub files have the stack without its head.
PREFIXES = {"gpt2": "transformer.", "gpt_neox": "gpt_neox.", "llama": "model.", "phi3": "model."}
# Patterns of constants in older checkpoints.
IGNORED = (
    r"(.*\.)?attn\.(masked_)?bias",
    r"(.*\.)?attention\.(masked_)?bias",
    r"(.*\.)?rotary_emb\.inv_freq",
)


def lines(spec: PretrainedSpec, paths: Sequence[str]) -> list[Line]:
    """Returns the lines of a model's family for all blocks, without parameters it does not have.

    Args:
      paths: the paths of the model's parameters.
    """
    check_choice("family", spec.family, FAMILIES)
    parameters = set(paths)
    present = []
    for line in FAMILIES[spec.family]:
        blocks = range(spec.layers) if "#" in line.theirs else [0]
        for i in blocks:
            ours = tuple(path.replace("#", str(i)) for path in line.ours)
            if parameters.issuperset(ours):
                present.append(Line(line.theirs.replace("#", str(i)), ours, line.layout))
    return present


def ours(array: Any, line: Line, spec: PretrainedSpec) -> list[Any]:
    """Returns our parameters as views of a tensor from disk.

    A tensor of a wrong shape raises ValueError or gives parameters of wrong shapes.
    """
    if line.layout == "same":
        return [array]
    if line.layout == "transposed":
        return [array.T]
    if line.layout == "per_head":
        rest = array.shape[1:]
        parts = array.reshape(spec.heads, 3, spec.head_width, *rest)
        return [parts[:, i].reshape(spec.heads * spec.head_width, *rest).T for i in range(3)]
    ends = np.cumsum(_sizes(line, spec))[:-1]
    if line.layout == "columns":
        return np.split(array, ends, axis=-1)
    return [part.T for part in np.split(array, ends, axis=0)]


def theirs(arrays: Sequence[Any], line: Line, spec: PretrainedSpec) -> Any:
    """Returns the tensor for disk of our parameters, the inverse of `ours`."""
    if line.layout == "same":
        return arrays[0]
    if line.layout == "transposed":
        return arrays[0].T
    if line.layout == "columns":
        return np.concatenate(arrays, axis=-1)
    if line.layout == "rows":
        return np.concatenate([array.T for array in arrays], axis=0)
    rest = arrays[0].T.shape[1:]
    parts = [array.T.reshape(spec.heads, spec.head_width, *rest) for array in arrays]
    return np.stack(parts, 1).reshape(3 * spec.heads * spec.head_width, *rest)


def their_shape(line: Line, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Returns the shape on disk for parameters of these shapes."""
    inputs, outputs = shapes[0][:-1], sum(shape[-1] for shape in shapes)
    if line.layout == "same":
        return tuple(shapes[0])
    return (*inputs, outputs) if line.layout == "columns" else (outputs, *inputs)


def _sizes(line: Line, spec: PretrainedSpec) -> list[int]:
    """Returns the number of outputs of each parameter in a joined tensor."""
    if len(line.ours) == 2:
        return [spec.mlp_width] * 2
    return [heads * spec.head_width for heads in (spec.heads, spec.kv_heads, spec.kv_heads)]
