"""NUTS over the exact finite-width posterior, collapsed onto the order parameters or over weights.

Why the collapsed sampler is exact at every N, P, n (not a limit):
    1. Given v^(l+1), the N_l columns of v^(l) are iid N(0, I_H (x) U^(l+1)), so U^(l) is Wishart
       and depends on the layers above through U^(l+1) only: u, U^(L), .., U^(1) is Markov.
    2. Given U^(1), the n columns of V_eff are iid N(0, U^(1)): f is a Gaussian process with kernel
       K_U, and p(Y | U) = N(Y; 0, K_U + T).
    3. Hence p(chain | Y) = chain of Wisharts x N(Y; 0, K_U + T), a density in a few coordinates
       (14 for two layers of two heads) whose cost does not depend on N.
    4. Given the chain all weights follow by linear algebra (reconstruction.py).
NUTS moves in Bartlett coordinates divided by their prior standard deviations, of which the log
density is that of bartlett.log_prior; below N = H^L these are trapezoidal and nothing else changes.

A long run is a sequence of `Sampler.advance` calls whose state is a tree of plain arrays: save it
between any two calls, warm-up included, and go on from it in another process.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, unknown
from jaxformer.models.attention_paths import AttentionPaths, attention_paths
from theory.attention_paths import bartlett, multiple_outputs
from theory.attention_paths.argument_checks import check_problem, whole_widths
from theory.attention_paths.diagnostics import diagnose
from theory.attention_paths.kernel import PathKernel, energy, fixed_kernel
from theory.attention_paths.order_parameter import order_parameter
from theory.attention_paths.posterior import Posterior, Problem, collapsed_draws
from theory.attention_paths.reconstruction import reconstruct
from theory.numerics import Array, check_count, one_lapack_thread

METHODS = ("collapsed", "weights")
STATISTICS = ("energy", "diverging", "num_steps", "accept_prob", "step_size")
CHAIN_METHODS = ("sequential", "vectorized")
DENSE_MASS = 200  # coordinates up to which the mass matrix is a full one,
# if the warm-up has so many steps a coordinate: a covariance from fewer draws than coordinates has
# directions in which nothing moves, and each draw then takes the deepest tree.
STEPS_A_COORDINATE = 5


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
    """`draws` posterior draws in all, from `chains` chains after `warmup` steps each.

    method: "collapsed" over the order parameters, "weights" over all weights by the path-level
    forward. chain_method: "sequential" is the faster on one core, "vectorized" on accelerators.
    on_chunk(steps done, steps in all) is called some times during the run. options: see Sampler.
    """
    check_count("draws", draws)
    problem = (attentioned, labels, width, temperature, heads)
    sampler = Sampler.build(*problem, warmup, chains, method, chain_method, **options)
    steps = warmup + math.ceil(draws / chains)
    state, chunks, done = sampler.start(key), [], 0
    while done < steps:
        state, chunk = sampler.advance(state, min(sampler.chunk, steps - done))
        chunks.append(chunk)
        done += min(sampler.chunk, steps - done)
        if on_chunk is not None:
            on_chunk(done, steps)
    return sampler.posterior(chunks, draws)


class Spec(NamedTuple):
    """What the compiled step depends on."""

    method: str
    layout: bartlett.Layout
    widths: tuple[int, ...]
    warmup: int
    vectorized: bool
    max_tree_depth: int
    target_accept: float
    chunk: int


@dataclasses.dataclass(frozen=True)
class Sampler:
    """The pieces of `sample`, for runs that are saved on the way.

    state = sampler.start(key);  state, chunk = sampler.advance(state, steps)  again and again;
    sampler.posterior(chunks). States and chunks are trees of NumPy arrays. A chunk holds the steps
    after the warm-up only, so the first ones may be empty.
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
        """Checks every argument; options: max_tree_depth, target_accept, chunk."""
        if method not in METHODS:
            raise unknown("sampling method", method, METHODS)
        if chain_method not in CHAIN_METHODS:
            raise unknown("chain method", chain_method, CHAIN_METHODS)
        check_count("warmup", warmup, low=0)
        check_count("chains", chains)
        heads = tuple(int(h) for h in heads)
        attentioned, labels = check_problem(attentioned, labels, temperature, heads)
        widths = whole_widths(width, heads)
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

    def start(self, key: jax.Array) -> Any:
        """The state before the first step: near the order parameter, jittered by the prior."""
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            key = jax.random.key_data(key)
        keys = jax.random.split(key, self.chains)
        with one_lapack_thread():
            state = _start(self._spec(), self._data(), self._centre(), keys)
            return jax.tree.map(np.asarray, state)

    def advance(self, state: Any, steps: int) -> tuple[Any, dict]:
        """At most `self.chunk` steps of every chain."""
        check_count("steps", steps)
        if steps > self.chunk:
            raise ValueError(f"advance takes at most chunk = {self.chunk} steps, got {steps}.")
        skipped = min(max(self.warmup - int(state.i[0]), 0), steps)
        state = jax.tree.map(jnp.asarray, state)
        with one_lapack_thread():
            state, chunk = _advance(self._spec(), self._data(), state, steps)
            chunk = jax.tree.map(lambda x: np.asarray(x)[:, skipped:steps], chunk)
            return jax.tree.map(np.asarray, state), chunk

    def posterior(self, chunks: Sequence[dict], draws: int | None = None) -> Posterior:
        """All draws of the chunks, or the first `draws`."""
        merged = jax.tree.map(lambda *parts: np.concatenate(parts, 1), *chunks)
        count = merged["num_steps"].size
        merged_flat = {k: v.reshape(count, *v.shape[2:])[:draws] for k, v in merged.items()}
        theta = merged_flat.get("theta")
        if theta is None:
            U, linear, U_all = merged_flat["U"], merged_flat["linear"], merged["U"]
        else:
            U, linear = collapsed_draws(self.problem, merged["theta"].reshape(count, -1))
            U_all = U.reshape(*merged["num_steps"].shape, *U.shape[1:])
            U, linear = U[:draws], linear[:draws]
        found = diagnose(U_all, merged, self.max_tree_depth)
        own = {name: merged[name] for name in STATISTICS}
        return Posterior(self.problem, self.method, U, linear, theta, found, own)

    def _spec(self) -> Spec:
        posterior = (self.method, self.problem.layout, self.problem.widths)
        nuts = (self.max_tree_depth, self.target_accept, self.chunk)
        return Spec(*posterior, self.warmup, self.chain_method == "vectorized", *nuts)

    def _data(self) -> tuple:
        p = self.problem
        inputs = self._kernel if self.method == "collapsed" else p.attentioned
        return inputs, p.attentioned, p.labels, jnp.asarray(p.temperature, p.labels.dtype)

    @functools.cached_property
    def _kernel(self) -> PathKernel:
        return fixed_kernel(self.problem.attentioned)

    def _centre(self) -> jax.Array:
        p = self.problem
        if p.layout != bartlett.full_layout(p.heads, p.outputs):
            return jnp.zeros(p.layout.size, p.labels.dtype)  # a singular U: no saddle point
        attentioned = multiple_outputs.contract(p.attentioned, p.outputs)
        labels = p.by_output(p.labels)
        saddle = order_parameter(attentioned, labels, p.widths, p.temperature, p.heads)
        return bartlett.coordinates(p.layout, saddle.chain)


