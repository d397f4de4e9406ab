"""Judges a network at initialisation: three numbers with their ranges, boundaries, advice."""

import math
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.training.ranges import MAX_GRADIENT_RATIO, least_keys
from theory.advise.advice import NO_CHANGE, advice
from theory.advise.boundaries import critical_alpha, critical_beta
from theory.advise.faults import Start, examine
from theory.advise.question import Question

NEXT_STEPS = (
    "the start is fine; if the loss does not move, look at training:",
    "a warm-up of 1 to 5 % of the steps, and learning rates 1e-4, 1e-3 and 1e-2",
    "--check builds the network and measures these numbers",
    "train.signal=True (jaxformer.train: signal=True) logs them for each layer during training",
)


def judge(question: Question) -> dict[str, Any]:
    """Returns the answer as a dict that can be written as JSON.

    Args:
      question: the network and its input.

    Returns:
      "regime" ("trainable" or the names of what is wrong), the description of the network, the
      boundaries alpha_c (`critical_alpha`) and beta_c (`critical_beta`), cosine, norm, keys,
      entropy and gradient by layer with their ranges, "advice", and "next" if nothing is wrong.
      Infinite boundaries are None.

    Example:
      >>> args, question = theory.advise.question.parse("", ["config.json", "--length", "128"])
      >>> judge(question)["regime"]
      'trainable'
    """
    start = examine(question)
    if not all(np.isfinite(start.layers.norm)):
        layer = int(np.flatnonzero(~np.isfinite(start.layers.norm))[0])
        raise UserError(f"the residual stream overflows at layer {layer}: lower its weights.")
    with np.errstate(over="ignore", invalid="ignore"):
        return _answer(question, start)


def _answer(question: Question, start: Start) -> dict[str, Any]:
    net, length, epsilon = question.architecture, question.length, question.epsilon
    layers, gradient, keys = start.layers, start.gradient, start.keys
    collapsed_layers = np.flatnonzero(layers.cosine[1:] > 1 - epsilon) + 1
    alpha_c, beta_c = critical_alpha(question), critical_beta(question)
    beta, alpha = net.beta(length), net.alpha_sa
    answer = {
        "regime": " and ".join(start.faults) or "trainable",
        "model_type": question.model_type,
        "judged": net.describe(),
        "layers": net.layers,
        "width": net.width,
        "heads": net.heads,
        "length": length,
        "init_std": question.init_std,
        "rho0": float(layers.cosine[0]),
        "assumptions": list(question.assumptions),
        "beta": beta,
        # The paper's formula has the width of a head in place of the width.
        "beta_by_the_papers_formula": beta / net.heads,
        # JSON has no infinity: null means that there is no boundary.
        "critical_beta": _finite(beta_c),
        "beta_to_boundary": _finite(beta_c - beta),
        "alpha": alpha,
        "critical_alpha": _finite(alpha_c),
        "alpha_to_boundary": _finite(alpha - alpha_c),
        "alpha_mlp": net.alpha_mlp,
        "sigma_v2": net.sigma_v2,
        "sigma_w2": net.sigma_1_squared,
        "sigma_b2": net.std_bias**2,
        "activation": net.activation,
        "epsilon": epsilon,
        "collapse_layer": int(collapsed_layers[0]) if len(collapsed_layers) else None,
        "cosine": layers.cosine.tolist(),
        "norm": layers.norm.tolist(),
        "keys": keys.tolist(),
        "least_keys": least_keys(length),
        "entropy_fraction": (layers.entropy / math.log(length)).tolist(),
        "gradient": gradient.size.tolist(),
        "gradient_ratio": gradient.ratio,
        "gradient_range": [1 / MAX_GRADIENT_RATIO, MAX_GRADIENT_RATIO],
    }
    answer["advice"] = advice(question, start)
    answer["next"] = next_steps(answer["advice"])
    return answer


def next_steps(advice: list[str]) -> list[str]:
    """Returns what to try if the start is fine and the loss does not move; [] otherwise."""
    return list(NEXT_STEPS) if advice == [NO_CHANGE] else []


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
