"""Rules that reject a known wrong alternative of their claim."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from experiments.ledger.rules import HELD, NOT_HELD
from experiments.ledger.statistics import Number
from experiments.papers.mixit.claims_theory import of_one_law
from experiments.papers.mixit.sde_paths import ks, quantities
from theory import covariance_sde as cs

NOISE = Number(1.63 * (2 / 4000) ** 0.5)  # exceeded by two samples of one distribution in 1 %


@dataclass(frozen=True)
class Printed(cs.Euler):
    """The SDE of Theorem 2.1 as printed, which adds the drift to every entry of Phi."""

    def step(self, phi_MxM, unused_w_MxM, z_MxM, dt, mixing, kappa):
        corrected = super().step(phi_MxM, unused_w_MxM, z_MxM, dt, mixing, kappa)
        b = kappa * (jnp.trace(phi_MxM) / len(phi_MxM) - phi_MxM.mean())
        return corrected + b * dt * (1 - jnp.eye(len(phi_MxM)))


def test_the_printed_drift_fails_theorem_2_1_in_the_correlation_only():
    with jax.enable_x64(True):
        phi = jnp.eye(4) * 0.7 + 0.3
        keys = jax.random.split(jax.random.key(0), 3)
        paths = [
            cs.predict(key, phi, 1.0, 4000, 25, solver=solver)[:, None]
            for key, solver in zip(keys, (cs.Euler(), cs.Euler(), Printed()), strict=True)
        ]
        with np.errstate(invalid="ignore"):  # a few paths leave the cone by rounding
            law, corrected, printed = map(quantities, paths)
    verdicts = {}  # Euler's steps on all sides, so only the drift differs
    for name in ("log_trace", "correlation"):
        for drift, other in (("corrected", corrected), ("printed", printed)):
            distance = Number(ks(*(v[name][np.isfinite(v[name])] for v in (law, other))))
            finding = of_one_law(name).judge(
                "", lambda side, d=distance: NOISE if side.metric == "ks_noise" else d
            )
            verdicts[drift, name] = finding.verdict
    assert verdicts["corrected", "log_trace"] == verdicts["corrected", "correlation"] == HELD
    assert verdicts["printed", "correlation"] == NOT_HELD
