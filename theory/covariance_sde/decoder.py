"""The hidden covariance of a real MixiT decoder at initialisation, embedded so that Phi_0 is given.

The m tokens of the sequence are the m rows of the embedding, sqrt(n) [Phi0^{1/2}; 0]^T. Then layer
l's states (m, n) give Phi_l = h h^T / n. Without residuals, norms and MLPs this is the recursion of
`theory.covariance_sde.finite_networks` with causal masking and W^o; with them it is
what the SDE leaves out.
"""

import functools
from dataclasses import asdict, dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.capture import capture
from jaxformer.core.errors import UserError
from jaxformer.models import decoder as models
from theory.covariance_sde.coefficients import Mixing, square_root

WEIGHTS = 2**23  # A batch of networks holds so many weights at once: 64 MB.


class Ensemble(NamedTuple):
    """The networks that `measure` asks for: Phi after each of `layers`, where 0 is the start."""

    key: jax.Array
    phi0: jax.Array
    width: int
    layers: tuple[int, ...]
    samples: int
    mixing: Mixing


@dataclass(frozen=True)
class Decoder:
    """h <- r h + b branch(norm(h)), r the residual and b the branch scale, RMS norms, MLPs 4n wide.

    It is causal, has an output projection and is at least m wide.
    """

    residual_scale: float = 0.0
    branch_scale: float = 1.0
    use_norm: bool = False
    use_mlp: bool = False

    def sample(self, ensemble: Ensemble) -> jax.Array:
        check_wide("a decoder", ensemble)
        key, phi0, width, layers, samples, mixing = ensemble
        if not (mixing.causal and mixing.output_projection):
            raise UserError(
                "a decoder is causal and has an output projection; say Mixing(causal=True, "
                f"output_projection=True), got {mixing}."
            )
        m = phi0.shape[-1]
        model = models.decoder(
            vocab_size=m,
            length=m,
            width=width,
            layers=max(*layers, 1),
            heads=mixing.heads,
            mlp_width=4 * width,
            mixer="mixit",
            mixing_scale=mixing.scale,
            init_std="fan_in",
            **asdict(self),
        )
        per_network = model.spec.layers * width**2 * (14 if self.use_mlp else 2)
        batch = max(1, min(samples, WEIGHTS // per_network))
        return _run(key, square_root(phi0), model, layers, samples, batch)


@functools.partial(jax.jit, static_argnums=(2, 3, 4, 5))
def _run(key, start_MxM, model: models.Decoder, layers: tuple[int, ...], samples: int, batch: int):
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


def check_wide(what: str, ensemble: Ensemble) -> None:
    """h starts as sqrt(n) [Phi0^{1/2}; 0], which needs n >= m."""
    m, width = ensemble.phi0.shape[-1], ensemble.width
    if width < m:
        raise UserError(f"{what} needs a width of at least m = {m}, got {width}.")
