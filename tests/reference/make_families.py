"""Writes families.npz: the outputs of transformers for random tiny models.

    python tests/models/families.py FOLDERS
    OTHER/python tests/reference/make_families.py FOLDERS tests/reference/families.npz

OTHER is a Python with torch and transformers (these: 2.13 and 5.24); neither is needed otherwise.
For each model: logits of two sequences, logits where the first four tokens are padding, and six
tokens of greedy generation with a cache. Encoders have no generation; those without a head have
states in place of logits.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

NEW = 6


def model_of(folder):
    """Returns a new model (some change with each sequence) and whether it is an encoder."""
    config = AutoConfig.from_pretrained(folder)
    named = config.architectures[0]
    classes = {"ForMaskedLM": AutoModelForMaskedLM, "ForCausalLM": AutoModelForCausalLM}
    classes["LMHeadModel"] = AutoModelForCausalLM
    cls = next((classes[end] for end in classes if named.endswith(end)), AutoModel)
    # The eager attention: the mathematics as it is written. Falcon's adds the ALiBi bias twice.
    attention = "sdpa" if getattr(config, "alibi", False) else "eager"
    model, info = cls.from_pretrained(
        folder, attn_implementation=attention, dtype=torch.float32, output_loading_info=True
    )
    missing = [name for name in info["missing_keys"] if "pooler" not in name]
    assert not missing and not info["unexpected_keys"], (folder, info)
    return model.eval(), "ForMaskedLM" in named or cls is AutoModel


def output(model, **inputs):
    with torch.no_grad():
        result = model(**inputs)
    return getattr(result, "logits", None) if hasattr(result, "logits") else result[0]


def main(folders, out):
    arrays = {}
    for folder in sorted(Path(folders).iterdir()):
        model, is_encoder = model_of(folder)
        pad = model.config.pad_token_id or 0
        ids = torch.tensor(np.random.RandomState(0).randint(2, model.config.vocab_size, (2, 12)))
        mask = torch.ones_like(ids)
        mask[0, :4] = 0
        padded_ids = torch.where(mask > 0, ids, pad)
        arrays[f"{folder.name}/logits"] = output(model, input_ids=ids)
        inputs = {"input_ids": padded_ids, "attention_mask": mask}
        if model.config.model_type != "roberta":  # its positions follow from the padding tokens
            inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
        arrays[f"{folder.name}/padded"] = output(model_of(folder)[0], **inputs)
        if is_encoder:
            continue
        model = model_of(folder)[0]
        model.generation_config.eos_token_id = None
        more = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False
        )
        arrays[f"{folder.name}/greedy"] = more[:, ids.shape[1] :]
    stored = {name: np.asarray(array) for name, array in arrays.items()}
    kinds = {"f": np.float32, "i": np.int32}
    stored = {name: array.astype(kinds[array.dtype.kind]) for name, array in stored.items()}
    np.savez_compressed(out, **stored)


if __name__ == "__main__":
    main(*sys.argv[1:])
