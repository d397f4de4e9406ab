"""The hidden covariance of a real MixiT decoder at initialisation, embedded so that Phi_0 is given.

The m tokens of the sequence are the m rows of the embedding, sqrt(n) [Phi0^{1/2}; 0]^T. Then layer
l's states (m, n) give Phi_l = h h^T / n. Without residuals, norms and MLPs this is the recursion of
`theory.covariance_sde.network` with causal masking and the output projection W^o; with them it is
what the SDE leaves out.
"""

import functools

import jax
import jax.numpy as jnp

from jaxformer.capture import capture
from jaxformer.models.decoder import Decoder, decoder

WEIGHTS = 2**23  # weights held at once: 64 MB


def decoder_covariance(
    key: jax.Array,
    start_MxM: jax.Array,
    width: int,
    layers: tuple[int, ...],
    samples: int,
    heads: int,
    mixing_scale: str | float,
    residual_scale: float,
    branch_scale: float,
    use_norm: bool,
    use_mlp: bool,
) -> jax.Array:
    """Phi after each of `layers` (0 is the embedding), (samples, len(layers), m, m).

    `start_MxM` is a square root of Phi0, H^T H = Phi0. MLPs have the width 4n, norms are RMS norms
    before each branch: h <- r h + b branch(norm(h)).
    """
    m = start_MxM.shape[-1]
    model = decoder(
        vocab_size=m,
        length=m,
        width=width,
        layers=max(*layers, 1),
        heads=heads,
        mlp_width=4 * width,
        mixer="mixit",
        mixing_scale=mixing_scale,
        init_std="fan_in",
        residual_scale=residual_scale,
        branch_scale=branch_scale,
        use_norm=use_norm,
        use_mlp=use_mlp,
    )
    per_network = model.spec.layers * width**2 * (14 if use_mlp else 2)
    batch = max(1, min(samples, WEIGHTS // per_network))
    return _run(key, start_MxM, model, layers, samples, batch)


@functools.partial(jax.jit, static_argnums=(2, 3, 4, 5))
def _run(key, start_MxM, model: Decoder, layers, samples, batch):
    m, n = start_MxM.shape[-1], model.spec.width
    tokens_1xM = jnp.arange(m)[None]
    embedding_MxN = jnp.zeros((m, n), start_MxM.dtype).at[:, :m].set(n**0.5 * start_MxM.T)
    names = [f"block_{l - 1}/states" for l in layers if l]

    def one(sample_key):
        drawn = model.init(sample_key, tokens_1xM)["params"]
        params = {**drawn, "embed": {"embedding": embedding_MxN}}
        states = capture(model, params, tokens_1xM, names=names) if names else {}
        by_layer = [states[f"block_{l - 1}/states"][0] if l else embedding_MxN for l in layers]
        return jnp.stack([h_MxN @ h_MxN.T / n for h_MxN in by_layer])

    return jax.lax.map(one, jax.random.split(key, samples), batch_size=batch)
