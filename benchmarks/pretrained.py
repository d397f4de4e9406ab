"""The cost of capturing, patching, searching and loading on random models of published shapes.

    python benchmarks/pretrained.py [patch|capture|search|load] [--small] [--deep]

patch    patches each (layer, position) of a 12-layer, 768-wide model on 20 tokens. Target: one
         compilation, at most 1.2 times the time of as many forward passes in equal batches
capture  captures the attention weights of the last block. Target: at most 3 % above a forward pass
search   cuts one matrix at a time to a fraction of its rank (LASER) in a model of 160 million
         parameters: 12 layers (--deep: 24) x 2 matrices x 10 fractions, on 100 prompts of 16
         tokens. Target: one compilation, one SVD per matrix, and the blocks below a matrix run
         once. It also prints the time of as many forward passes through all blocks
load     loads a random checkpoint of 1 billion parameters in bfloat16. Target: peak memory below
         1.3 times its size

--small divides the widths by 4, so that a block has a sixteenth of its parameters, and has a
vocabulary of 3,000. Times are CPU seconds of the process, the best of three calls after compilation
(`capture`: of five, `search`: of one).
"""

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers.associations import laser_search, next_token
from jaxformer import capture
from jaxformer.interp.capture import patching
from jaxformer.models.pretrained import Pretrained, PretrainedSpec
from jaxformer.models.pretrained.rotary import Rotary

SMALL, DEEP = "--small" in sys.argv, "--deep" in sys.argv
GPT2 = PretrainedSpec(
    family="gpt2", vocab_size=50_257, length=1024, width=768, layers=12, heads=12, kv_heads=12,
    head_width=64, mlp_width=3072, act="gelu_tanh", tied=True, learned_positions=True,
    qkv_bias=True, out_bias=True, mlp_bias=True,
)  # fmt: skip
PYTHIA = replace(
    GPT2, family="gpt_neox", vocab_size=50_304, length=2048, act="gelu", tied=False,
    learned_positions=False, parallel=True, rotary=Rotary(16),
)  # fmt: skip
BILLION = replace(
    PYTHIA, width=2048, layers=16, heads=8, kv_heads=8, head_width=256, mlp_width=8192,
    rotary=Rotary(64),
)  # fmt: skip


def make(spec):
    """Returns a model and random parameters; --small shrinks the vocabulary and the width."""
    if SMALL:
        width = spec.width // 4
        spec = replace(
            spec, vocab_size=3000, width=width, head_width=spec.head_width // 4,
            mlp_width=4 * width, rotary=spec.rotary and Rotary(spec.rotary.width // 4),
        )  # fmt: skip
    model = Pretrained(spec)
    return model, jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 2), int))["params"]


def best(function, *args, repeats=3):
    """Returns the CPU seconds of the fastest of `repeats` calls, after one that compiles."""
    jax.block_until_ready(function(*args))
    times = []
    for _ in range(repeats):
        start = time.process_time()
        jax.block_until_ready(function(*args))
        times.append(time.process_time() - start)
    return min(times)


def metric(logits):
    return logits[0, -1, 1] - logits[0, -1, 2]


