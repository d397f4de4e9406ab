"""What is asked: an architecture, from a config.json or from flags, and the tokens it reads."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxformer.core.errors import UserError, check_choice
from jaxformer.runtime.command_line import Parser
from jaxformer.training.ranges import EPSILON
from theory.signal import huggingface
from theory.signal.architecture import ACTIVATIONS, Architecture
from theory.signal.recursion import check_length

LARGEST = 1_000_000  # of a width; the recursion itself takes as long as there are layers
SOLVES = ("residual", "init-std", "depth-scale", "layers", "beta")
# What a config.json says itself, so that a flag beside it would be a second answer.
SAID = ("width", "heads", "hidden", "activation", "sigma_v2", "sigma_w2", "sigma_b2")
SAID += ("pre_norm", "causal", "gated", "output_projection")
# What reads a network as it is, and the flags that may stand beside it.
ALONE = {
    "run": ("json", "plot", "force"),
    "model": ("json", "plot", "force", "tokens", "length"),
}


@dataclass(frozen=True)
class Question:
    """A network at initialisation and its input."""

    architecture: Architecture
    length: int
    rho0: float | None = None  # None: what the deviations of the embedding give
    repeat: float = 0.0  # chance that two tokens are the same word
    epsilon: float = EPSILON  # collapsed: cosine > 1 - epsilon
    init_std: float = 0.02
    model_type: str | None = None
    assumptions: tuple[str, ...] = field(default=())


def parse(manual: str | None, argv: Sequence[str]) -> tuple[Any, Question | None]:
    """The flags, and the question they ask; None with --run and --model, which say it all."""
    parser = _parser(manual)
    args = parser.parse_args(argv)
    for name, beside in ALONE.items():
        if getattr(args, name) is not None:
            _check_alone(parser, args, name, beside)
    if args.solve:
        check_choice("--solve", args.solve, SOLVES)
    for flag, value in (("--epsilon", args.epsilon), ("--target-cosine", args.target_cosine)):
        if value is not None and not 0 < value < 1:
            raise UserError(f"{flag} must lie between 0 and 1, both excluded, got {value:g}.")
    if args.target_cosine is None:
        # The scores hardly move the cosine: with them only the keys are asked for.
        args.target_cosine = 1 - args.epsilon if args.solve == "beta" else 0.5
    _check_number("--target-keys", args.target_keys, 1, 1e9)
    if args.rho0 is not None:
        _check_number("--rho0", args.rho0, 0, 1)
    if args.length is not None:
        check_length(args.length, "--length")
    if args.plot:
        from theory.command_output import ENDINGS, check_writable

        check_writable(args.plot, ENDINGS, args.force)
    if args.run or args.model:
        return args, None
    question = _from_config(args) if args.config else _from_flags(args)
    if args.tokens and args.rho0 is not None:
        raise UserError("give --rho0 or --tokens, not both.")
    repeat = repeats(args.tokens) if args.tokens else 0.0
    return args, Question(**question, rho0=args.rho0, repeat=repeat, epsilon=args.epsilon)


def _check_alone(parser: Parser, args, name: str, beside: tuple[str, ...]) -> None:
    others = [n for n, v in vars(args).items() if v != parser.get_default(n)]
    unread = [n for n in others if n not in (name, *beside)]
    if unread:
        what = {"run": "a run's own network", "model": "a model's own weights"}[name]
        flags = ", ".join("a config" if n == "config" else f"--{n}" for n in unread)
        raise UserError(f"--{name} reads {what}: leave out {flags.replace('_', '-')}.")


def _from_config(args) -> dict[str, Any]:
    said = [f"--{n.replace('_', '-')}" for n in SAID if getattr(args, n) not in (None, False)]
    if said:
        raise UserError(f"{', '.join(said)}: the config.json says this itself; change it there.")
    changes = {}
    if args.init_std is not None:
        changes["init_std"] = _check_number("--init-std", args.init_std, 0, 1e3)
    if args.layers is not None:
        changes["layers"] = _check_count("--layers", args.layers)
    reading = huggingface.read(args.config, args.length, **changes)
    if args.tokens and not reading.repeats:
        raise UserError("--tokens counts repeated words, and this model reads images; use --rho0.")
    length = args.length or reading.length
    if length is None:
        raise UserError("the config.json does not say how long inputs are: give --length.")
    assumptions = list(reading.assumptions)
    if args.rho0 is None and reading.repeats and not args.tokens:
        assumptions.append("all words differ (--tokens FILE counts those that repeat)")
    return {
        "architecture": _weighted(reading.architecture, args, check_length(length)),
        "length": length,
        "init_std": reading.init_std,
        "model_type": reading.model_type,
        "assumptions": tuple(assumptions),
    }


def _from_flags(args) -> dict[str, Any]:
    missing = [f"--{x}" for x in ("layers", "width", "length") if getattr(args, x) is None]
    if missing:
        raise UserError(f"expected a config.json or {', '.join(missing)}; see --help.")
    heads, std = (
        1 if args.heads is None else args.heads,
        0.02 if args.init_std is None else args.init_std,
    )
    for name, value in (("layers", args.layers), ("width", args.width), ("heads", heads)):
        _check_count(f"--{name}", value)
    if args.width % heads:
        raise UserError(f"--width must be a multiple of --heads, got {args.width}, {heads}.")
    hidden = args.width if args.hidden is None else _check_count("--hidden", args.hidden)
    _check_number("--init-std", std, 0, 1e3)
    for name in ("sigma_v2", "sigma_w2", "sigma_b2"):
        if getattr(args, name) is not None:
            _check_number(f"--{name.replace('_', '-')}", getattr(args, name), 0, 1e6)
    activation = args.activation or "relu"
    check_choice("--activation", activation, ACTIVATIONS)

    def entry(variance: float | None, fan_in: int) -> float:
        return std if variance is None else (variance / fan_in) ** 0.5

    arch = Architecture(
        layers=args.layers,
        width=args.width,
        heads=heads,
        head_width=args.width // heads,
        mlp_width=hidden,
        std_q=std,
        std_k=std,
        std_v=entry(args.sigma_v2, args.width),
        std_o=std if args.output_projection else None,
        std_1=entry(args.sigma_w2, args.width),
        std_2=entry(args.sigma_w2, hidden),
        std_bias=(args.sigma_b2 or 0.0) ** 0.5,
        score_scale=(args.width // heads) ** -0.5,
        pre_norm=args.pre_norm,
        causal=args.causal,
        gated=args.gated,
        activation=activation,
        norm="rms",
        embed_norm=True,
    )
    assumptions = () if args.rho0 is not None else ("tokens enter orthogonal (--rho0)",)
    return {
        "architecture": _weighted(arch, args, args.length),
        "length": args.length,
        "init_std": std,
        "assumptions": assumptions,
    }


def _weighted(arch: Architecture, args, length: int) -> Architecture:
    """With the residual weights and the beta of the flags."""
    changes = {}
    for flag, name in (("alpha", "alpha_sa"), ("alpha_mlp", "alpha_mlp")):
        if getattr(args, flag) is not None:
            text = f"--{flag.replace('_', '-')}"
            changes[name] = _check_number(text, getattr(args, flag), 0, 1e6)
    arch = arch.replace(**changes)
    return arch if args.beta is None else with_beta(arch, args.beta, length)


def with_beta(arch: Architecture, beta: float, length: int) -> Architecture:
    """Queries and keys of one deviation, such that scores have variance beta^2 ln T."""
    _check_number("--beta", beta, 0, 1e4)
    unit = arch.score_scale**2 * arch.head_width * arch.width**2
    std = (beta**2 * math.log(length) / unit) ** 0.25
    return arch.replace(std_q=std, std_k=std)


def repeats(path: Path) -> float:
    """The chance that two tokens of a file are the same: whole numbers, or words."""
    words = path.read_text(errors="replace").split()
    if len(words) < 2:
        raise UserError(f"{str(path)!r} must hold at least two tokens, got {len(words)}.")
    n = len(words)
    return sum(k * (k - 1) for k in Counter(words).values()) / (n * (n - 1))


def _check_number(flag: str, value: float, low: float, high: float) -> float:
    if not low <= value <= high:
        raise UserError(f"{flag} must be in [{low:g}, {high:g}], got {value:g}.")
    return value


def _check_count(flag: str, value: int) -> int:
    if not 1 <= value <= LARGEST:
        raise UserError(f"{flag} must be a whole number from 1 to {LARGEST}, got {value}.")
    return value


def _parser(manual: str | None) -> Parser:
    parser = Parser(prog="python -m theory.advise", description=manual)
    add = parser.add_argument
    add("config", metavar="CONFIG", nargs="?", type=Path, help="a Hugging Face config.json")
    add("--length", type=int, help="tokens in a sequence (the config's longest)")
    add("--tokens", type=Path, metavar="FILE", help="token ids or text: repeated words count")
    add("--rho0", type=float, help="cosine of the input tokens (from the embedding's deviations)")
    add("--layers", type=int, help="how deep (the config's)")
    add("--width", type=int, help="of the residual stream (the config's)")
    add("--heads", type=int, help="default 1")
    add("--hidden", type=int, help="width of the MLP (that of the model)")
    add("--init-std", type=float, help="of all weight entries (0.02)")
    add("--alpha", type=float, help="residual of attention (1)")
    add("--alpha-mlp", type=float, help="residual of the MLP (1)")
    add("--beta", type=float, help="deviation of the scores / sqrt(ln T)")
    add("--sigma-v2", type=float, help="value variance x fan-in")
    add("--sigma-w2", type=float, help="MLP variance x fan-in")
    add("--sigma-b2", type=float, help="MLP bias variance (0)")
    add("--output-projection", action="store_true", help="a W_O after attention")
    add("--pre-norm", action="store_true", help="norms before the branches, not after")
    add("--causal", action="store_true", help="a query sees no later key")
    add("--gated", action="store_true", help="W_2 (phi(W_gate x) * W_1 x)")
    add("--activation", help="relu (default), gelu, gelu_tanh, quick_gelu, silu, tanh")
    add("--epsilon", type=float, default=EPSILON, help="collapse: cosine > 1 - epsilon")
    add("--solve", metavar="WHAT", help="residual, init-std, depth-scale, layers or beta")
    add("--target-cosine", type=float, help="at most, after the last layer (0.5)")
    add("--target-keys", type=float, default=8.0, help="at least, in every layer (8)")
    add("--check", action="store_true", help="build the network, solved if --solve, and measure")
    add("--width-check", action="store_true", help="predict and measure at .5, 1, 2, 4 widths")
    add("--run", type=Path, metavar="DIR", help="a run of ours, finished or running")
    add("--model", type=Path, metavar="FOLDER", help="config.json and safetensors, or a hub's name")
    add("--json", action="store_true", help="for machines")
    add("--plot", type=Path, metavar="FILE.png", help="draw it by layer (png, pdf, svg)")
    add("--force", action="store_true", help="overwrite the plot")
    return parser
