"""Compares the CPU time of a training step with that of Hugging Face's LlamaForCausalLM.

    taskset -c 0 python benchmarks/lab_huggingface.py

Both sides use one thread, the same tokens and the same initial parameters, a gated MLP of 4n
hidden units, an untied head and no biases. Both use AdamW (decay 1e-3 on matrices), a cosine
schedule, and gradients clipped at 1.0. PyTorch runs eagerly with sdpa and its fused AdamW, without
torch.compile.

Each side is a worker process. The two run their steps alternately, REPEATS times after a warm-up,
and the table has the medians. It also has the losses after all steps: they agree if both sides do
the same work. The share of the peak counts the FLOPs of all matrix products. The peak is the rate
of one product of large square matrices in float32.

    all positions   the head computes logits at all positions; the loss scores the last one
                    (retrieval) or all of them (LM)
    scored only     the head computes logits only at the scored positions, the last one (retrieval)
                    or the last quarter (LM). jaxformer then also skips the other queries of the
                    last block; Llama does not.

JAXFORMER_TORCH_PYTHON=/path/to/python names another interpreter for the PyTorch side, which needs
`pip install torch==2.13.0 transformers`.
"""

import itertools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

THREADS = {
    "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen=false {os.environ.get('XLA_FLAGS', '')}",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
os.environ.update(THREADS)

RATE, DECAY, CLIP, WARMUP, STEPS = 1e-3, 1e-3, 1.0, 4, 1000
REPEATS = 5
BATCHES = 4  # the steps cycle through these
INSTALL = (
    "the PyTorch side is left out: run `pip install torch==2.13.0 transformers` (the CPU wheel), "
    "or set JAXFORMER_TORCH_PYTHON to a Python that has them."
)


class Case(NamedTuple):
    """The sizes of one comparison."""

    name: str
    layers: int
    heads: int
    batch: int
    length: int
    vocab: int
    scored: int  # the number of positions, at the end, that the loss scores
    head_everywhere: bool
    steps: int  # per repeat
    width: int = 256
    half: bool = False  # bfloat16 products, float32 parameters and accumulation

    @property
    def tokens(self) -> int:
        return self.batch * self.length

    @property
    def flops(self) -> float:
        """FLOPs of the matrix products of a step: three times those of the forward pass."""
        # Multiply-adds of a block for one token: the linear maps of attention, the gated MLP, and
        # the scores and weighted values.
        block = 4 * self.width**2 + 3 * self.width * 4 * self.width + 2 * self.length * self.width
        head = self.width * self.vocab
        positions = self.length if self.head_everywhere else self.scored
        return 6.0 * self.batch * (self.length * self.layers * block + positions * head)

    def draw(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the inputs and the targets of all batches, each (BATCHES, B, T)."""
        shape = (BATCHES, self.batch, self.length + 1)
        tokens = np.random.default_rng(0).integers(0, self.vocab, shape)
        return tokens[..., :-1].astype(np.int32), tokens[..., 1:].astype(np.int32)


CASES = (
    Case("retrieval, all positions", 2, 4, 64, 61, 256, 1, True, 8),
    Case("retrieval, scored only", 2, 4, 64, 61, 256, 1, False, 8),
    Case("retrieval, n = 512", 2, 8, 64, 61, 256, 1, True, 4, width=512),
    Case("LM, all positions", 4, 8, 8, 256, 8192, 256, True, 4),
    Case("LM, scored only", 4, 8, 8, 256, 8192, 64, False, 4),
    Case("retrieval, all, bfloat16", 2, 4, 64, 61, 256, 1, True, 8, half=True),
    Case("LM, all, bfloat16", 4, 8, 8, 256, 8192, 256, True, 4, half=True),
)


def main() -> None:
    # Imported here, because the Python of the PyTorch side may lack jax.
    import jax.numpy as jnp

    from jaxformer.runtime.environment import processor
    from jaxformer.training.cost.flops import matmul_rate

    torch_python = os.environ.get("JAXFORMER_TORCH_PYTHON", sys.executable)
    probe = subprocess.run([torch_python, "-c", "import torch, transformers"], capture_output=True)
    if probe.returncode:
        print(INSTALL)
    sides = {"jaxformer": sys.executable}
    if not probe.returncode:
        sides["llama"] = torch_python
    peak = matmul_rate(jnp.float32, timer=time.process_time)
    print(f"{processor()}, {len(os.sched_getaffinity(0))} cores for both sides")
    print(f"peak of one thread: {peak / 1e9:.0f} GFLOP/s in float32")
    print(f"CPU milliseconds per step, median of {REPEATS} (range), tokens per CPU second, loss")
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            workers = {name: Worker(python, name, case, folder) for name, python in sides.items()}
            measured: dict[str, list[float]] = {name: [] for name in workers}
            for repeat in range(REPEATS + 1):
                for name, worker in workers.items():
                    seconds, worker.loss = worker.run_steps()
                    if repeat:  # repeat 0 compiles and warms up
                        measured[name].append(seconds)
        for name, times in measured.items():
            print(
                f"{case.name:26} {name:10} {1e3 * median(times):8.1f} ({1e3 * min(times):.1f} to "
                f"{1e3 * max(times):.1f})  {case.tokens / median(times):7.0f} tokens/s  "
                f"{_share(case, median(times), peak)}loss {workers[name].loss:.5f}"
            )
        if len(measured) == 2:
            ratio = median(measured["llama"]) / median(measured["jaxformer"])
            print(f"{case.name:26} jaxformer is {ratio:.2f}x as fast", flush=True)


def _share(case: Case, seconds: float, peak: float) -> str:
    """Returns "64 % of the peak  "; empty for bfloat16, and where the two sides differ in work."""
    if case.half or not case.head_everywhere:
        return ""
    return f"{case.flops / seconds / peak:.0%} of the peak  "


class Worker:
    """A process that runs the steps of one side."""

    def __init__(self, python: str, side: str, case: Case, folder: str):
        self.loss = float("nan")
        self.process = subprocess.Popen(
            [python, __file__, side, str(CASES.index(case)), folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | THREADS | {"PYTHONPATH": str(Path(__file__).parents[1])},
        )
        if self._read() != "ready":
            raise SystemExit(f"the {side} side did not start.")

    def run_steps(self) -> tuple[float, float]:
        """Runs `case.steps` steps; returns the CPU seconds per step and the last loss."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        seconds, loss = self._read().split()
        return float(seconds), float(loss)

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


def serve(case: Case, run) -> None:
    """Calls `run` for each line of stdin; prints the CPU seconds per step and the returned loss.

    `run` takes `case.steps` steps and returns the last loss.
    """
    print("ready", flush=True)
    for _ in sys.stdin:
        began = time.process_time()
        loss = run()
        print((time.process_time() - began) / case.steps, loss, flush=True)


def jaxformer_side(case: Case, folder: str) -> None:
    from dataclasses import dataclass

    import jax
    import jax.numpy as jnp

    from jaxformer.core import optim, paths
    from jaxformer.core.partition import Partition
    from jaxformer.models.decoder import decoder
    from jaxformer.tasks.task import Batch, Task
    from jaxformer.training.population import Population
    from jaxformer.training.step import create, make_step

    @dataclass(frozen=True)
    class Tokens(Task):
        vocab_size: int = case.vocab
        length: int = case.length
        n_scored: int = case.length if case.head_everywhere else case.scored
        # Not called: the batches are arrays that are made below.
        example = baselines = None  # type: ignore[assignment]

    model = decoder(
        vocab_size=case.vocab,
        length=case.length,
        width=case.width,
        layers=case.layers,
        heads=case.heads,
        mlp_width=4 * case.width,
        dtype=jnp.bfloat16 if case.half else float,
    )
    rules = Partition(((".*", "train"),))
    factor = optim.schedule("cosine", STEPS, WARMUP)
    tx = optim.optimizer(rules, {"train": optim.AdamW(weight_decay=DECAY)}, CLIP, factor)

    def init(key):
        return model.init(key, jnp.zeros((1, 1), jnp.int32))["params"]

    def apply(params, tokens, positions):
        return model.apply({"params": params}, tokens, positions)

    state = create(init, rules, tx, Population((0,), (RATE,)))
    step = make_step(apply, Tokens(), tx, "map")
    params = jax.tree.map(lambda x: x[0], state.trainable)  # of the only member
    arrays = {path: np.asarray(leaf) for path, leaf in paths.flatten(params).items()}
    np.savez(Path(folder) / "parameters.npz", **arrays)
    inputs, targets = (jnp.asarray(x[:, None]) for x in case.draw())
    weights = jnp.zeros((1, case.batch, case.length)).at[..., -case.scored :].set(1.0)

    # As in training.loop, a dispatch runs many steps, and its state is donated.
    def steps(state):
        def body(_, carry):
            state, _ = carry
            batch = state.step % BATCHES
            state, metrics = step(state, Batch(inputs[batch], targets[batch], weights))
            return state, metrics["loss"][0]

        return jax.lax.fori_loop(0, case.steps, body, (state, jnp.zeros(())))

    compiled = jax.jit(steps, donate_argnums=0).lower(state).compile()

    def run() -> float:
        nonlocal state
        state, loss = compiled(state)
        return float(loss)

    serve(case, run)


def llama_side(case: Case, folder: str) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(1)
    config = LlamaConfig(
        vocab_size=case.vocab,
        hidden_size=case.width,
        intermediate_size=4 * case.width,
        num_hidden_layers=case.layers,
        num_attention_heads=case.heads,
        num_key_value_heads=case.heads,
        max_position_embeddings=case.length,
        tie_word_embeddings=False,
        attention_bias=False,
        mlp_bias=False,
        rms_norm_eps=1e-6,
        use_cache=False,
        attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(config)
    model.load_state_dict(llama_weights(Path(folder) / "parameters.npz", case.layers))
    model.train()
    groups = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": DECAY},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.999), eps=1e-8, fused=True)

    # The cosine schedule of the jaxformer side.
    def factor(t: int) -> float:
        done = min(max((t - WARMUP) / (STEPS - WARMUP), 0), 1)
        return (t + 1) / WARMUP if t < WARMUP else 0.5 * (1 + float(np.cos(np.pi * done)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    inputs, targets = (torch.from_numpy(x).long() for x in case.draw())
    targets[..., : -case.scored] = -100  # ignored by cross_entropy

    positions = case.length if case.head_everywhere else case.scored
    steps = itertools.count()

    def run() -> float:
        loss = torch.zeros(())
        for step in itertools.islice(steps, case.steps):
            batch = step % BATCHES
            with torch.autocast("cpu", torch.bfloat16, enabled=case.half):
                logits = model(inputs[batch], logits_to_keep=positions).logits
            answers = targets[batch, :, -positions:]
            loss = torch.nn.functional.cross_entropy(
                logits.reshape(-1, case.vocab).float(), answers.reshape(-1)
            )
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        return float(loss.detach())

    serve(case, run)


def llama_weights(file: Path, layers: int) -> dict:
    """Returns the parameters of the jaxformer side under the names of Llama."""
    import torch

    with np.load(file) as arrays:
        parameters = {path: torch.from_numpy(np.array(arrays[path])) for path in arrays.files}
    projections = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "o_proj"}
    gates = {"gate": "gate_proj", "in": "up_proj", "out": "down_proj"}
    weights = {
        "model.embed_tokens.weight": parameters["embed/embedding"],
        "model.norm.weight": parameters["final_norm/scale"],
        "lm_head.weight": parameters["unembed/kernel"].T.contiguous(),
    }
    for i in range(layers):
        block, layer = f"block_{i}", f"model.layers.{i}"
        weights[f"{layer}.input_layernorm.weight"] = parameters[f"{block}/attn_norm/scale"]
        weights[f"{layer}.post_attention_layernorm.weight"] = parameters[f"{block}/mlp_norm/scale"]
        for group, path, module in ((projections, "attn", "self_attn"), (gates, "mlp", "mlp")):
            for name, llama_name in group.items():
                kernel = parameters[f"{block}/{path}/{name}/kernel"]
                weights[f"{layer}.{module}.{llama_name}.weight"] = kernel.T.contiguous()
    return weights


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    else:
        side = {"jaxformer": jaxformer_side, "llama": llama_side}[sys.argv[1]]
        side(CASES[int(sys.argv[2])], sys.argv[3])
