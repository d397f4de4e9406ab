"""A run of ours: what its network does now and did at the start, beside the prediction.

The run's checkpoints are read and never written. The start is a fresh draw of the same model, not
the run's own seed: averages of wide networks do not tell them apart. Inputs are the run's own test
sequences; what they make of the embedding, rho0 and the norm, is measured and given to the theory.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer import build, capture
from jaxformer.errors import UserError
from jaxformer.loading import load_run
from jaxformer.models.decoder import DecoderSpec
from jaxformer.models.encoder import EncoderSpec
from theory.signal.architecture import Architecture
from theory.signal.recursion import layers_of, trace

SEQUENCES = 32
NUMBERS = ("cosine", "keys", "beta", "gradient")


def look(run: Path) -> dict[str, Any]:
    """By layer: predicted at the start, measured at the start, measured now."""
    model, params, config = load_run(run)
    task = build.task(config)
    inputs = build.source(config, task, batch_size=1).heldout().test.inputs[:SEQUENCES]
    length = inputs.shape[1]
    net = architecture(model.spec, length)
    fresh = model.init(jax.random.key(0), inputs)["params"]
    start, now = (measured(model, weights, inputs) for weights in (fresh, params))
    rho0 = float(np.clip(start["cosine"][0], 0, 1))
    return {
        "run": str(run),
        "judged": net.describe(),
        "length": length,
        "predicted": predicted(net, length, rho0),
        "start": start,
        "now": now,
    }


def predicted(net: Architecture, length: int, rho0: float) -> dict[str, list[float]]:
    """What `measured` measures; of the scores the part that differs from token to token."""
    cells, states, steps = trace(net, length, rho0)
    layers = layers_of(cells, states, steps)
    rows_K = np.where(cells.length_K > 1, cells.count_K, 0)
    spread = [rows_K @ step.seen.s2 / rows_K.sum() for step in steps]
    return {
        "cosine": layers.cosine.tolist(),
        "keys": np.exp(layers.entropy).tolist(),
        "beta": np.sqrt(np.array(spread) / np.log(length)).tolist(),
    }


def architecture(spec: Any, length: int) -> Architecture:
    """The numbers of one of our own networks."""

    def std(value: float | str, fan_in: int) -> float:
        return fan_in**-0.5 if value == "fan_in" else float(value)

    head_width = spec.width // getattr(spec, "heads", 1) if hasattr(spec, "width") else 1
    if isinstance(spec, EncoderSpec):
        entry = lambda variance: (variance / spec.width) ** 0.5  # noqa: E731
        return Architecture(
            layers=spec.layers,
            width=spec.width,
            heads=spec.heads,
            head_width=head_width,
            mlp_width=spec.width,
            std_q=entry(spec.score_std),
            std_k=entry(spec.score_std),
            std_v=entry(spec.sigma_v2),
            std_1=entry(spec.sigma_w2),
            std_2=entry(spec.sigma_w2),
            std_bias=spec.sigma_b2**0.5,
            score_scale=head_width**-0.5,
            alpha_sa=spec.alpha_sa,
            alpha_mlp=spec.alpha_mlp,
            causal=spec.causal,
            activation=spec.activation,
            norm="rms",
            std_position=1.0,
            embed_norm=True,
        )
    if not isinstance(spec, DecoderSpec) or spec.mixer != "softmax" or not spec.use_norm:
        what = getattr(spec, "mixer", type(spec).__name__)
        raise UserError(f"--run judges encoders and softmax decoders with norms, got {what!r}.")
    if not spec.use_mlp or spec.branch_scale != 1:
        raise UserError("--run judges decoders with MLPs and branch_scale=1.")
    return Architecture(
        layers=spec.layers,
        width=spec.width,
        heads=spec.heads,
        head_width=head_width,
        mlp_width=spec.mlp_width,
        std_q=std(spec.qk_init_std, spec.width),
        std_k=std(spec.qk_init_std, spec.width),
        std_v=std(spec.init_std, spec.width),
        std_o=std(spec.init_std, spec.width),
        std_1=std(spec.init_std, spec.width),
        std_2=std(spec.init_std, spec.mlp_width),
        score_scale=head_width**-0.5,
        alpha_sa=spec.residual_scale,
        alpha_mlp=spec.residual_scale,
        pre_norm=True,
        norm="rms",
        eps=1e-6,
        causal=spec.causal,
        gated=True,
        activation=spec.act,
        rotary=1.0,
        std_embed=spec.embed_init_std,
        std_position=spec.embed_init_std if spec.learned_positions else 0.0,
    )


def measured(model: Any, params: Any, inputs: Any) -> dict[str, list[float]]:
    """Cosine of different tokens of a sequence, keys, beta and gradient of every layer."""
    states, weights = r"block_\d+/(states|output)", r"block_\d+/attn/weights"
    found = capture.capture(model, params, inputs, names=[states, weights])
    layers = model.spec.layers
    ends = [next(v for k, v in found.items() if k in _states(i)) for i in range(layers)]
    rows = [found[f"block_{i}/attn/weights"] for i in range(layers)]
    return {
        "cosine": [_embedded(model, params, inputs), *(_cosine(x) for x in ends)],
        "keys": [float(jnp.exp(jnp.mean(jnp.sum(jax.scipy.special.entr(a), -1)))) for a in rows],
        "beta": [_beta(a, model.spec.causal) for a in rows],
        "gradient": _gradients(model, params, inputs),
    }


def _states(i: int) -> tuple[str, str]:
    return f"block_{i}/states", f"block_{i}/output"


def _embedded(model, params, inputs) -> float:
    table = params["embed"]["embedding"][inputs]
    if "positions" in params:
        table = table + params["positions"]["embedding"][None, : inputs.shape[1]]
    return _cosine(table)


def _cosine(x_BxTxN) -> float:
    norm = jnp.sqrt(jnp.sum(jnp.square(x_BxTxN), -1, keepdims=True))
    unit = x_BxTxN / jnp.maximum(norm, jnp.finfo(x_BxTxN.dtype).tiny)
    T = unit.shape[1]
    return float(jnp.mean((jnp.sum(jnp.sum(unit, 1) ** 2, -1) - T) / (T * (T - 1))))


def _beta(weights_BxHxTxT, causal: bool) -> float:
    """The deviation of the scores that a row's weights show, / sqrt(ln T)."""
    a = np.asarray(weights_BxHxTxT, float)
    seen = np.tril(np.ones(a.shape[-2:], bool)) if causal else np.ones(a.shape[-2:], bool)
    log = np.log(np.maximum(a, 1e-30))
    count = seen.sum(-1)
    mean = np.sum(np.where(seen, log, 0), -1) / count
    square = np.sum(np.where(seen, (log - mean[..., None]) ** 2, 0), -1)
    spread = square[..., count > 1] / (count[count > 1] - 1)
    return float(np.sqrt(spread.mean() / np.log(a.shape[-1])))


