"""The ensemble of finite networks that `measure` samples, and limits that all networks share."""

from typing import NamedTuple

import jax

from jaxformer.core.errors import UserError
from theory.covariance_sde.mixing import Mixing

MAX_WEIGHTS_AT_ONCE = 2**23  # 64 MB of float64


class Ensemble(NamedTuple):
    """Independent networks and the depths at which to record Phi; depth 0 is the start."""

    key: jax.Array
    phi0: jax.Array
    width: int
    layers: tuple[int, ...]
    samples: int
    mixing: Mixing


def networks_at_once(samples: int, weights: int) -> int:
    """Returns how many networks of `weights` weights each are sampled together."""
    return max(1, min(samples, MAX_WEIGHTS_AT_ONCE // weights))


def check_at_least_m_wide(network: str, ensemble: Ensemble) -> None:
    """Checks n >= m, which the start h = sqrt(n) [Phi0^{1/2}; 0] needs."""
    m, width = ensemble.phi0.shape[-1], ensemble.width
    if width < m:
        raise UserError(f"{network} needs a width of at least m = {m}, got {width}.")
