"""Writes gguf.npz: logits, weights and tokens of transformers for the files of tests/models.

python tests/reference/make_gguf.py      (torch, transformers, accelerate, gguf)
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
import tiny_gguf

TEXT = "in the  on an 12 thé"
found = {"text": np.array(TEXT)}
for architecture in tiny_gguf.NORMS:
    with tempfile.TemporaryDirectory() as folder:
        tiny_gguf.write(Path(folder) / "model.gguf", architecture)
        model = AutoModelForCausalLM.from_pretrained(
            folder, gguf_file="model.gguf", dtype=torch.float32
        )
        tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file="model.gguf")
    tokens = torch.tensor(np.random.RandomState(1).randint(4, 260, (2, 9)))
    with torch.no_grad():
        found[f"{architecture}/logits"] = model(tokens).logits.numpy()
    found[f"{architecture}/tokens"] = tokens.numpy()
    found[f"{architecture}/text"] = np.array(tokenizer(TEXT).input_ids)
    for name in ("q_proj", "k_proj", "v_proj"):
        weight = getattr(model.model.layers[1].self_attn, name).weight
        found[f"{architecture}/{name}"] = weight.detach().numpy()
    found[f"{architecture}/norm"] = model.model.norm.weight.detach().numpy()
np.savez_compressed(Path(__file__).parent / "gguf.npz", **found)