def potential(spec: Spec, data: tuple, z: Any) -> jax.Array:
    """-ln p(z | Y) + const: z scaled Bartlett coordinates, or the parameters of AttentionPaths."""
    inputs, _, labels_P, temperature = data
    if spec.method == "collapsed":
        theta = z * bartlett.prior_scale(spec.layout, spec.widths).astype(z.dtype)
        factor_Dxr = bartlett.factors(spec.layout, theta)[-1]
        fit = energy(inputs, labels_P, temperature, factor_Dxr)
        return 0.5 * fit - bartlett.log_prior(spec.layout, theta, spec.widths)
    f_P = _network(spec).apply(z, inputs, method="from_attentioned")
    squares = sum((leaf**2).sum() for leaf in jax.tree.leaves(z))
    return 0.5 * squares + ((f_P - labels_P) ** 2).sum() / (2 * temperature)


def _network(spec: Spec) -> AttentionPaths:
    return attention_paths(heads=spec.layout.heads, width=spec.widths)


def _kernel(spec: Spec, data: tuple, z):
    """NumPyro's NUTS as functions of its state. It is set up by its own initialisation."""
    from numpyro.infer.hmc import hmc

    size = sum(leaf.size for leaf in jax.tree.leaves(z))
    dense = size <= min(DENSE_MASS, spec.warmup / STEPS_A_COORDINATE)
    setup, step = hmc(functools.partial(potential, spec, data), algo="NUTS")
    start = functools.partial(
        setup,
        num_warmup=spec.warmup,
        dense_mass=spec.method == "collapsed" and dense,
        max_tree_depth=spec.max_tree_depth,
        target_accept_prob=spec.target_accept,
    )
    return start, step