def _gradients(model, params, inputs) -> list[float]:
    """What every block's last matrix receives from a random direction of the logits, last = 1."""

    def logits(params):
        return model.apply({"params": params}, inputs)

    out, back = jax.vjp(logits, params)
    (gradient,) = back(jax.random.normal(jax.random.key(1), out.shape, out.dtype))
    last = [gradient[f"block_{i}"]["attn"]["value"]["kernel"] for i in range(model.spec.layers)]
    sizes = [float(jnp.sqrt(jnp.mean(jnp.square(g)))) for g in last]
    return [size / sizes[-1] if sizes[-1] else 0.0 for size in sizes]


def text(found: dict[str, Any]) -> str:
    """A table, a layer a row."""
    out = [f"judged            {found['run']}: {found['judged']}, {found['length']} tokens"]
    out.append("layer   cosine: predicted, start, now    keys: predicted, start, now    ")
    out[-1] += "beta: predicted, start, now    gradient of W_V: start, now"
    plan, start, now = found["predicted"], found["start"], found["now"]
    for layer in range(len(plan["keys"]) + 1):
        cells = [f"{part['cosine'][layer]:8.4f}" for part in (plan, start, now)]
        if layer:
            for name, form in (("keys", "9.2f"), ("beta", "9.3f")):
                cells += [f"{part[name][layer - 1]:{form}}" for part in (plan, start, now)]
            cells += [f"{part['gradient'][layer - 1]:9.3g}" for part in (start, now)]
        out.append(f"{layer:5d}   {' '.join(cells)}")
    return "\n".join(out)


def draw(found: dict[str, Any], path: Path, quiet: bool) -> None:
    """Cosine and keys by layer, three lines each."""
    from theory.command import BLUE, ORANGE, RED, new_figure, save_figure

    figure, axes = new_figure(2, 10, 4.2)
    for axis, name in zip(axes, ("cosine", "keys")):
        for kind, colour, mark in (
            ("predicted", BLUE, "-"),
            ("start", ORANGE, "o"),
            ("now", RED, "s"),
        ):
            values = found[kind][name]
            first = 0 if name == "cosine" else 1
            axis.plot(np.arange(first, first + len(values)), values, mark, color=colour, label=kind)
        axis.set(xlabel="layer", ylabel=name)
    axes[0].legend()
    axes[0].set_title(found["judged"], fontsize=8)
    save_figure(figure, path, quiet=quiet)
