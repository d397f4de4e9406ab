"""Speed of the attention-path theory, in CPU seconds after compilation, one thread.

    python benchmarks/attention_paths_speed.py          about 4 CPU minutes

1. The order parameter U of the paper's task (14 parameters, P = 100 examples) at every width N.
2. Effective draws (ESS) per CPU second after warm-up, the smallest over the entries of U. Three
   samplers of one posterior are compared: NUTS over U alone (collapsed), NUTS over all weights with
   a forward pass by paths, and NUTS over all weights with a forward pass by tokens, as in the
   authors' code. The third is not run. Its rate is that of the second, divided by the measured
   ratio of their gradients' costs.
3. A gradient of the collapsed posterior with LAPACK on all cores and on one thread. The cost of
   waiting threads depends on the load of the machine.
4. The order parameter of a large problem, in a separate process: CPU seconds and largest resident
   size. It has P = 600 examples, L = 2 layers of H = 8 heads (64 paths, 2117 parameters) and
   n = 192 features.
"""

import os
import resource
import subprocess
import sys
import time

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_limits

from jaxformer.data import hidden_markov
from jaxformer.models.attention_paths import AttentionPaths, AttentionPathsSpec
from theory import attention_paths
from theory.attention_paths.nuts import potential

T, HEADS = 0.01, (2, 2)  # the temperature, and the heads of each layer


def main() -> None:
    if sys.argv[1:] == ["--large"]:
        return large()
    tokens, labels = hidden_markov.examples(0, 100)
    forms = hidden_markov.bilinear_forms(1)
    xi = hidden_markov.attentioned_input(tokens, forms)
    order_parameters(xi, labels)
    samplers(tokens, hidden_markov.attention_maps(tokens, forms), xi, labels)
    lapack_threads(xi, labels)
    sys.stdout.flush()
    subprocess.run([sys.executable, __file__, "--large"], check=True)


def order_parameters(xi, labels) -> None:
    print("order parameter, 14 parameters, P = 100: CPU seconds (target: below 0.5)")
    solve(xi, labels, 10, T, HEADS)
    for width in (10, 30, 50, 100, 300, 500, 1000):
        seconds, solution = solve(xi, labels, width, T, HEADS)
        norm = float(solution.gradient_norm)
        print(f"  N = {width:5d}   {seconds:.3f} s   max |dS/dtheta| {norm:.0e}")


def solve(*args):
    """Returns the CPU seconds of `order_parameter`, and its result."""
    start = time.process_time()
    solution = jax.block_until_ready(attention_paths.order_parameter(*args))
    return time.process_time() - start, solution


def samplers(tokens, maps, xi, labels) -> None:
    print("\nNUTS, smallest ESS over the entries of U per CPU second")
    print("(targets: collapsed 250; 30 x weights by paths at N = 10, 200 x at N = 100)")
    print(
        "     N  sampler            warm-up  draws   steps/draw  ESS      CPU s   ESS/s   collapsed"
    )
    for width, warmup, draws in ((10, 200, 400), (100, 150, 100)):
        collapsed, collapsed_rate = rate(xi, labels, width, "collapsed", 300, 2000)
        weights, weights_rate = rate(xi, labels, width, "weights", warmup, draws)
        by_tokens, by_paths = gradients(tokens, maps, xi, labels, width)
        tokens_rate = weights_rate * by_paths / by_tokens
        line = f"  {width:4d}  {{:18s}} {{:6d}} {{:6d}}   {{:9.1f}} {{:6.0f}} {{:9.2f}} {{:7.2f}}"
        print(line.format("collapsed", 300, 2000, *collapsed, collapsed_rate))
        ratio = collapsed_rate / weights_rate
        print(
            line.format("weights, by paths", warmup, draws, *weights, weights_rate),
            f"{ratio:9.0f} x",
        )
        print(
            f"  {width:4d}  weights, by tokens  gradient {by_tokens * 1e3:.2f} ms against "
            f"{by_paths * 1e3:.3f} ms by paths     {tokens_rate:7.3f} "
            f"{collapsed_rate / tokens_rate:9.0f} x"
        )


