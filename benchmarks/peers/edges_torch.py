"""The peer of edge_attribution.py: EAP-IG on a Llama in PyTorch, written as a user would write it.

    python benchmarks/peers/edges_torch.py FOLDER PROMPTS.npz SCORES.npy

As in the code of Hanna et al. (2403.17806), the embedding goes in steps from the corrupted to the
clean prompt, each reader reads a copy of the residual stream of its own, and a backward hook on
each copy adds (clean - corrupted outputs of earlier nodes) . gradient to the scores. Readers are
ordered as in jaxformer: queries, keys and values of each block, its MLP, and the logits. This file
does not use jaxformer.
"""

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch.nn import functional

STEPS = 5


class Llama:
    """The network, whose nodes call `write` with their output and read the stream by `read`."""

    def __init__(self, folder: Path):
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = load_file(folder / "model.safetensors")
        self.layers = self.config["num_hidden_layers"]
        self.heads, self.groups = (
            self.config[f"num_{x}_heads"] for x in ("attention", "key_value")
        )
        self.width = self.config["hidden_size"] // self.heads
        rope = self.config.get("rope_parameters") or self.config
        self.base = rope.get("rope_theta", 10_000.0)
        self.embedding = self.weights["model.embed_tokens.weight"]

    def norm(self, x, name):
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config["rms_norm_eps"])
        return x * self.weights[f"model.{name}.weight"]

    def project(self, x_BxTxRxN, name):
        """Projects each copy of the stream to the columns of its own head, (B, T, R, D)."""
        weight = self.weights[f"{name}.weight"].view(-1, self.width, x_BxTxRxN.shape[-1])
        return torch.einsum("btrn,rdn->btrd", x_BxTxRxN, weight)

    def turn(self, x):
        angle = torch.arange(x.shape[1])[:, None] * self.base ** (
            -torch.arange(0, self.width, 2) / self.width
        )
        cos, sin = (f(angle).repeat(1, 2)[None, :, None] for f in (torch.cos, torch.sin))
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin

    def logits(self, embedded, read, write):
        """Returns the logits at the last token."""
        h, length = embedded, embedded.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        write(h[:, :, None])
        for i in range(self.layers):
            name = f"model.layers.{i}"
            copies = [read(h, n) for n in (self.heads, self.groups, self.groups)]
            normed = [self.norm(x, f"layers.{i}.input_layernorm") for x in copies]
            parts = zip(normed, "qkv", strict=True)
            q, k, v = (self.project(x, f"{name}.self_attn.{p}_proj") for x, p in parts)
            q, k = self.turn(q), self.turn(k)
            k, v = (x.repeat_interleave(self.heads // self.groups, 2) for x in (k, v))
            scores = torch.einsum("bthd,bshd->bhts", q, k) / self.width**0.5
            weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
            mixed = torch.einsum("bhts,bshd->bthd", weights, v)
            out = self.weights[f"{name}.self_attn.o_proj.weight"]
            out = out.view(-1, self.heads, self.width)
            added = torch.einsum("bthd,nhd->bthn", mixed, out)
            write(added)
            h = h + added.sum(2)
            y = self.norm(read(h, 1)[:, :, 0], f"layers.{i}.post_attention_layernorm")
            gate, up, down = (
                self.weights[f"{name}.mlp.{x}_proj.weight"] for x in ("gate", "up", "down")
            )
            added = (functional.silu(y @ gate.T) * (y @ up.T)) @ down.T
            write(added[:, :, None])
            h = h + added
        h = self.norm(read(h, 1)[:, -1, 0], "norm")
        return h @ self.weights.get("lm_head.weight", self.embedding).T


def outputs(model, embedded):
    """Returns what every node writes, (B, T, S, N)."""
    written = []
    with torch.no_grad():
        model.logits(embedded, lambda h, n: h[:, :, None].expand(-1, -1, n, -1), written.append)
    return torch.cat(written, 2)


def attribute(model, clean, corrupted, target, against):
    """Returns the scores of all edges, (R, S), and 0 where there is no edge."""
    first, last = (model.embedding[tokens] for tokens in (corrupted, clean))
    difference = outputs(model, last) - outputs(model, first)
    n_sources = difference.shape[2]
    n_readers = model.layers * (model.heads + 2 * model.groups + 1) + 1
    scores = torch.zeros(n_readers, n_sources)
    rows = torch.arange(len(clean))

    def add_slopes(embedded):
        row, column = 0, 0

        def write(added):
            nonlocal column
            column += added.shape[2]

        def read(h, n):
            nonlocal row
            copies = h[:, :, None].expand(-1, -1, n, -1).clone()
            where, earlier = slice(row, row + n), difference[:, :, :column]

            def add(gradient):
                scores[where, : earlier.shape[2]] += torch.einsum(
                    "btrn,btsn->rs", gradient, earlier
                )

            copies.register_hook(add)
            row += n
            return copies

        logits = model.logits(embedded, read, write)
        (logits[rows, target] - logits[rows, against]).mean().backward()

    for step in range(1, STEPS + 1):
        add_slopes((first + step / STEPS * (last - first)).requires_grad_())
    return scores / STEPS


def main() -> None:
    torch.set_num_threads(1)
    folder, prompts, file = map(Path, sys.argv[1:])
    model = Llama(folder)
    data = {name: torch.as_tensor(x).long() for name, x in np.load(prompts).items()}
    start = time.process_time()
    scores = attribute(model, **data)
    seconds = time.process_time() - start
    np.save(file, scores.numpy())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"seconds": seconds, "GiB": peak}))


if __name__ == "__main__":
    main()
