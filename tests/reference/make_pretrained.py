"""Writes pretrained.npz: the outputs of transformers for our random tiny models.

    python tests/models/families.py FOLDERS gpt2 gpt_neox ..
    OTHER/python tests/reference/make_pretrained.py FOLDERS tests/reference/pretrained.npz

OTHER is a Python with torch and transformers (these: 2.13 and 5.23); neither is needed otherwise.
For each kind: logits and hidden states of two sequences that are longer than what the rotary
positions were first trained for, logits where the first four tokens are padding, the greedy
continuation of all tokens and of the first six (`turned`: a longrope model passes the length of its
first training on the way), and logits after one step of gradient descent on the next-token loss.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

RATE, NEW = 0.05, 6


def main(folders, out):
    result = {}
    for folder in sorted(Path(folders).iterdir()):
        vocab = json.loads((folder / "config.json").read_text())["vocab_size"]
        tokens = np.random.RandomState(0).randint(1, vocab, (2, 12))
        real = np.ones_like(tokens)
        real[0, :4] = 0
        # The eager attention: the mathematics as it is written.
        model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
        model.eval()
        ids, mask = torch.tensor(tokens), torch.tensor(real)
        with torch.no_grad():
            whole = model(ids, output_hidden_states=True)
            places = (mask.cumsum(-1) - 1).clamp(min=0)
            padded = model(ids, attention_mask=mask, position_ids=places).logits
            model.generation_config.eos_token_id = None
            more = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False
            )
            turned = model.generate(
                ids[:, :6], attention_mask=torch.ones_like(ids[:, :6]), max_new_tokens=NEW,
                do_sample=False,
            )  # fmt: skip
        loss = torch.nn.functional.cross_entropy(
            model(ids).logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()
        )
        loss.backward()
        with torch.no_grad():
            for weight in model.parameters():
                weight -= RATE * weight.grad
            after = model(ids).logits
        arrays = {
            "tokens": tokens,
            "logits": whole.logits,
            "states": torch.stack(whole.hidden_states[:-1]),
            "padded": padded,
            "greedy": more[:, tokens.shape[1] :],
            "turned": turned[:, 6:],
            "loss": loss.detach(),
            "after": after,
        }
        for name, array in arrays.items():
            array = np.asarray(array)
            kind = np.float32 if array.dtype.kind == "f" else np.int32
            result[f"{folder.name}/{name}"] = array.astype(kind)
    np.savez_compressed(out, **result)


if __name__ == "__main__":
    main(*sys.argv[1:])
