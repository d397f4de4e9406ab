"""Writes authors_llama.json: the outputs of the authors' Llama file, for test_agreement_authors.

    git clone https://github.com/princeton-pli/MixiT && git -C MixiT checkout 22ce029
    pip install torch transformers==4.51.3          (later versions cannot import their file)
    python tests/authors_llama.py MixiT > tests/reference/authors_llama.json

No test needs this script. Weights and noise are formulas of the path that jaxformer gives a weight,
so that both sides can make them; sizes and the step are those of `SIZES` and `STEP`.
"""

import json
import math
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np

SIZES = dict(vocab=11, width=8, heads=2, layers=3, length=6, batch=2)
STEP = dict(learning_rate=0.01, weight_decay=1e-3, clip=1.0)
BASES = dict(base_layers=4, base_width=512.0, base_mlp_width=1.0)
VARIANTS = ("standard", "frozen_qk", "frozen_mlp", "mixit", "random", "random_mixit")


def formula(path: str, shape, spread: float = 0.4) -> np.ndarray:
    """Returns numbers between -spread and spread that look random and are equal on all machines."""
    place = np.arange(math.prod(shape))
    return spread * np.sin(1.0 + 1.7 * place + zlib.crc32(path.encode()) % 997).reshape(shape)


def weight(path: str, shape) -> np.ndarray:
    """Returns the weight of a path; gains are near 1."""
    values = formula(path, shape)
    return 1 + 0.5 * values if path.endswith("scale") else values


def noise(layer: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the normal noise of a layer's mixing, (heads, m, m), and a number for each head."""
    heads, m = SIZES["heads"], SIZES["length"]
    uniform = 0.5 + formula(f"uniform {layer}", (heads, 1, 1), 0.5)
    return formula(f"noise {layer}", (heads, m, m), 1.5), uniform


def tokens() -> tuple[np.ndarray, np.ndarray]:
    """Returns inputs and targets."""
    shape = (SIZES["batch"], SIZES["length"])
    places = np.arange(math.prod(shape)).reshape(shape)
    return 7 * places % SIZES["vocab"], (5 * places + 3) % SIZES["vocab"]


# Theirs -> ours, below a block; their kernels are transposed.
NAMES = {
    "self_attn.q_proj.linear": "attn/query",
    "self_attn.k_proj.linear": "attn/key",
    "self_attn.v_proj.linear": "attn/value",
    "self_attn.o_proj.linear": "attn/out",
    "mlp.gate_proj.linear": "mlp/gate",
    "mlp.up_proj.linear": "mlp/in",
    "mlp.down_proj.linear": "mlp/out",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "mlp_norm",
}
OUTSIDE = {
    "model.embed_tokens.weight": "embed/embedding",
    "model.wpe.weight": "positions/embedding",
    "model.norm.weight": "final_norm/scale",
    "lm_head.linear.weight": "unembed/kernel",
}


def path_of(name: str) -> str:
    """Returns our path of one of the authors' parameters."""
    if name in OUTSIDE:
        return OUTSIDE[name]
    _, _, layer, rest = name.split(".", 3)
    module, _, kind = rest.rpartition(".")
    kind = {"bias": "bias"}.get(kind, "scale" if "norm" in module else "kernel")
    return f"block_{layer}/{NAMES[module]}/{kind}"


def trains(variant: str, path: str) -> bool:
    """Returns whether the authors' scripts train a parameter of a variant."""
    if variant.startswith("random"):
        return path.split("/")[0] in ("embed", "unembed", "positions")
    frozen = {"frozen_qk": ("query", "key"), "frozen_mlp": ("mlp",)}.get(variant, ())
    return not {*frozen} & {*path.split("/")}


def make(llama, torch, variant: str, deep: bool):
    """Returns the authors' model with our weights, and the mixing matrices of its constructor."""
    fixed, layer = variant.endswith("mixit"), iter(range(SIZES["layers"]))
    drawn = {}

    def rand(shape):
        drawn["layer"] = next(layer)
        return torch.tensor(noise(drawn["layer"])[1])

    def normal(mean, std):
        at = next(layer) if deep else drawn["layer"]
        return std * torch.tensor(noise(at)[0])

    kept = torch.rand, torch.normal
    torch.rand, torch.normal = rand, normal
    config = llama.MixingLlamaConfig(
        vocab_size=SIZES["vocab"],
        hidden_size=SIZES["width"],
        intermediate_size=4 * SIZES["width"],
        num_hidden_layers=SIZES["layers"],
        num_attention_heads=SIZES["heads"],
        max_position_embeddings=SIZES["length"],
        shaped_attention="mixing" if fixed else "vanilla",
        attn_implementation="eager",
        attention_bias=True,
        mlp_bias=True,
        base_hidden_size=BASES["base_width"],
        base_num_hidden_layers=BASES["base_layers"],
        depth_alpha=1.0 if deep else 0.0,
        use_cache=False,
    )
    try:
        model = llama.LlamaForCausalLM(config).double()
    finally:
        torch.rand, torch.normal = kept
    for name, parameter in model.named_parameters():
        path = path_of(name)
        transposed = path.endswith("kernel")
        shape = tuple(parameter.shape)[::-1] if transposed else tuple(parameter.shape)
        value = weight(path, shape)
        parameter.data = torch.tensor(value.T.copy() if transposed else value)
        parameter.requires_grad = trains(variant, path)
    mixing = [block.self_attn.attn_weights.numpy() for block in model.model.layers if fixed]
    for block in model.model.layers if fixed else ():
        block.self_attn.attn_weights = block.self_attn.attn_weights.double()
    return model, mixing


def step_of(torch, model) -> dict:
    """Returns the logits, and one step of the Hugging Face trainer at the full learning rate."""
    inputs, targets = (torch.tensor(x) for x in tokens())

    def loss_of():
        logits = model(inputs).logits
        flat = logits.reshape(-1, SIZES["vocab"])
        return logits, torch.nn.functional.cross_entropy(flat, targets.reshape(-1))

    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": STEP["weight_decay"]},
        {"params": [p for p in trained if p.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=STEP["learning_rate"], eps=1e-8
    )
    logits, loss = loss_of()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(trained, STEP["clip"])
    optimizer.step()
    sums = {path_of(n): float((p.data**2).sum()) for n, p in model.named_parameters()}
    return {
        "logits": np.round(logits.detach().numpy(), 10).tolist(),
        "loss": loss.item(),
        "gradient_norm": float(norm),
        "loss_after": loss_of()[1].item(),
        "squares_after": dict(sorted(sums.items())),
    }


def main() -> None:
    import torch

    # Their norms and their softmax compute in float32. As float64, only mathematics is compared.
    text = (Path(sys.argv[1]) / "modeling_llama.py").read_text()
    folder = tempfile.mkdtemp()
    Path(folder, "modeling_llama.py").write_text(text.replace("torch.float32", "torch.float64"))
    sys.path.insert(0, folder)
    import modeling_llama

    found: dict = {"what": __doc__.splitlines()[0], "commit": "22ce029", "cases": {}, "mixing": {}}
    for deep in (False, True):
        for variant in VARIANTS:
            preset = "authors_deep" if deep else "authors"
            model, mixing = make(modeling_llama, torch, variant, deep)
            found["cases"][f"{variant}, {preset}"] = step_of(torch, model)
            if variant == "mixit":
                found["mixing"][preset] = np.round(mixing, 10).tolist()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
