"""Will this encoder train? The answer of signal propagation at initialisation, in seconds.

    python -m theory.advise --layers 60 --width 768 --heads 12 --length 512 --alpha 1.0
    python -m theory.advise path/to/config.json            a BERT-like Hugging Face model
    python -m theory.advise --layers 60 --width 600 --length 64 --sigma-v2 0.2 --sigma-w2 0.2 --json

Rank collapse: after the last layer all tokens are equal (cosine > 1 - epsilon). Entropy collapse:
a row of attention holds only a few tokens (beta > beta_c(0) = sqrt 2). The theory is of a post-norm
encoder with weighted residuals (arXiv 2505.24333), exact at finite T, in the limit of large width.

beta = std^2 width / sqrt(ln T): the paper's B.1 has d_head for width, too low by the number of
heads. sigma_V^2, sigma_W^2 are variances x fan-in, by default init-std^2 x width; the value
variance decides how strong attention is beside its residual, so it is never set to 1 in silence.
"""

import json
from pathlib import Path

import jax
import numpy as np

from jaxformer.commandline import Parser
from jaxformer.errors import UserError, unknown
from theory.activations import ACTIVATIONS
from theory.command import BLUE, ORANGE, RED, check_writable, new_figure, run, save_figure
from theory.numerics import check_count, check_range
from theory.signal import Block, critical_alpha, effective_beta, effective_beta_paper
from theory.signal.network import predict

# Post-norm encoders with an output projection after attention.
MODEL_TYPES = ("bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta")
ALIASES = {"dim": "hidden_size", "n_heads": "num_attention_heads", "n_layers": "num_hidden_layers"}
BLOCK_FIELDS = ("alpha_mlp", "sigma_v2", "sigma_w2", "sigma_b2")


def main(arguments: list[str] | None = None) -> None:
    args = _parse(arguments)
    names = ("layers", "width", "heads", "length", "init_std", "rho0", "epsilon")
    answer = advise(block=_block(args), **{name: getattr(args, name) for name in names})
    print(json.dumps(answer) if args.json else _text(answer))
    if args.plot:
        _plot(answer, args.plot, quiet=args.json)


