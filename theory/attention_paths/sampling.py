"""NUTS over the exact finite-width posterior of the order parameters, or of all weights.

The collapsed sampler (over the order parameters) is exact at every N, P and n:

1. Given v^(l+1), the N_l columns of v^(l) are iid N(0, I_H (x) U^(l+1)). So U^(l) is a Wishart
   matrix that depends on the layers above through U^(l+1) only: u, U^(L), .., U^(1) is Markov.
2. Given U^(1), the n columns of V_eff are iid N(0, U^(1)). So f is a Gaussian process with kernel
   K_U, and p(Y | U) = N(Y; 0, K_U + T).
3. Hence p(chain | Y) = (chain of Wisharts) x N(Y; 0, K_U + T). This is a density in few coordinates
   (14 for two layers of two heads), and its cost does not depend on N.
4. Given the chain, all weights follow by linear algebra (`reconstruction`).

NUTS moves in Bartlett coordinates divided by their prior standard deviations. Their prior log
density is `bartlett.log_prior`. For N < H^L the Bartlett factors are trapezoidal and nothing else
changes.

A long run is a sequence of `Sampler.advance` calls whose state is a tree of plain arrays. It can be
saved between any two calls, during the warm-up too, and another process resumes from it.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, unknown
from theory.attention_paths import bartlett, multiple_outputs, nuts
from theory.attention_paths.argument_checks import check_problem, check_whole_widths
from theory.attention_paths.diagnostics import diagnose
from theory.attention_paths.kernel import StoredExamples, store_compressed_examples
from theory.attention_paths.order_parameter import order_parameter
from theory.attention_paths.posterior import Posterior, Problem, collapsed_draws
from theory.numerics import Array, check_count, in_float64, one_lapack_thread

METHODS = ("collapsed", "weights")
STATISTICS = ("energy", "diverging", "num_steps", "accept_prob", "step_size")
CHAIN_METHODS = ("sequential", "vectorized")


@in_float64
def sample(
    key: jax.Array,
    attentioned: Array,
    labels: Array,
    width: float | Sequence[float],
    temperature: float,
    heads: Sequence[int],
    draws: int,
    warmup: int,
    chains: int,
    method: str = "collapsed",
    chain_method: str = "sequential",
    on_chunk: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Posterior:
    """Draws from the exact posterior of a finite network.

    Args:
        key: PRNG key.
        attentioned: training inputs xi, (P, D, n).
        labels: +1 and -1 or real numbers, (P,), or (P, m) for m outputs.
        width: N, or (N_1 .. N_{L+1}).
        temperature: T, above 0.
        heads: (H_1 .. H_L).
        draws: number of draws of all chains together.
        warmup: warm-up steps of each chain.
        chains: number of Markov chains.
        method: "collapsed" samples the order parameters, "weights" all weights.
        chain_method: "sequential" is faster on one core, "vectorized" on accelerators.
        on_chunk: called as on_chunk(steps done, all steps) several times during the run.
        **options: max_tree_depth, target_accept and chunk of `Sampler`.

    Example:
        >>> posterior = sample(key, xi, labels, 10, 0.1, (2, 2), draws=100, warmup=100, chains=2)
        >>> posterior.U.shape, posterior.mean(xi_test).shape
        ((100, 4, 4), (5,))
    """
    check_count("draws", draws)
    data_and_network = (attentioned, labels, width, temperature, heads)
    sampler = Sampler.build(*data_and_network, warmup, chains, method, chain_method, **options)
    steps = warmup + math.ceil(draws / chains)
    state = sampler.start(key)
    chunks = []
    done = 0
    while done < steps:
        chunk_steps = min(sampler.chunk, steps - done)
        state, chunk = sampler.advance(state, chunk_steps)
        chunks.append(chunk)
        done += chunk_steps
        if on_chunk is not None:
            on_chunk(done, steps)
    return sampler.posterior(chunks, draws)


@dataclasses.dataclass(frozen=True)
class Sampler:
    """The steps of `sample` as separate calls, for runs that save their state between calls.

    state = sampler.start(key)
    state, chunk = sampler.advance(state, steps)    (repeated; keep every chunk)
    posterior = sampler.posterior(chunks)

    States and chunks are trees of NumPy arrays. A chunk has only steps after the warm-up, so the
    first chunks may be empty. `chunk` is the largest number of steps of one call.
    """

    problem: Problem
    warmup: int
    chains: int
    method: str = "collapsed"
    chain_method: str = "sequential"
    max_tree_depth: int = 10
    target_accept: float = 0.8
    chunk: int = 100

    @classmethod
    @in_float64
    def build(
        cls,
        attentioned: Array,
        labels: Array,
        width: float | Sequence[float],
        temperature: float,
        heads: Sequence[int],
        warmup: int,
        chains: int,
        method: str = "collapsed",
        chain_method: str = "sequential",
        **options: Any,
    ) -> "Sampler":
        """Checks all arguments of `sample` and returns the sampler."""
        if method not in METHODS:
            raise unknown("sampling method", method, METHODS)
        if chain_method not in CHAIN_METHODS:
            raise unknown("chain method", chain_method, CHAIN_METHODS)
        check_count("warmup", warmup, low=0)
        check_count("chains", chains)
        heads = tuple(int(h) for h in heads)
        attentioned, labels = check_problem(attentioned, labels, temperature, heads)
        widths = check_whole_widths(width, heads)
        m = multiple_outputs.count(labels)
        if m > 1 and method == "weights":
            raise UserError(f"method 'weights' samples networks of one output, got {m}.")
        problem = Problem(
            multiple_outputs.expand(attentioned, m),
            labels.reshape(-1),
            widths,
            float(temperature),
            heads,
            m,
        )
        return cls(problem, warmup, chains, method, chain_method, **options)

    @in_float64
    def start(self, key: jax.Array) -> Any:
        """Returns the state before the first step: the order parameter plus prior noise."""
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            key = jax.random.key_data(key)
        keys = jax.random.split(key, self.chains)
        with one_lapack_thread():
            state = nuts.start(self._spec(), self._data(), self._start_theta(), keys)
            return jax.tree.map(np.asarray, state)

    @in_float64
    def advance(self, state: Any, steps: int) -> tuple[Any, dict]:
        """Takes at most `self.chunk` steps of each chain and returns the state and the draws."""
        check_count("steps", steps)
        if steps > self.chunk:
            raise ValueError(f"advance takes at most chunk = {self.chunk} steps, got {steps}.")
        # Steps of this call that still belong to the warm-up give no draws.
        warmup_steps = min(max(self.warmup - int(state.i[0]), 0), steps)
        state = jax.tree.map(jnp.asarray, state)
        with one_lapack_thread():
            state, chunk = nuts.advance(self._spec(), self._data(), state, steps)
            chunk = jax.tree.map(lambda x: np.asarray(x)[:, warmup_steps:steps], chunk)
            return jax.tree.map(np.asarray, state), chunk

    @in_float64
    def posterior(self, chunks: Sequence[dict], draws: int | None = None) -> Posterior:
        """Returns all draws of the chunks, or the first `draws`. Diagnostics use all draws."""
        by_chain = jax.tree.map(lambda *parts: np.concatenate(parts, 1), *chunks)
        shape = by_chain["num_steps"].shape
        flat = {name: x.reshape(-1, *x.shape[2:]) for name, x in by_chain.items()}
        if self.method == "collapsed":
            U, linear = collapsed_draws(self.problem, flat["theta"])
            theta = flat["theta"][:draws]
        else:
            U, linear, theta = flat["U"], flat["linear"], None
        U_CxSxDxD = U.reshape(*shape, *U.shape[1:])
        diagnostics = diagnose(U_CxSxDxD, by_chain, self.max_tree_depth)
        statistics = {name: by_chain[name] for name in STATISTICS}
        return Posterior(
            self.problem, self.method, U[:draws], linear[:draws], theta, diagnostics, statistics
        )

    def _spec(self) -> nuts.Spec:
        return nuts.Spec(
            method=self.method,
            layout=self.problem.layout,
            widths=self.problem.widths,
            warmup=self.warmup,
            vectorized=self.chain_method == "vectorized",
            max_tree_depth=self.max_tree_depth,
            target_accept=self.target_accept,
            chunk=self.chunk,
        )

    def _data(self) -> tuple:
        p = self.problem
        inputs = self._stored if self.method == "collapsed" else p.attentioned
        return inputs, p.attentioned, p.labels, jnp.asarray(p.temperature, p.labels.dtype)

    @functools.cached_property
    def _stored(self) -> StoredExamples:
        return store_compressed_examples(self.problem.attentioned)

    def _start_theta(self) -> jax.Array:
        p = self.problem
        if p.layout != bartlett.full_layout(p.heads, p.outputs):
            return jnp.zeros(p.layout.size, p.labels.dtype)  # a singular U has no saddle point
        attentioned = multiple_outputs.contract(p.attentioned, p.outputs)
        labels = p.by_output(p.labels)
        saddle = order_parameter(attentioned, labels, p.widths, p.temperature, p.heads)
        return bartlett.coordinates(p.layout, saddle.chain)
