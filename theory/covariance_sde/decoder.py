"""The hidden covariance of a MixiT decoder at initialisation, from a given Phi_0.

The embeddings of the m tokens are the rows of sqrt(n) H^T, padded with zeros to the width n, where
H^T H = Phi_0 (`square_root`). The states h of layer l, (m, n), then give Phi_l = h h^T / n. Without
residuals, norms and MLPs this is the recursion of `theory.covariance_sde.finite_networks` with
causal masking and W^o. The SDE leaves out residuals, norms and MLPs.
"""

import functools
from dataclasses import asdict, dataclass

import jax
import jax.numpy as jnp

from jaxformer.capture import capture
from jaxformer.core.errors import UserError
from jaxformer.models import decoder as models
from theory.covariance_sde.coefficients import square_root
from theory.covariance_sde.ensemble import Ensemble, check_at_least_m_wide, networks_at_once


@dataclass(frozen=True)
class Decoder:
    """A decoder with h <- r h + b branch(norm(h)): residual scale r, branch scale b, RMS norms.

    MLPs have the hidden width 4n. The decoder is causal and has an output projection. It needs
    n >= m.
    """

    residual_scale: float = 0.0
    branch_scale: float = 1.0
    use_norm: bool = False
    use_mlp: bool = False

    def sample(self, ensemble: Ensemble) -> jax.Array:
        """Returns Phi at each recorded depth, (samples, layers, m, m)."""
        check_at_least_m_wide("a decoder", ensemble)
        key, phi0, width, layers, samples, mixing = ensemble
        if not (mixing.causal and mixing.output_projection):
            raise UserError(
                "a decoder is causal and has an output projection; use Mixing(causal=True, "
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
        # 2 n^2 weights of W^v and W^o, and 12 n^2 of the gated MLP.
        weights = model.spec.layers * width**2 * (14 if self.use_mlp else 2)
        batch = networks_at_once(samples, weights)
        return _run(key, square_root(phi0), model, layers, samples, batch)


@functools.partial(jax.jit, static_argnums=(2, 3, 4, 5))
def _run(key, start_MxM, model: models.Decoder, layers: tuple[int, ...], samples: int, batch: int):
    m, n = start_MxM.shape[-1], model.spec.width
    tokens_1xM = jnp.arange(m)[None]
    embedding_MxN = jnp.zeros((m, n), start_MxM.dtype).at[:, :m].set(n**0.5 * start_MxM.T)
    names = [f"block_{l - 1}/states" for l in layers if l]

    def sample_one(sample_key):
        initial = model.init(sample_key, tokens_1xM)["params"]
        params = {**initial, "embed": {"embedding": embedding_MxN}}
        states = capture(model, params, tokens_1xM, names=names) if names else {}
        by_layer = [states[f"block_{l - 1}/states"][0] if l else embedding_MxN for l in layers]
        return jnp.stack([h_MxN @ h_MxN.T / n for h_MxN in by_layer])

    return jax.lax.map(sample_one, jax.random.split(key, samples), batch_size=batch)
