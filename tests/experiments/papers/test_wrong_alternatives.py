"""Rules that reject a known wrong alternative of their claim."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.ledger.rules import HELD, NOT_HELD
from experiments.papers.mixit.claims_theory import follow_sde
from experiments.papers.mixit.sde_paths import ks, quantities
from experiments.papers.two_failure_modes import claims_weight_laws, weight_laws
from jaxformer.models.encoder import EncoderSpec
from jaxformer.stats.differences import Number
from theory import covariance_sde as cs

N_PATHS = 48_000  # equal distributions are then .006 apart, where .021 would be too far
# The error of a distance, as experiments/ledger/judging.py counts it.
ERROR = 1.358 / 1.96 * (2 / N_PATHS) ** 0.5


@dataclass(frozen=True)
class Printed(cs.Euler):
    """The SDE of Theorem 2.1 as printed, which adds the drift to every entry of Phi."""

    def step(self, phi_MxM, unused_w_MxM, z_MxM, dt, mixing, kappa):
        corrected = super().step(phi_MxM, unused_w_MxM, z_MxM, dt, mixing, kappa)
        b = kappa * (jnp.trace(phi_MxM) / len(phi_MxM) - phi_MxM.mean())
        return corrected + b * dt * (1 - jnp.eye(len(phi_MxM)))


@pytest.mark.slow
def test_the_printed_drift_fails_theorem_2_1_in_the_correlation_only():
    with jax.enable_x64(True):
        phi = jnp.eye(4) * 0.7 + 0.3
        keys = jax.random.split(jax.random.key(0), 3)
        paths = [
            cs.predict(key, phi, 1.0, N_PATHS, 25, solver=solver)[:, None]
            for key, solver in zip(keys, (cs.Euler(), cs.Euler(), Printed()), strict=True)
        ]
        with np.errstate(invalid="ignore"):  # Euler's long steps take paths out of the cone
            law, corrected, printed = map(quantities, paths)
    verdicts = {}  # Euler's steps on all sides, so only the drift differs
    for name in ("log_trace", "correlation"):
        for drift, other in (("corrected", corrected), ("printed", printed)):
            distance = Number(
                ks(*(v[name][np.isfinite(v[name])] for v in (law, other))), test=ERROR
            )
            finding = follow_sde(name).judge(
                "", lambda side, d=distance: d if side.metric else Number(side.value)
            )
            verdicts[drift, name] = finding.verdict
    assert verdicts["corrected", "log_trace"] == verdicts["corrected", "correlation"] == HELD
    assert verdicts["printed", "correlation"] == NOT_HELD


def test_uniform_weights_of_a_third_of_the_variance_fail_the_rules_on_the_distribution_of_weights():
    keys_S = jax.random.split(jax.random.key(0), 6)
    spec = EncoderSpec(
        vocab_size=0, length=16, width=64, layers=12, heads=1, beta=1.8, dtype=jnp.float32
    )
    uniform = weight_laws.LAWS["uniform"]

    def measured(law):
        betas_S = weight_laws.crossing_betas(keys_S, 64, 64, 1, law)
        cosine_S = np.asarray(weight_laws.deep_cosines(keys_S, spec, law))[:, -1]
        means = (Number(float(v.mean()), 0.01, 6) for v in (betas_S, cosine_S))
        return dict(zip((claims_weight_laws.CONDENSED, "cosine"), means, strict=True))

    normal, right, wrong = map(
        measured, (weight_laws.LAWS["normal"], uniform, lambda z: uniform(z) / 3**0.5)
    )
    for name, sentence in (("cosine", "12 layers"), (claims_weight_laws.CONDENSED, "with uniform")):
        rules = claims_weight_laws.LAW.rules
        text = next(t for t in rules if sentence in t and "uniform" in t)
        verdicts = []
        for values in (right, wrong):
            sides = {"normal": normal[name], "uniform": values[name]}
            finding = rules[text].judge(text, lambda s, n=sides: n[s.metric.partition("law=")[2]])
            verdicts.append(finding.verdict)
        assert verdicts == [HELD, NOT_HELD], (text, normal, right, wrong)
