"""What a run would cost, before it starts: operations, memory, time."""

import time

import jax
import jax.numpy as jnp

from experiments.watch import clock


def print_cost(built, steps: int) -> None:
    """FLOPs and memory of one compiled step; the time is a guess from this machine's matmul."""
    flops, memory = step_cost(built)
    seeds, rates = built.members.seeds, built.members.rates
    print(f"members: {len(built.members.members)} (seeds {seeds} x learning rates {rates})")
    print(f"FLOPs a step: {flops:.3g} (all members)")
    print(f"memory: about {memory / 2**20:,.0f} MiB")
    seconds = steps * flops / (0.4 * matmul_rate())
    print(f"time: about {clock(seconds)} for {steps:,} steps on this machine, plus compilation")


def step_cost(built) -> tuple[float, float]:
    """(FLOPs, bytes) of one step of all members as XLA compiles it; nothing is run."""
    state = jax.eval_shape(built.create)
    compiled = jax.jit(built.step()).lower(state, batch_shapes(built)).compile()
    cost, memory = compiled.cost_analysis() or {"flops": 0.0}, compiled.memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes if memory else 0
    return float(cost["flops"]), held + (memory.temp_size_in_bytes if memory else 0)


def batch_shapes(built):
    """The shapes of a batch of all members."""

    def batch():
        one = built.source.task.example(jax.random.key(0), jnp.int32(0))
        lead = (len(built.members.members), built.source.batch_size)
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (*lead, *x.shape)), one)

    return jax.eval_shape(batch)


def matmul_rate() -> float:
    """FLOPs a second of a large float32 product here."""
    n = 1024
    x = jnp.ones((n, n))
    product = jax.jit(lambda x: x @ x)
    product(x).block_until_ready()
    began = time.perf_counter()
    for _ in range(5):
        product(x).block_until_ready()
    return 5 * 2 * n**3 / (time.perf_counter() - began)