def patch():
    model, params = make(GPT2)
    layers, length, at_once = model.spec.layers, 20, 16
    tokens = jax.random.randint(jax.random.key(1), (2, 1, length), 0, model.spec.vocab_size)
    clean, corrupted = tokens

    def patched():
        names, by = r"block_\d+/states", ("position",)
        return capture.patch(model, params, clean, corrupted, names, metric, by, at_once)

    @jax.jit
    def unpatched(params, batches):
        """Computes the same metric of as many runs, without patching."""

        def run(tokens):
            return metric(model.apply({"params": params}, tokens))

        return jax.lax.map(jax.vmap(run), batches)

    batches = jnp.broadcast_to(corrupted, (layers * length // at_once, at_once, 1, length))
    patched_seconds, plain_seconds = best(patched), best(unpatched, params, batches)
    program = patching._program(model, tuple(f"block_{i}/states" for i in range(layers)), metric)
    print(
        f"patch    {layers * length} cases: {patched_seconds:.2f} s, "
        f"{plain_seconds:.2f} s for as many runs: "
        f"{patched_seconds / plain_seconds:.2f} times, {program._cache_size()} compilation"
    )


def captured():
    model, params = make(GPT2)
    tokens = jax.random.randint(jax.random.key(1), (4, 128), 0, model.spec.vocab_size)
    name = f"block_{model.spec.layers - 1}/attn/weights"
    plain = jax.jit(lambda p: model.apply({"params": p}, tokens))
    capturing = jax.jit(lambda p: capture.run(model, p, tokens, names=[name]))
    plain_seconds = best(plain, params, repeats=5)
    seconds = best(capturing, params, repeats=5)
    print(
        f"capture  {plain_seconds:.3f} s bare, {seconds:.3f} s with {name}: "
        f"{seconds / plain_seconds - 1:+.1%}"
    )


def search():
    model, params = make(replace(PYTHIA, layers=24) if DEEP else PYTHIA)
    tokens = np.random.RandomState(0).randint(0, model.spec.vocab_size, (100, 16)).astype(np.int32)
    last_positions, targets = np.full((100, 1), 15), tokens[:, 0]
    prompts = next_token.PromptBatch(tokens, last_positions, targets, ())
    matrices = laser_search.matching_matrices(params, r"block_\d+/mlp/(in|out)")
    fractions = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0]
    start = time.process_time()
    scores = list(
        laser_search.search(model, params, prompts, matrices, fractions, next_token.NO_TOKEN)
    )
    seconds = time.process_time() - start
    pass_seconds = best(next_token.log_probabilities, model, params, prompts, repeats=1)
    print(
        f"search   {len(matrices)} matrices x {len(fractions)} fractions, 100 prompts: "
        f"{len(scores)} rows in {seconds:.0f} s; "
        f"{pass_seconds * len(scores):.0f} s for as many whole passes"
    )


LOADER = """
import json, sys
import jax
from jaxformer.models.pretrained import load_folder
def memory(kind):
    # In KiB. getrusage would include the memory of the parent when it started this process.
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * int([line for line in lines if line.startswith(kind)][0].split()[1])
jax.block_until_ready(jax.numpy.ones(3))
before = memory("VmRSS")
model, params, _ = load_folder(sys.argv[1], "bfloat16")
jax.block_until_ready(params)
after = memory("VmHWM")
size = sum(x.nbytes for x in jax.tree.leaves(params))
print(json.dumps({"before": before, "after": after, "size": size}))
"""


def load():
    """Loads a checkpoint in a separate process; the memory of jax alone is subtracted."""
    from safetensors.numpy import save_file

    from jaxformer.models.pretrained import folder, tensor_layouts, tiny

    spec = replace(make(BILLION)[0].spec if SMALL else BILLION, param_dtype=jnp.bfloat16)
    shapes = folder.shapes(Pretrained(spec))
    with tempfile.TemporaryDirectory() as where:
        tensors = {}
        for entry in tensor_layouts.tensor_entries(spec, list(shapes)):
            parts = [np.broadcast_to(jnp.bfloat16(0.01), shapes[path]) for path in entry.parameters]
            tensors[entry.name] = np.ascontiguousarray(tensor_layouts.to_tensor(parts, entry, spec))
        save_file(tensors, Path(where) / "model.safetensors")
        del tensors
        config = tiny.CONFIGS["gpt_neox"] | {
            "vocab_size": spec.vocab_size,
            "hidden_size": spec.width,
            "num_hidden_layers": spec.layers,
            "num_attention_heads": spec.heads,
            "intermediate_size": spec.mlp_width,
            "rotary_pct": 0.25,
        }
        (Path(where) / "config.json").write_text(json.dumps(config))
        out = subprocess.run(
            [sys.executable, "-c", LOADER, where], capture_output=True, text=True, check=True
        )
    memory = json.loads(out.stdout)
    ratio = (memory["after"] - memory["before"]) / memory["size"]
    print(f"load     {memory['size'] / 2**30:.2f} GiB in bfloat16: peak {ratio:.2f} times its size")


KINDS = {"patch": patch, "capture": captured, "search": search, "load": load}

if __name__ == "__main__":
    kinds = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    for kind in kinds or KINDS:
        KINDS[kind]()
        jax.clear_caches()
