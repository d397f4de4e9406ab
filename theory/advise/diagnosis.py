"""Judges a network at initialisation: three numbers with their ranges, boundaries, advice."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.training.ranges import MAX_GRADIENT_RATIO, least_keys
from theory.advise.question import Question, with_beta
from theory.signal.backward import gradients
from theory.signal.recursion import forward, layers_of, trace

NO_CHANGE = "nothing: the signal reaches the output and the gradient the input"
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
    with np.errstate(over="ignore", invalid="ignore"):
        answer = _judge(question)
    if not all(np.isfinite(answer["norm"])):
        layer = int(np.flatnonzero(~np.isfinite(answer["norm"]))[0])
        raise UserError(f"the residual stream overflows at layer {layer}: lower its weights.")
    return answer


def _judge(question: Question) -> dict[str, Any]:
    net, length, epsilon = question.architecture, question.length, question.epsilon
    forward_pass = trace(net, *question.inputs)
    layers, gradient = layers_of(forward_pass), gradients(net, forward_pass)
    keys, min_keys = np.exp(layers.entropy), least_keys(length)
    collapsed_layers = np.flatnonzero(layers.cosine[1:] > 1 - epsilon) + 1
    ratio = gradient.ratio
    has_signal = layers.norm[0] > 0 and net.sigma_v2 + net.sigma_2_squared > 0
    faults = {
        "no signal": not has_signal,
        "rank collapse": bool(layers.cosine[-1] > 1 - epsilon),
        "entropy collapse": bool(keys.min() < min_keys),
        "vanishing gradients": ratio < 1 / MAX_GRADIENT_RATIO,
        "exploding gradients": ratio > MAX_GRADIENT_RATIO,
    }
    regimes = [name for name, is_present in faults.items() if is_present]
    alpha_c, beta_c = critical_alpha(question), critical_beta(question)
    beta, alpha = net.beta(length), net.alpha_sa
    answer = {
        "regime": " and ".join(regimes) or "trainable",
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
        "least_keys": min_keys,
        "entropy_fraction": (layers.entropy / math.log(length)).tolist(),
        "gradient": gradient.size.tolist(),
        "gradient_ratio": ratio,
        "gradient_range": [1 / MAX_GRADIENT_RATIO, MAX_GRADIENT_RATIO],
    }
    answer["advice"] = advice(answer, faults)
    answer["next"] = next_steps(answer["advice"])
    return answer


def advice(answer: dict[str, Any], faults: dict[str, bool]) -> list[str]:
    """Returns suggested changes, the most direct first.

    Args:
      answer: the entries "critical_alpha", "critical_beta", "alpha", "alpha_mlp", "beta" and
        "collapse_layer" of an answer.
      faults: whether each regime other than "trainable" applies.
    """
    lines = []
    if faults["no signal"]:
        return ["increase the standard deviation of the weights: no signal passes"]
    if faults["entropy collapse"]:
        if answer["critical_beta"]:
            scale = (answer["critical_beta"] / answer["beta"]) ** 0.5
            lines.append(f"multiply the query and key weights by less than {scale:.3f} each")
        else:
            lines.append("no scale of the scores helps: there are too few tokens")
    alpha_c, alpha = answer["critical_alpha"], answer["alpha"]
    if faults["rank collapse"]:
        if alpha_c is not None and alpha_c > alpha:
            lines.append(
                f"raise alpha from {alpha:g} to above {alpha_c:.3f} (better 1.2 times that)"
            )
            if alpha > 0:
                factor = (alpha / alpha_c) ** 2
                lines.append(f"or multiply the value variance by {factor:.3f}")
        elif answer["alpha_mlp"] > 0:
            lines.append(
                "no alpha of attention helps: the MLP alone makes tokens alike; lower its "
                "variance, or scale its last matrix (--solve depth-scale)"
            )
        else:
            lines.append("no alpha helps: give the MLP a residual (--alpha-mlp)")
        if answer["collapse_layer"] and answer["collapse_layer"] > 1:
            lines.append(f"or use at most {answer['collapse_layer'] - 1} layers")
    if faults["vanishing gradients"] or faults["exploding gradients"]:
        lines.append("scale W_O and W_2 down with depth (--solve depth-scale), or use pre-norm")
    return lines or [NO_CHANGE]


def next_steps(advice: list[str]) -> list[str]:
    """Returns what to try if the start is fine and the loss does not move; [] otherwise."""
    return list(NEXT_STEPS) if advice == [NO_CHANGE] else []


def critical_alpha(question: Question) -> float:
    """Returns the smallest residual weight alpha_SA of attention without rank collapse.

    It is inf if there is none in [0, 1024].
    """
    net = question.architecture

    def excess(alpha: float) -> float:
        """Returns the last cosine minus the cosine at which tokens count as collapsed."""
        layers = forward(net.replace(alpha_sa=alpha), *question.inputs)
        return layers.cosine[-1] - (1 - question.epsilon)

    if excess(1.0) <= 0:
        low = next((x for x in (0.5, 0.25, 0.1, 0.01, 0.0) if excess(x) > 0), None)
        return 0.0 if low is None else edge_of(excess, low, 1.0)
    high = next((2.0**k for k in range(1, 11) if excess(2.0**k) <= 0), None)
    return math.inf if high is None else edge_of(excess, high / 2, high)


def critical_beta(question: Question) -> float:
    """Returns the largest score scale beta at which a query sees enough keys in every layer.

    It is 0 if no beta gives enough keys, and inf if every tested beta does.
    """
    limit = math.log(least_keys(question.length))

    def missing_entropy(beta: float) -> float:
        net = with_beta(question.architecture, beta, question.length)
        return limit - forward(net, *question.inputs).entropy.min()

    betas = (1.0, 2.0, 4.0, 16.0, 64.0)
    first_bad = next((k for k, beta in enumerate(betas) if missing_entropy(beta) > 0), None)
    if first_bad is None:
        return math.inf
    if first_bad == 0 and missing_entropy(0.0) > 0:
        return 0.0
    last_good = betas[first_bad - 1] if first_bad else 0.0
    return edge_of(missing_entropy, betas[first_bad], last_good)


def edge_of(excess: Callable[[float], float], bad: float, good: float) -> float:
    """Returns a point with excess <= 0 next to a change of sign, to a relative precision of 4e-6.

    Chandrupatla's method: inverse quadratic interpolation where it is safe, else bisection.

    Args:
      excess: the function.
      bad: a point with excess > 0.
      good: a point with excess <= 0.
    """
    # The root is between a and b. c is the last point that was dropped. t places the next point.
    a, b, f_a, f_b, t = bad, good, excess(bad), excess(good), 0.5
    for _ in range(60):
        x = a + t * (b - a)
        f = excess(x)
        if (f > 0) == (f_a > 0):
            c, f_c = a, f_a
        else:
            c, b, f_c, f_b = b, a, f_b, f_a
        a, f_a = x, f
        width = 2e-6 * max(abs(a), abs(b), 1e-3)
        if abs(b - a) <= 2 * width:
            break
        xi, phi = (a - b) / (c - b), (f_a - f_b) / (f_c - f_b) if f_c != f_b else 0.5
        if phi**2 < xi and (1 - phi) ** 2 < 1 - xi:
            t = f_a / (f_b - f_a) * f_c / (f_b - f_c)
            t += (c - a) / (b - a) * f_a / (f_c - f_a) * f_b / (f_c - f_b)
        else:
            t = 0.5
        least = width / abs(b - a)
        t = min(1 - least, max(least, t))
    return b if f_b <= 0 else a


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
