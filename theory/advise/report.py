"""The answer as text: what is judged first, then the verdict, then what to change."""

from typing import Any


def text(answer: dict[str, Any]) -> str:
    layers, judged = answer["layers"], answer["judged"]
    shown = sorted({0, 1, *(round(layers * k / 6) for k in range(1, 7))})
    low, high = answer["gradient_range"]
    cosine, keys, gradient = answer["cosine"], answer["keys"], answer["gradient"]
    entropy = answer["entropy_fraction"]
    kind = f"{answer['model_type']}: " if answer["model_type"] else ""
    out = [
        f"judged            {kind}{judged}, rho0 = {answer['rho0']:.4g}",
        f"                  {layers} layers, width {answer['width']}, {answer['heads']} heads, "
        f"{answer['length']} tokens",
        *(f"assumed           {line}" for line in _assumed(answer)),
        *_not_met(answer),
        f"regime            {answer['regime']}",
        f"tokens alike      cosine {cosine[-1]:.4f} after the last layer; "
        f"range: at most {1 - answer['epsilon']:g}",
        f"keys seen         {min(keys):.1f} by a query of the narrowest layer; range: at least "
        f"{answer['least_keys']:g}",
        f"gradient          first block / last block {answer['gradient_ratio']:.3g}; range: "
        f"{low:g} to {high:g}",
        f"cosine by layer   {_row(cosine, shown, '.4f')}",
        f"keys by layer     {_row([keys[0], *keys], shown[1:], '.1f')}",
        f"gradient by layer {_row(gradient, shown, '.3g')}",
        f"beta              {answer['beta']:.4f}   (the paper's formula: "
        f"{answer['beta_by_the_papers_formula']:.4f})",
        f"entropy / ln T    first layer {entropy[0]:.4f}, last layer {entropy[-1]:.4f}",
        f"rank collapse     {_side('alpha', answer['critical_alpha'], answer['alpha'])}",
        f"entropy collapse  {_side('beta', answer['critical_beta'], answer['beta'])}",
        f"variances         sigma_V^2 {answer['sigma_v2']:.4g}, sigma_W^2 "
        f"{answer['sigma_w2']:.4g}, sigma_b^2 {answer['sigma_b2']:.4g}",
        *(f"change            {line}" for line in answer["advice"]),
    ]
    if solved := answer.get("solved"):
        beyond = "" if low <= solved["gradient_ratio"] <= high else " (out of range)"
        out.append(
            f"solved            {solved['what']} x {solved['factor']:.4g}: cosine "
            f"{solved['cosine']:.4f}, {solved['keys']:.1f} keys, gradient "
            f"{solved['gradient_ratio']:.3g}{beyond}"
        )
        out += [f"  {place:<15} {line}" for place, line in solved["lines"].items()]
    if checked := answer.get("checked"):
        out.append(
            f"measured          {checked['seeds']} networks: cosine {checked['cosine']:.4f} +- "
            f"{checked['cosine_error']:.4f}, {checked['keys']:.1f} keys, gradient "
            f"{checked['gradient_ratio']:.3g}; predicted {checked['predicted_cosine']:.4f}"
        )
    if widths := answer.get("widths"):
        out += widths["lines"]
    return "\n".join(out)


def _assumed(answer: dict[str, Any]) -> list[str]:
    general = "weights are Gaussian, drawn once a matrix, biases and gains as at the start"
    return [general, *answer["assumptions"]]


def _not_met(answer: dict[str, Any]) -> list[str]:
    """Where a network is too narrow for a theory of wide ones."""
    width, layers = answer["width"], answer["layers"]
    if width >= 8 * layers:
        return []
    return [
        f"not met           a width that is large beside the depth: {width} and {layers} layers"
    ]


def _row(values: list[float], layers: list[int], form: str) -> str:
    return "  ".join(f"{i}: {values[i]:{form}}" for i in layers)


def _side(name: str, edge: float | None, value: float) -> str:
    if edge is None:
        what = "no alpha prevents it" if name == "alpha" else "no beta brings it about"
        return f"{what} ({name}_c infinite)"
    side = "above" if value >= edge else "below"
    return f"{name}_c {edge:.4f}, {name} is {abs(value - edge):.4f} {side} it"
