"""Lines about where a network starts and what it converges to, from the theories of the papers.

decoder with softmax    rank, entropy and gradients at initialisation (theory.advise)
decoder with mixing     correlations between tokens at initialisation (theory.covariance_sde)
attention paths         the scores of the heads after training (theory.attention_paths)
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.models.attention import mixing_std
from jaxformer.models.attention_paths import AttentionPaths
from jaxformer.models.decoder import Decoder
from jaxformer.studies.anatomy.subject import Subject
from theory import attention_paths, covariance_sde
from theory.advise.diagnosis import judge
from theory.advise.model_architecture import architecture_of
from theory.advise.question import Question

ADVICE_LINES = 2  # the largest number of lines of advice
TRAINABLE = "trainable"  # the regime without a fault
# The covariance SDE: the largest number of tokens, the sampled paths, the time steps.
SDE_TOKENS, SDE_PATHS, SDE_STEPS = 16, 500, 40
# The order parameter: the examples, the largest number of attention paths, the temperature.
PATH_EXAMPLES, MAX_ATTENTION_PATHS, TEMPERATURE = 100, 64, 0.01


def lines(subject: Subject, params: Any = None) -> list[str]:
    """Returns one line for each prediction of the theory of a network.

    The list is empty for networks that no theory describes.

    Args:
      subject: task, network and settings.
      params: the parameters of the trained network, whose attention the theory of attention paths
        takes as given; None if it was not trained.
    """
    model = subject.network.model
    try:
        if isinstance(model, AttentionPaths):
            return [] if params is None else _head_scores(subject, params)
        if isinstance(model, Decoder) and model.spec.mixer == "mixit":
            return _correlations(model.spec, subject.task.length)
        answer = judge(Question(architecture_of(model.spec), max(subject.task.length, 2)))
    except UserError:
        return []
    advice = [] if answer["regime"] == TRAINABLE else answer["advice"][:ADVICE_LINES]
    return [*_ranges(answer), *advice]


def _head_scores(subject: Subject, params: Any) -> list[str]:
    """Returns how much each head is used: by the predicted order parameter and by the weights."""
    model = subject.network.model
    spec = model.spec
    if math.prod(spec.heads) > MAX_ATTENTION_PATHS:
        return []
    batch = subject.network.data.heldout().test
    tokens_BxTxn = jnp.asarray(batch.inputs[:PATH_EXAMPLES])
    targets_B = np.asarray(batch.targets)[:PATH_EXAMPLES, 0]
    is_class = set(np.unique(targets_B)) <= {0, 1}
    labels_B = 2.0 * targets_B - 1 if is_class else targets_B.astype(float)

    def apply(*args, method: str) -> Any:
        return jax.jit(lambda p, *x: model.apply({"params": p}, *x, method=method))(params, *args)

    inputs_BxPxn = np.asarray(apply(tokens_BxTxn, method="attentioned_input"), np.float64)
    weights_PxN = model.apply({"params": params}, inputs_BxPxn.shape[-1], method="path_weights")[0]
    weights_PxN = np.asarray(weights_PxN, np.float64)
    with jax.enable_x64(True):  # in float32 the minimiser does not converge
        predicted = attention_paths.order_parameter(
            inputs_BxPxn, labels_B, spec.widths, TEMPERATURE, spec.heads
        )
        by_theory, by_weights = (
            attention_paths.head_scores(U, spec.heads)
            for U in (predicted.U, weights_PxN @ weights_PxN.T)
        )
    widths = ", ".join(map(str, dict.fromkeys(spec.widths)))
    texts = [
        "Attention paths: the theory (theory.attention_paths) predicts how much a network of width "
        f"{widths} with this attention uses each head, for {len(labels_B)} examples and "
        f"temperature {TEMPERATURE:g}. The most used head has 1."
    ]
    for layer, (predicted_H, trained_H) in enumerate(zip(by_theory, by_weights, strict=True)):
        texts.append(
            f"Heads of block {layer}: {_listed(predicted_H)} by the theory, {_listed(trained_H)} "
            "in the trained weights."
        )
    return texts


def _correlations(spec: Any, length: int) -> list[str]:
    """Returns what the covariance SDE predicts for random mixing of uncorrelated tokens."""
    m = min(length, SDE_TOKENS)
    # The first tokens alone are enough for causal mixing only, which sees no later tokens.
    if m < 2 or (m < length and not spec.causal):
        return []
    scale = _mixing_std(spec)
    mixing = covariance_sde.Mixing(
        causal=spec.causal, heads=spec.heads, output_projection=True, scale=scale
    )
    phi_PxMxM = covariance_sde.predict(
        jax.random.key(0),
        jnp.eye(m),
        spec.layers / spec.width,
        SDE_PATHS,
        SDE_STEPS,
        mixing=mixing,
        width=spec.width,
    )
    rms, spread = sde_numbers(phi_PxMxM)
    return [
        f"Random mixing: after {spec.layers} blocks of width {spec.width}, two tokens that start "
        f"uncorrelated have a correlation of ±{rms:.2f}, and networks differ by a factor of "
        f"{math.exp(spread):.2f} in the mean square of {m} tokens (theory.covariance_sde, for "
        "blocks without residuals, norms and MLPs)."
    ]


def sde_numbers(phi_PxMxM: jax.Array) -> tuple[float, float]:
    """Returns the root mean square correlation of two tokens and the deviation of the log trace."""
    phi = np.asarray(phi_PxMxM, np.float64)
    phi = phi[np.isfinite(phi).all((1, 2))]
    size = np.sqrt(np.diagonal(phi, axis1=1, axis2=2))
    correlation = phi / (size[:, :, None] * size[:, None])
    pairs = np.triu_indices(phi.shape[-1], 1)
    log_trace = np.log(np.trace(phi, axis1=1, axis2=2))
    return float(np.sqrt((correlation[:, *pairs] ** 2).mean())), float(log_trace.std())


def _mixing_std(spec: Any) -> float:
    """Returns the standard deviation of the mixing, its root mean square over the heads.

    With "spread" the heads have standard deviations between two values.
    """
    if spec.mixing_scale != "spread":
        sizes = spec.heads, spec.length, spec.width
        return float(mixing_std(jax.random.key(0), spec.mixing_scale, *sizes)[0])
    low, high = (spec.width // spec.heads * spec.length) ** -0.5, spec.length**-0.5
    # The root mean square of standard deviations that are uniform between low and high.
    return math.sqrt((low**2 + low * high + high**2) / 3)


def _listed(scores_H: Any) -> str:
    return ", ".join(f"{float(score):.2f}" for score in scores_H)


def _ranges(answer: dict[str, Any]) -> list[str]:
    """Returns rank, entropy and gradients with the ranges in which networks train well."""
    cosine, keys, ratio = answer["cosine"][-1], min(answer["keys"]), answer["gradient_ratio"]
    low, high = answer["gradient_range"]
    start = f"At initialisation the network shows {answer['regime']}"
    if answer["regime"] == TRAINABLE:
        start = "At initialisation rank, entropy and gradients are in the trainable range"
    return [
        f"{start} (theory.advise).",
        f"Rank: the cosine of two tokens after the last block is {cosine:.2f}; collapse is above "
        f"{1 - answer['epsilon']:g}.",
        f"Entropy: a query sees {keys:.1f} of {answer['length']} keys in the block with the "
        f"fewest; fewer than {answer['least_keys']:.1f} is entropy collapse.",
        f"Gradients: those of the first block are {_times(ratio)} those of the last; the range is "
        f"{low:g} to {high:g}.",
    ]


def _times(ratio: float) -> str:
    return f"{ratio:.2g} times" if math.isfinite(ratio) else "not finite compared with"
