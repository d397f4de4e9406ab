"""A training step with adapters of rank 8 on queries and values, here and in torch with peft.

    python benchmarks/adapters.py [--steps=3] [--chunk=N] [--all | --norms]

Both sides train a random Llama of the shape of SmolLM2-135M on 4 x 128 tokens, in float32, with
AdamW, on one core and in a process of their own. --chunk computes our loss in chunks of N
positions, which needs less memory but computes the logits twice. --all adapts all kernels of a
block; --norms trains the norms and has no adapters. Printed are CPU seconds of a step (the best one
after the first, which compiles) and the peak memory of the process, with the model, its copy in the
training state and the compiler.

It needs torch, transformers and peft.
"""

import json
import os
import resource
import subprocess
import sys
import time

STEPS = int(next((x.split("=")[1] for x in sys.argv if x.startswith("--steps=")), 3))
CHUNK = int(next((x.split("=")[1] for x in sys.argv if x.startswith("--chunk=")), 0))
ALL, NORMS = "--all" in sys.argv, "--norms" in sys.argv
BATCH, LENGTH, RANK = 4, 128, 8
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 49_152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100_000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
}


def best_of(step) -> tuple[float, float]:
    """(CPU seconds of the quickest step after the first, peak GiB)."""
    seconds = []
    for _ in range(STEPS + 1):
        started = time.process_time()
        step()
        seconds.append(time.process_time() - started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return min(seconds[1:]), peak


def ours() -> tuple[float, float]:
    import jax
    import numpy as np

    from jaxformer.core import adapters, optim, small_parts
    from jaxformer.core.partition import Partition
    from jaxformer.models.pretrained import Pretrained, describe
    from jaxformer.planning.published import TokenTask
    from jaxformer.tasks.chunked_loss import deferred_logits
    from jaxformer.tasks.task import Batch
    from jaxformer.training.population import Population
    from jaxformer.training.step import create, make_step

    model = Pretrained(describe(CONFIG))
    task = TokenTask(LENGTH, CONFIG["vocab_size"])
    modules = "query|key|value|out|gate|in" if ALL else "query|value"
    rules = small_parts.NORMS if NORMS else small_parts.lora(RANK, modules)
    partition = Partition(rules)
    tokens = np.random.RandomState(0).randint(0, CONFIG["vocab_size"], (1, BATCH, LENGTH + 1))
    batch = Batch(tokens[..., :-1], tokens[..., 1:], np.ones((1, BATCH, LENGTH), np.float32))

    def init(key):
        params = model.init(key, task.blank())["params"]
        return adapters.add(params, partition.adapters(params), key)

    def apply(params, tokens, positions):
        if CHUNK:
            return deferred_logits(model, params, (tokens, positions), CHUNK)
        return model.apply({"params": params}, tokens, positions)

    tx = optim.optimizer(partition, {"train": optim.AdamW()}, 1.0, lambda step: 1.0)
    state = create(init, partition, tx, Population((0,), (1e-4,)))
    run = jax.jit(make_step(apply, task, tx), donate_argnums=0)

    def step():
        nonlocal state
        state, _ = jax.block_until_ready(run(state, batch))

    return best_of(step)


def theirs() -> tuple[float, float]:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, LlamaConfig

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_config(LlamaConfig(**CONFIG))
    modules = "all-linear" if ALL else ["q_proj", "v_proj"]
    if NORMS:
        for name, parameter in model.named_parameters():
            parameter.requires_grad = "norm" in name
    else:
        model = get_peft_model(model, LoraConfig(r=RANK, target_modules=modules))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, 1e-4)
    tokens = torch.randint(0, CONFIG["vocab_size"], (BATCH, LENGTH + 1))

    def step():
        logits = model(input_ids=tokens[:, :-1]).logits
        flat = logits.reshape(-1, logits.shape[-1])
        torch.nn.functional.cross_entropy(flat, tokens[:, 1:].reshape(-1)).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return best_of(step)


if __name__ == "__main__":
    if "--side" in sys.argv[1:2]:
        print(json.dumps((ours if sys.argv[2] == "ours" else theirs)()))
        sys.exit()
    core = {min(os.sched_getaffinity(0))}
    for side in ("ours", "theirs"):
        command = [sys.executable, __file__, "--side", side, *sys.argv[1:]]
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            check=True,
            env={**os.environ, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"},
            preexec_fn=lambda: os.sched_setaffinity(0, core),
        )
        seconds, peak = json.loads(done.stdout.splitlines()[-1])
        print(f"{side:8} {seconds:6.2f} CPU s a step, peak {peak:.2f} GiB", flush=True)