def rate(xi, labels, width, method, warmup, draws):
    """Returns ((leapfrog steps per draw, ESS, CPU seconds), ESS per CPU second) after warm-up."""
    chunk = 50
    sampler = attention_paths.Sampler.build(
        xi, labels, width, T, HEADS, warmup, 1, method, chunk=chunk
    )
    state = sampler.start(jax.random.key(0))
    for _ in range(warmup // chunk):
        state, _ = sampler.advance(state, chunk)
    start, chunks = time.process_time(), []
    for _ in range(draws // chunk):
        state, part = sampler.advance(state, chunk)
        chunks.append(part)
    seconds = time.process_time() - start
    diagnostics = sampler.posterior(chunks).diagnostics
    ess = diagnostics["ess"]
    return (diagnostics["num_steps"], ess, seconds), ess / seconds


def lapack_threads(xi, labels, calls: int = 500) -> None:
    print("\na gradient of the collapsed posterior, N = 10")
    sampler = attention_paths.Sampler.build(xi, labels, 10, T, HEADS, 0, 1)
    spec, data = sampler._spec(), sampler._data()

    @jax.jit
    def descend(z, data):
        gradient = jax.grad(lambda z: potential(spec, data, z))
        return jax.lax.fori_loop(0, calls, lambda _, z: z - 1e-6 * gradient(z), z)

    z = jnp.zeros(spec.layout.size)
    for threads in (os.cpu_count() or 1, 1):
        with threadpool_limits(threads, user_api="blas"):
            descend(z, data).block_until_ready()
            start, wall = time.process_time(), time.perf_counter()
            descend(z, data).block_until_ready()
            cpu, wall = time.process_time() - start, time.perf_counter() - wall
        each = f"{cpu / calls * 1e3:.2f} CPU ms, {wall / calls * 1e3:.2f} ms of wall time"
        print(f"  threads of LAPACK: {threads}   {each}")


def gradients(tokens, maps, xi, labels, width) -> tuple[float, float]:
    """Returns the CPU seconds of a gradient of the log posterior over weights.

    The forward pass of the first number is by tokens, that of the second by paths.
    """
    model = AttentionPaths(AttentionPathsSpec(HEADS, width, param_dtype=jnp.float64))
    params = jax.jit(model.init)(jax.random.key(0), tokens[:1], maps=[m[:1] for m in maps])

    def negative_log_posterior(params, outputs):
        squares = sum((leaf**2).sum() for leaf in jax.tree.leaves(params))
        return squares / 2 + ((outputs - labels) ** 2).sum() / (2 * T)

    def by_tokens(params, tokens, maps):
        return negative_log_posterior(params, model.apply(params, tokens, maps=maps))

    def by_paths(params, xi):
        return negative_log_posterior(params, model.apply(params, xi, method="from_attentioned"))

    seconds_by_tokens = seconds_of(
        jax.jit(jax.grad(by_tokens)), params, jnp.asarray(tokens), maps, calls=50
    )
    seconds_by_paths = seconds_of(jax.jit(jax.grad(by_paths)), params, jnp.asarray(xi), calls=2000)
    return seconds_by_tokens, seconds_by_paths


def seconds_of(function, *args, calls: int) -> float:
    """Returns the mean CPU seconds of a call of `function`, over `calls` calls in one program.

    `function` returns the gradient with respect to its first argument.
    """
    args = jax.tree.map(jnp.asarray, args)

    @jax.jit
    def repeat(args):
        def body(_, args):
            gradient = function(*args)
            # The next call depends on this gradient, so XLA cannot remove a call.
            return (jax.tree.map(lambda p, g: p - 1e-12 * g, args[0], gradient), *args[1:])

        return jax.lax.fori_loop(0, calls, body, args)[0]

    jax.block_until_ready(repeat(args))
    start = time.process_time()
    jax.block_until_ready(repeat(args))
    return (time.process_time() - start) / calls


def large() -> None:
    """Prints the time and memory of the order parameter of a large problem with random data."""
    rng, (P, D, n) = np.random.default_rng(0), (600, 64, 192)
    labels = np.where(rng.random(P) < 0.5, 1.0, -1.0)
    xi = rng.standard_normal((P, D, n))
    xi += rng.standard_normal((P, 1, n))  # common to all paths
    xi += 0.3 * labels[:, None, None] * rng.standard_normal((1, D, n))
    seconds, solution = solve(xi, labels, 10, 0.5, (8, 8))
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print("\nP = 600, H = 8, L = 2, n = 192, N = 10, T = 0.5 (target: 60 CPU seconds, 1 GiB)")
    print(
        f"  {seconds:.1f} CPU s, with compilation; largest resident size {size:.2f} GiB, of which "
        f"the data {xi.nbytes / 2**30:.2f}; max |dS/dtheta| {float(solution.gradient_norm):.0e}"
    )


if __name__ == "__main__":
    with jax.enable_x64(True):
        main()