@functools.partial(jax.jit, static_argnums=0)
def _start(spec: Spec, data: tuple, centre, keys):
    _, attentioned, labels_P, temperature = data

    def one(key):
        jitter_key, weights_key, state_key = jax.random.split(key, 3)
        spread = bartlett.prior_scale(spec.layout, spec.widths).astype(centre.dtype)
        theta = centre + 0.5 * spread * jax.random.normal(jitter_key, centre.shape, centre.dtype)
        z = theta / spread
        if spec.method == "weights":
            problem = (spec.widths, attentioned, labels_P, temperature)
            z = reconstruct(weights_key, spec.layout, theta, *problem)
        start, _ = _kernel(spec, data, z)
        return start(z, rng_key=state_key)

    return jax.lax.map(one, keys)


@functools.partial(jax.jit, static_argnums=0)
def _advance(spec: Spec, data: tuple, states, steps):
    def one(state):
        start, step = _kernel(spec, data, state.z)
        start(state.z, rng_key=state.rng_key)  # sets NumPyro's closures; its values are not used

        def body(i, carry):
            state, record = carry
            state = step(state)
            row = _record(spec, data, state)
            return state, jax.tree.map(lambda all_, new: all_.at[i].set(new), record, row)

        shapes = jax.eval_shape(lambda s: _record(spec, data, s), state)
        record = jax.tree.map(lambda x: jnp.zeros((spec.chunk, *x.shape), x.dtype), shapes)
        return jax.lax.fori_loop(0, steps, body, (state, record))

    return jax.vmap(one)(states) if spec.vectorized else jax.lax.map(one, states)


def _record(spec: Spec, data: tuple, state) -> dict:
    row = {
        "potential": state.potential_energy,
        "energy": state.energy,
        "num_steps": state.num_steps,
        "accept_prob": state.accept_prob,
        "diverging": state.diverging,
        "step_size": state.adapt_state.step_size,
    }
    if spec.method == "collapsed":
        scale = bartlett.prior_scale(spec.layout, spec.widths).astype(state.z.dtype)
        return row | {"theta": state.z * scale}
    n = data[0].shape[2]
    path_weights: Any = _network(spec).apply(state.z, n, method="path_weights")
    v_DxN, V_eff_Dxn = path_weights
    squares = sum((leaf**2).sum() for leaf in jax.tree.leaves(state.z))
    linear = V_eff_Dxn * V_eff_Dxn.size**-0.5
    return row | {"U": v_DxN @ v_DxN.T, "linear": linear, "squared_norm": squares}
