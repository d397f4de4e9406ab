"""The steps of NUTS on one potential, compiled for all chains of a `sampling.Sampler`.

The potential is -ln of the posterior, either over the Bartlett coordinates of the order parameters
divided by their prior standard deviations, or over all weights. NumPyro takes the steps.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.models.attention_paths import AttentionPaths, attention_paths
from theory.attention_paths import bartlett
from theory.attention_paths.kernel import energy
from theory.attention_paths.reconstruction import reconstruct

# The mass matrix is dense up to this many coordinates, if the warm-up has enough steps for each. A
# covariance estimated from fewer draws than coordinates is singular: the chains hardly move in some
# directions, and each draw takes the deepest tree.
MAX_DENSE_COORDINATES = 200
MIN_STEPS_PER_COORDINATE = 5


class Spec(NamedTuple):
    """The settings of a `Sampler` that its compiled functions depend on.

    `chunk` is the largest number of steps in one call of `advance`.
    """

    method: str
    layout: bartlett.Layout
    widths: tuple[int, ...]
    warmup: int
    vectorized: bool
    max_tree_depth: int
    target_accept: float
    chunk: int


def potential(spec: Spec, data: tuple, z: Any) -> jax.Array:
    """Returns -ln p(z | Y) + const.

    Args:
        spec: the method, the sizes and the widths.
        data: (inputs, attentioned inputs xi, labels, temperature); the inputs are the stored
            examples of the kernel for the method "collapsed" and xi for "weights".
        z: the position of a chain: the Bartlett coordinates divided by their prior standard
            deviations for "collapsed", the parameters of AttentionPaths for "weights".
    """
    inputs, _, labels_P, temperature = data
    if spec.method == "collapsed":
        theta = z * bartlett.prior_scale(spec.layout, spec.widths).astype(z.dtype)
        factor_Dxr = bartlett.order_parameter_factors(spec.layout, theta)[-1]
        fit = energy(inputs, labels_P, temperature, factor_Dxr)
        return 0.5 * fit - bartlett.log_prior(spec.layout, theta, spec.widths)
    f_P = _network(spec).apply(z, inputs, method="from_attentioned")
    squares = sum((leaf**2).sum() for leaf in jax.tree.leaves(z))
    return 0.5 * squares + ((f_P - labels_P) ** 2).sum() / (2 * temperature)


def _network(spec: Spec) -> AttentionPaths:
    return attention_paths(heads=spec.layout.heads, width=spec.widths)


def _numpyro_steps(spec: Spec, data: tuple, z):
    """Returns NumPyro's NUTS as (initialise, step). `step` works only after `initialise` ran."""
    from numpyro.infer.hmc import hmc

    size = sum(leaf.size for leaf in jax.tree.leaves(z))
    dense = size <= min(MAX_DENSE_COORDINATES, spec.warmup / MIN_STEPS_PER_COORDINATE)
    setup, step = hmc(functools.partial(potential, spec, data), algo="NUTS")
    initialise = functools.partial(
        setup,
        num_warmup=spec.warmup,
        dense_mass=spec.method == "collapsed" and dense,
        max_tree_depth=spec.max_tree_depth,
        target_accept_prob=spec.target_accept,
    )
    return initialise, step


@functools.partial(jax.jit, static_argnums=0)
def start(spec: Spec, data: tuple, start_theta, keys) -> Any:
    """Returns NumPyro's states of all chains before their first step.

    Args:
        spec: the settings.
        data: (inputs, attentioned inputs xi, labels, temperature); the inputs are the stored
            examples of the kernel for the collapsed method and xi for the weights.
        start_theta: the Bartlett coordinates around which the chains start.
        keys: a PRNG key for each chain.
    """
    _, attentioned, labels_P, temperature = data

    def start_chain(key):
        jitter_key, weights_key, state_key = jax.random.split(key, 3)
        spread = bartlett.prior_scale(spec.layout, spec.widths).astype(start_theta.dtype)
        noise = jax.random.normal(jitter_key, start_theta.shape, start_theta.dtype)
        # Half a prior standard deviation of noise keeps the chains near start_theta, but apart.
        theta = start_theta + 0.5 * spread * noise
        z = theta / spread
        if spec.method == "weights":
            problem = (spec.widths, attentioned, labels_P, temperature)
            z = reconstruct(weights_key, spec.layout, theta, *problem)
        initialise, _ = _numpyro_steps(spec, data, z)
        return initialise(z, rng_key=state_key)

    return jax.lax.map(start_chain, keys)


@functools.partial(jax.jit, static_argnums=0)
def advance(spec: Spec, data: tuple, states, steps) -> tuple:
    """Takes `steps` steps, at most `spec.chunk`, of each chain.

    Returns:
        The states, and a dict of arrays (chains, spec.chunk, ..) with the draw and the statistics
        of each step; rows after `steps` are zero.
    """

    def advance_chain(state):
        initialise, step = _numpyro_steps(spec, data, state.z)
        initialise(state.z, rng_key=state.rng_key)  # sets NumPyro's closures; the result is unused

        def body(i, carry):
            state, record = carry
            state = step(state)
            row = _draw_and_statistics(spec, data, state)
            return state, jax.tree.map(lambda rows, new: rows.at[i].set(new), record, row)

        shapes = jax.eval_shape(lambda s: _draw_and_statistics(spec, data, s), state)
        record = jax.tree.map(lambda x: jnp.zeros((spec.chunk, *x.shape), x.dtype), shapes)
        return jax.lax.fori_loop(0, steps, body, (state, record))

    if spec.vectorized:
        return jax.vmap(advance_chain)(states)
    return jax.lax.map(advance_chain, states)


def _draw_and_statistics(spec: Spec, data: tuple, state) -> dict:
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
    linear = V_eff_Dxn * V_eff_Dxn.size**-0.5  # f = sum_pi linear^pi . xi^pi
    return row | {"U": v_DxN @ v_DxN.T, "linear": linear, "squared_norm": squares}
