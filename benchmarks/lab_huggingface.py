"""CPU seconds of a full training step, like for like against Hugging Face's LlamaForCausalLM.

    taskset -c 0 python benchmarks/lab_huggingface.py

One thread each: the same parameters (copied), tokens, clip 1.0, AdamW (decay 1e-3 on matrices) and
cosine schedule; PyTorch with sdpa and its fused AdamW, eager (torch.compile is not used). Widths
are equal without a change: our gated MLP of 4n is Llama's with intermediate_size 4n; untied head,
no biases. Each side is a process that runs its steps when told, in turn, five times; the median
counts. The losses after all steps are printed: they agree, so both sides do the same work.

"all positions" computes the logits everywhere and scores a few (retrieval: the last, LM: all);
"scored only" gives the head the scored positions alone on both sides (retrieval: the last, LM: the
last quarter) - and ours then skips the last block's other queries too, which Llama's does not.

PyTorch may live elsewhere: JAXFORMER_TORCH_PYTHON=/path/to/python names an interpreter with
`pip install torch==2.13.0 transformers`.
"""

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
BATCHES = 4  # different ones, in turn
INSTALL = (
    "the PyTorch side is left out: `pip install torch==2.13.0 transformers` (the CPU wheel), or "
    "name a Python that has them in JAXFORMER_TORCH_PYTHON."
)


class Case(NamedTuple):
    name: str
    layers: int
    heads: int
    batch: int
    length: int
    vocab: int
    scored: int  # the last positions that count
    head_everywhere: bool
    steps: int  # a repeat
    width: int = 256
    half: bool = False  # bfloat16 products, float32 parameters and accumulation

    @property
    def tokens(self) -> int:
        return self.batch * self.length

    def draw(self) -> tuple[np.ndarray, np.ndarray]:
        """(inputs, targets) of every batch, (BATCHES, B, T)."""
        shape = (BATCHES, self.batch, self.length + 1)
        tokens = np.random.default_rng(0).integers(0, self.vocab, shape)
        return tokens[..., :-1].astype(np.int32), tokens[..., 1:].astype(np.int32)


CASES = (
    Case("retrieval, all positions", 2, 4, 64, 61, 256, 1, True, 8),
    Case("retrieval, scored only", 2, 4, 64, 61, 256, 1, False, 8),
    Case("LM, all positions", 4, 8, 8, 256, 8192, 256, True, 4),
    Case("LM, scored only", 4, 8, 8, 256, 8192, 64, False, 4),
    Case("retrieval, all, bfloat16", 2, 4, 64, 61, 256, 1, True, 8, half=True),
    Case("LM, all, bfloat16", 4, 8, 8, 256, 8192, 256, True, 4, half=True),
)


def main() -> None:
    from jaxformer.runtime.environment import processor  # the other side's Python has no jax

    other = os.environ.get("JAXFORMER_TORCH_PYTHON", sys.executable)
    probe = subprocess.run([other, "-c", "import torch, transformers"], capture_output=True)
    if probe.returncode:
        print(INSTALL)
    sides = {"jaxformer": sys.executable} | ({} if probe.returncode else {"llama": other})
    print(f"{processor()}, {len(os.sched_getaffinity(0))} cores for both sides")
    print("CPU milliseconds a step, median of 5 (least to most), tokens a CPU second, loss")
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            workers = {name: Worker(python, name, case, folder) for name, python in sides.items()}
            measured: dict[str, list[float]] = {name: [] for name in workers}
            for repeat in range(REPEATS + 1):
                for name, worker in workers.items():
                    seconds, worker.loss = worker.ask()
                    if repeat:  # the first one compiles and warms up
                        measured[name].append(seconds)
        for name, times in measured.items():
            print(
                f"{case.name:26} {name:10} {1e3 * median(times):8.1f} ({1e3 * min(times):.1f} to "
                f"{1e3 * max(times):.1f})  {case.tokens / median(times):7.0f} tokens/s  "
                f"loss {workers[name].loss:.5f}"
            )
        if len(measured) == 2:
            ratio = median(measured["llama"]) / median(measured["jaxformer"])
            print(f"{case.name:26} jaxformer is {ratio:.2f}x as fast", flush=True)


class Worker:
    """One side in a process of its own: a line in, the seconds a step and the loss out."""

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

    def ask(self) -> tuple[float, float]:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        seconds, loss = self._read().split()
        return float(seconds), float(loss)

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


def serve(case: Case, run) -> None:
    """Runs `case.steps` steps for each line; `run(first step) -> the last step's loss`."""
    print("ready", flush=True)
    for first, _ in enumerate(sys.stdin):
        began = time.process_time()
        loss = run(first * case.steps)
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
    one = jax.tree.map(lambda x: x[0], state.trainable)
    arrays = {path: np.asarray(leaf) for path, leaf in paths.flatten(one).items()}
    np.savez(Path(folder) / "parameters.npz", **arrays)
    inputs, targets = (jnp.asarray(x[:, None]) for x in case.draw())
    weights = jnp.zeros((1, case.batch, case.length)).at[..., -case.scored :].set(1.0)

    def steps(state):  # as train.loop does: many steps a dispatch, the state donated
        def body(_, carry):
            state, _ = carry
            at = state.step % BATCHES
            state, metrics = step(state, Batch(inputs[at], targets[at], weights))
            return state, metrics["loss"][0]

        return jax.lax.fori_loop(0, case.steps, body, (state, jnp.zeros(())))

    compiled = jax.jit(steps, donate_argnums=0).lower(state).compile()

    def run(first: int) -> float:
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

    def factor(t: int) -> float:
        done = min(max((t - WARMUP) / (STEPS - WARMUP), 0), 1)
        return (t + 1) / WARMUP if t < WARMUP else 0.5 * (1 + float(np.cos(np.pi * done)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    inputs, targets = (torch.from_numpy(x).long() for x in case.draw())
    targets[..., : -case.scored] = -100

    def run(first: int) -> float:
        loss = torch.zeros(())
        keep = 0 if case.head_everywhere else case.scored  # 0: all
        for t in range(first, first + case.steps):
            with torch.autocast("cpu", torch.bfloat16, enabled=case.half):
                logits = model(inputs[t % BATCHES], logits_to_keep=keep).logits
            answers = targets[t % BATCHES, :, -keep:]
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
    """Our parameters under Llama's names."""
    import torch

    with np.load(file) as held:
        ours = {path: torch.from_numpy(np.array(held[path])) for path in held.files}
    names = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "o_proj"}
    gates = {"gate": "gate_proj", "in": "up_proj", "out": "down_proj"}
    weights = {
        "model.embed_tokens.weight": ours["embed/embedding"],
        "model.norm.weight": ours["final_norm/scale"],
        "lm_head.weight": ours["unembed/kernel"].T.contiguous(),
    }
    for i in range(layers):
        block, theirs = f"block_{i}", f"model.layers.{i}"
        weights[f"{theirs}.input_layernorm.weight"] = ours[f"{block}/attn_norm/scale"]
        weights[f"{theirs}.post_attention_layernorm.weight"] = ours[f"{block}/mlp_norm/scale"]
        for group, path, module in ((names, "attn", "self_attn"), (gates, "mlp", "mlp")):
            for mine, name in group.items():
                kernel = ours[f"{block}/{path}/{mine}/kernel"]
                weights[f"{theirs}.{module}.{name}.weight"] = kernel.T.contiguous()
    return weights


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    else:
        side = {"jaxformer": jaxformer_side, "llama": llama_side}[sys.argv[1]]
        side(CASES[int(sys.argv[2])], sys.argv[3])