def advise(
    *,
    layers: int,
    width: int,
    heads: int,
    length: int,
    init_std: float,
    block: Block,
    rho0: float = 0.0,
    epsilon: float = 0.01,
) -> dict:
    """The regime, the cosine by depth, the distance to each boundary and what to change."""
    beta, alpha = float(block.beta), float(block.alpha_sa)
    signal = jax.tree.map(np.asarray, predict(block, layers, length, rho0))
    edge = float(critical_alpha(beta, block, layers, length, epsilon))
    collapsed = np.flatnonzero(signal.cosine > 1 - epsilon)
    beta_c = 2**0.5
    rank, entropy = bool(signal.cosine[-1] > 1 - epsilon), beta > beta_c
    regimes = ["rank collapse"] * rank + ["entropy collapse"] * entropy
    return {
        "regime": " and ".join(regimes) or "trainable",
        "layers": layers,
        "width": width,
        "heads": heads,
        "length": length,
        "init_std": init_std,
        "beta": beta,
        "beta_by_the_papers_formula": float(effective_beta_paper(init_std, width // heads, length)),
        "critical_beta": beta_c,
        "beta_to_boundary": beta_c - beta,
        "alpha": alpha,
        # JSON has no infinity: null says that no alpha works.
        "critical_alpha": edge if np.isfinite(edge) else None,
        "alpha_to_boundary": alpha - edge if np.isfinite(edge) else None,
        **{name: float(getattr(block, name)) for name in BLOCK_FIELDS},
        "activation": str(block.activation),
        "epsilon": epsilon,
        "collapse_layer": int(collapsed[0]) if len(collapsed) else None,
        "cosine": [float(x) for x in signal.cosine],
        "entropy_fraction": [float(x) for x in signal.entropy / np.log(length)],
        "advice": _advice(rank, entropy, edge, alpha, beta, collapsed, layers),
    }


def _advice(rank, entropy, edge, alpha, beta, collapsed, layers) -> list[str]:
    lines = []
    if entropy:
        scale = (2**0.5 / beta) ** 0.5
        lines.append(
            f"multiply the query and key weights by less than {scale:.3f} each (beta by less than "
            f"{scale**2:.3f})"
        )
    if rank and np.isfinite(edge) and edge > alpha:
        lines.append(f"raise alpha from {alpha:g} to above {edge:.3f} (better 1.2 times that)")
        if alpha > 0:
            factor = (alpha / edge) ** 2
            lines.append(f"or multiply the value variance by {factor:.3f} (alpha counts beside it)")
    elif rank and not np.isfinite(edge):
        lines.append("no alpha helps: give the MLP a residual (--alpha-mlp) or lower its variance")
    if rank and len(collapsed) and 1 < collapsed[0] <= layers:
        lines.append(f"or use at most {collapsed[0] - 1} layers: these do not collapse")
    return lines or ["nothing: the initial signal reaches the last layer"]


# Input -------------------------------------------------------------------------------------------


def _parse(arguments):
    parser = Parser(prog="python -m theory.advise", description=__doc__)
    parser.add_argument("config", nargs="?", type=Path, help="a Hugging Face config.json")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--width", type=int)
    parser.add_argument("--heads", type=int, default=None, help="default 1")
    parser.add_argument("--length", type=int, help="tokens in a sequence")
    parser.add_argument("--init-std", type=float, help="of all weight entries (0.02)")
    parser.add_argument("--alpha", type=float, default=1.0, help="residual of attention (1)")
    parser.add_argument("--alpha-mlp", type=float, default=1.0, help="residual of the MLP (1)")
    parser.add_argument("--beta", type=float, help="in place of init-std^2 width / sqrt(ln T)")
    parser.add_argument("--sigma-v2", type=float, help="value variance x fan-in")
    parser.add_argument("--sigma-w2", type=float, help="MLP variance x fan-in")
    parser.add_argument("--sigma-b2", type=float, default=0.0, help="MLP bias variance (0)")
    parser.add_argument("--output-projection", action="store_true", help="a W_O after attention")
    parser.add_argument("--activation", help="relu (default), tanh, gelu")
    parser.add_argument("--rho0", type=float, default=0.0, help="cosine of the input tokens (0)")
    parser.add_argument("--epsilon", type=float, default=0.01, help="collapse: rho > 1 - epsilon")
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the cosine by depth")
    parser.add_argument("--force", action="store_true", help="overwrite the plot")
    args = parser.parse_args(arguments)
    args.hidden = None
    if args.config:
        for name, value in _read_config(args.config).items():
            if getattr(args, name) is None or name == "output_projection":
                setattr(args, name, value)
    for name, value in {"heads": 1, "init_std": 0.02, "activation": "relu"}.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    missing = [f"--{x}" for x in ("layers", "width", "length") if getattr(args, x) is None]
    if missing:
        raise UserError(f"expected a config.json or {', '.join(missing)}; see --help.")
    _check(args)
    return args


def _check(args) -> None:
    for name, low in (("layers", 1), ("width", 1), ("heads", 1), ("length", 2)):
        check_count(f"--{name}", getattr(args, name), low)
    if args.width % args.heads:
        raise UserError(f"--width must be a multiple of --heads, got {args.width}, {args.heads}.")
    for name in ("init_std", "alpha", "alpha_mlp", "beta", "sigma_v2", "sigma_w2", "sigma_b2"):
        if getattr(args, name) is not None:
            check_range(f"--{name.replace('_', '-')}", getattr(args, name), 0)
    for name in ("rho0", "epsilon"):
        check_range(f"--{name}", getattr(args, name), 0, 1)
    if args.activation not in ACTIVATIONS:
        raise unknown("--activation", args.activation, ACTIVATIONS)
    if args.plot:
        check_writable(args.plot, ".png", args.force)


def _read_config(path: Path) -> dict:
    """What a BERT-like config.json says, under the names of the flags."""
    try:
        config = json.loads(path.read_text())
    except OSError as error:
        raise UserError(f"cannot read {str(path)!r}: {error.strerror}.") from None
    except ValueError as error:
        raise UserError(f"{str(path)!r} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise UserError(f"{str(path)!r} must hold a JSON object with a model_type.")
    kind = config.get("model_type")
    if kind not in MODEL_TYPES:
        raise unknown("model_type (a post-norm encoder is expected)", str(kind), MODEL_TYPES)
    config |= {new: config[old] for old, new in ALIASES.items() if old in config}
    found = {}
    for name, field in (
        ("layers", "num_hidden_layers"),
        ("width", "hidden_size"),
        ("heads", "num_attention_heads"),
        ("length", "max_position_embeddings"),
    ):
        if not isinstance(config.get(field), int):
            raise UserError(f"{str(path)!r} needs a whole number {field}, got {config.get(field)}.")
        found[name] = config[field]
    found["init_std"] = config.get("initializer_range", 0.02)
    found["activation"] = config.get("hidden_act", config.get("activation", "gelu"))
    found["hidden"] = config.get("intermediate_size", config.get("hidden_dim", 4 * found["width"]))
    for name in ("init_std", "hidden"):
        if not isinstance(found[name], int | float) or isinstance(found[name], bool):
            raise UserError(f"{str(path)!r}: expected a number, got {found[name]!r}.")
    return found | {"output_projection": True}


def _block(args) -> Block:
    fan_in = args.init_std**2 * args.width
    beta = args.beta
    if beta is None:
        beta = float(effective_beta(args.init_std, args.width, args.length))
    sigma_v2 = fan_in if args.sigma_v2 is None else args.sigma_v2
    if args.output_projection:
        sigma_v2 *= fan_in
    sigma_w2, sigma_u2 = args.sigma_w2, None
    if sigma_w2 is None:
        sigma_w2 = fan_in
        sigma_u2 = args.init_std**2 * args.hidden if args.hidden else None
    variances = (sigma_v2, sigma_w2, args.sigma_b2)
    return Block(beta, args.alpha, args.alpha_mlp, *variances, args.activation, sigma_u2)


# Output ------------------------------------------------------------------------------------------


def _text(answer: dict) -> str:
    edge, layers = answer["critical_alpha"], answer["layers"]
    shown = sorted({0, 1, *(round(layers * k / 6) for k in range(1, 7))})
    cosine = "  ".join(f"{i}: {answer['cosine'][i]:.4f}" for i in shown)
    entropy = answer["entropy_fraction"]
    boundary = "no alpha prevents it (alpha_c infinite)"
    if edge is not None:
        gap = answer["alpha_to_boundary"]
        side = "above" if gap >= 0 else "below"
        boundary = f"alpha_c {edge:.4f}, alpha is {abs(gap):.4f} {side} it"
    side = "below" if answer["beta_to_boundary"] >= 0 else "above"
    return "\n".join(
        [
            f"regime            {answer['regime']}",
            f"beta              {answer['beta']:.4f}   (the paper's formula: "
            f"{answer['beta_by_the_papers_formula']:.4f})",
            f"cosine by layer   {cosine}",
            f"entropy / ln T    first layer {entropy[0]:.4f}, last layer {entropy[-1]:.4f}",
            f"rank collapse     {boundary}",
            f"entropy collapse  beta_c {answer['critical_beta']:.4f}, beta is "
            f"{abs(answer['beta_to_boundary']):.4f} {side} it",
            f"variances         sigma_V^2 {answer['sigma_v2']:.4g}, sigma_W^2 "
            f"{answer['sigma_w2']:.4g}, sigma_b^2 {answer['sigma_b2']:.4g}",
            *(f"change            {line}" for line in answer["advice"]),
        ]
    )


def _plot(answer: dict, path: Path, quiet: bool) -> None:
    figure, (axis,) = new_figure(1, 6.6, 4.4)
    layers = np.arange(answer["layers"] + 1)
    axis.plot(layers, answer["cosine"], color=BLUE, lw=2, label=r"cosine of two tokens, $\rho$")
    look = {"color": ORANGE, "lw": 2, "ls": "-.", "label": r"attention entropy / $\ln T$"}
    axis.plot(layers[1:], answer["entropy_fraction"], **look)
    axis.axhline(1 - answer["epsilon"], color=RED, ls="--", label=r"collapse, $1-\epsilon$")
    edge = answer["critical_alpha"]
    alpha_c = r"\infty" if edge is None else f"{edge:.3f}"
    axis.set(
        xlabel="layer",
        ylabel="cosine, fraction of entropy",
        ylim=(0, 1.03),
        title=f"{answer['regime'].capitalize()}: $\\alpha={answer['alpha']:g}$, "
        f"$\\alpha_c={alpha_c}$, $\\beta={answer['beta']:.3g}$",
    )
    axis.legend(loc="center right")
    save_figure(figure, path, quiet=quiet)


if __name__ == "__main__":
    run(main)
