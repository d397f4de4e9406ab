"""Small decoders for the export, and the logits of transformers for their folders.

tests/reference/llama_logits.json was written with transformers 5 and torch 2.13 (float32, CPU):

    python tests/models/llama.py DIR            writes the folders of CASES, with this environment
    python tests/models/llama.py DIR --read     prints the JSON, with transformers and torch
"""

import json
import sys
from pathlib import Path

import numpy as np

SIZES = dict(vocab_size=257, length=24, width=16, layers=2, heads=2, mlp_width=40)
CASES = {"plain": {}, "authors": dict(use_bias=True, branch_scale=0.5)}
TOKENS = np.random.default_rng(7).integers(0, 257, (2, 24)).tolist()
POSITIONS = [0, 1, 12, 23]  # positions of the stored logits, of which every 16th is stored


def made(case):
    import jax

    from jaxformer.core import paths
    from jaxformer.models.decoder import decoder

    model, rng = decoder(**SIZES, **CASES[case]), np.random.default_rng(1)
    shapes = jax.eval_shape(model.init, jax.random.key(0), np.zeros((1, 1), int))["params"]
    flat = {path: leaf.shape for path, leaf in sorted(paths.flatten(shapes).items())}
    drawn = {
        path: (1 + 0.2 * rng.normal(size=shape) if "norm" in path else rng.normal(size=shape) * 0.3)
        for path, shape in flat.items()
    }
    return model, paths.unflatten({path: x.astype(np.float32) for path, x in drawn.items()})


def read(folder):
    """Returns the logits and tokens of transformers for the folders."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    result = {}
    for case in CASES:
        model = AutoModelForCausalLM.from_pretrained(folder / case, dtype=torch.float32)
        coder = AutoTokenizer.from_pretrained(folder / case)
        with torch.no_grad():
            logits = model(torch.tensor(TOKENS)).logits
        result[case] = {
            "logits": np.round(logits[:, POSITIONS, ::16].numpy(), 6).astype(float).tolist(),
            "tokens": coder("To be, naïve").input_ids,
        }
    return result


if __name__ == "__main__":
    place = Path(sys.argv[1])
    if sys.argv[2:]:
        print(json.dumps(read(place)))
    else:
        from jaxformer.data.tokenizer import Bytes
        from jaxformer.models.export import export

        for name in CASES:
            export(*made(name), place / name, Bytes())
