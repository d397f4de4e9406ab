"""Writes peft.npz: adapters of the package peft for random tiny models, and the logits with them.

    python tests/models/families.py FOLDERS gpt2 gpt_neox llama phi3 qwen3
    OTHER/python tests/reference/make_peft.py FOLDERS tests/reference/peft.npz

OTHER is a Python with torch, transformers and peft (these: 2.13, 5.24 and 0.21). For each model:
adapter_config.json, the tensors of adapter_model.safetensors, and the logits of two sequences.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM

# Ranks and scales that differ between modules, joined kernels, and rank-stabilised scales.
CONFIGS = {
    "gpt2": dict(r=3, lora_alpha=5, target_modules=["c_attn", "c_proj"]),
    "gpt_neox": dict(r=2, target_modules=["query_key_value", "dense_4h_to_h"]),
    "llama": dict(r=2, target_modules=["q_proj", "v_proj"], rank_pattern={"v_proj": 4}),
    "phi3": dict(r=3, lora_alpha=4, target_modules=["qkv_proj", "gate_up_proj"]),
    "qwen3": dict(r=4, use_rslora=True, target_modules="all-linear", lora_dropout=0.1),
}


def main(folders, out):
    arrays = {}
    for kind, fields in CONFIGS.items():
        model = AutoModelForCausalLM.from_pretrained(
            Path(folders) / kind, attn_implementation="eager", dtype=torch.float32
        )
        adapted = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **fields)).eval()
        torch.manual_seed(0)
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(parameter, std=0.3)
        ids = torch.tensor(np.random.RandomState(0).randint(2, model.config.vocab_size, (2, 12)))
        with torch.no_grad():
            arrays[f"{kind}/logits"] = adapted(input_ids=ids).logits.numpy()
        with tempfile.TemporaryDirectory() as folder:
            adapted.save_pretrained(folder)
            for name, tensor in load_file(Path(folder) / "adapter_model.safetensors").items():
                arrays[f"{kind}/tensors/{name}"] = tensor
            config = json.loads((Path(folder) / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = kind
        arrays[f"{kind}/config"] = np.array(json.dumps(config, sort_keys=True))
    np.savez_compressed(out, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
