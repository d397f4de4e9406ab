"""Parses the command line of the advisor to a `Question`: a network and its input."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxformer.core.errors import UserError, check_choice
from jaxformer.runtime.command_line import Parser
from jaxformer.training.ranges import COLLAPSE_DISTANCE
from theory.advise.input_tokens import repeat_probability
from theory.checks import check_count, check_range
from theory.signal import huggingface
from theory.signal.architecture import ACTIVATIONS, Architecture
from theory.signal.recursion import check_length

MAX_SIZE = 1_000_000  # largest width, number of heads or number of layers
# Values of --solve: the quantities that the advisor can change to meet a target.
SOLVES = ("residual", "init-std", "depth-scale", "layers", "beta")
# Flags that a config.json already determines.
CONFIG_FLAGS = ("width", "heads", "hidden", "activation", "sigma_v2", "sigma_w2", "sigma_b2")
CONFIG_FLAGS += ("pre_norm", "causal", "gated", "output_projection")
# Flags that select an existing network, and the other flags that are allowed with each.
EXISTING_NETWORK_FLAGS = {
    "run": ("json", "plot", "force"),
    "model": ("json", "plot", "force", "tokens", "length"),
}


@dataclass(frozen=True)
class Question:
    """A network at initialisation and its input."""

    architecture: Architecture
    length: int
    rho0: float | None = None  # cosine of input tokens; None: from the embedding's variances
    repeat: float = 0.0  # probability that two input tokens are the same
    epsilon: float = COLLAPSE_DISTANCE  # tokens have collapsed if their cosine exceeds 1 - epsilon
    init_std: float = 0.02  # the number that --solve init-std multiplies
    model_type: str | None = None
    assumptions: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[int, float | None, float]:
        """The arguments (length, rho0, repeat) of `theory.signal.forward`."""
        return self.length, self.rho0, self.repeat


def parse(manual: str | None, argv: Sequence[str]) -> tuple[Any, Question | None]:
    """Returns the parsed flags and the question. The question is None with --run and --model.

    Args:
      manual: the text of --help.
      argv: the arguments of the command.
    """
    parser = _parser(manual)
    args = parser.parse_args(argv)
    if args.config and not args.config.exists() and args.config.suffix != ".json":
        args.config = _published(args.config)
    if args.config and args.config.is_dir():
        _read_folder(args)
    for name, allowed in EXISTING_NETWORK_FLAGS.items():
        if getattr(args, name) is not None:
            _check_other_flags(parser, args, name, allowed)
    if args.solve:
        check_choice("--solve", args.solve, SOLVES)
    for flag, value in (("--epsilon", args.epsilon), ("--target-cosine", args.target_cosine)):
        if value is not None and not 0 < value < 1:
            raise UserError(f"{flag} must lie between 0 and 1, both excluded, got {value:g}.")
    if args.target_cosine is None:
        # beta hardly changes the cosine, so --solve beta only requires that tokens do not collapse.
        args.target_cosine = 1 - args.epsilon if args.solve == "beta" else 0.5
    check_range("--target-keys", args.target_keys, 1, 1e9)
    if args.rho0 is not None:
        check_range("--rho0", args.rho0, 0, 1)
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
    repeat = 0.0
    if args.tokens:
        repeat, is_text = _repeat_probability_of_file(args.tokens)
        if is_text:
            assumption = f"each word of {args.tokens} is a token (--model reads its tokenizer)"
            question["assumptions"] = (*question["assumptions"], assumption)
    return args, Question(**question, rho0=args.rho0, repeat=repeat, epsilon=args.epsilon)


def _published(name: Path) -> Path:
    """Finds "package:NAME" or a name on the hub, which `jaxformer.load` takes too."""
    from jaxformer import loading  # imports jax, which takes longer than an answer

    path = loading.published(str(name))
    if path is None:
        raise UserError(
            f"there is no {str(name)!r}: expected a config.json, the folder of a run or a model, a "
            "GGUF file, package:NAME or a name on the hub."
        )
    return path


def _read_folder(args) -> None:
    """Turns CONFIG, a folder, into --run FOLDER if it is a run, else into FOLDER/config.json."""
    file = args.config / "config.json"
    if not file.is_file():
        raise UserError(
            f"{args.config} has no config.json: expected the folder of a run or of a published "
            "model, or a config.json."
        )
    if '"config_hash"' in file.read_text(errors="replace"):
        args.run, args.config = args.config, None
    else:
        args.config = file


def _check_other_flags(parser: Parser, args, name: str, allowed: tuple[str, ...]) -> None:
    """Raises UserError if the user gave a flag other than `name` and the `allowed` ones."""
    given = [n for n, value in vars(args).items() if value != parser.get_default(n)]
    refused = [n for n in given if n not in (name, *allowed)]
    if refused:
        network = {"run": "a run's own network", "model": "a model's own weights"}[name]
        flags = ", ".join("a config" if n == "config" else f"--{n}" for n in refused)
        raise UserError(f"--{name} reads {network}: leave out {flags.replace('_', '-')}.")


def _from_config(args) -> dict[str, Any]:
    """Returns fields of a `Question` from a config.json and the flags that change it."""
    given = [n for n in CONFIG_FLAGS if getattr(args, n) not in (None, False)]
    if given:
        flags = ", ".join(f"--{n.replace('_', '-')}" for n in given)
        raise UserError(f"{flags}: the config.json already has this; change it there.")
    if args.init_std is not None:
        check_range("--init-std", args.init_std, 0, 1e3)
    if args.layers is not None:
        check_count("--layers", args.layers, 1, MAX_SIZE)
    changes = {"init_std": args.init_std, "layers": args.layers}
    reading = huggingface.read_config(args.config, args.length, **changes)
    if args.tokens and not reading.is_text:
        raise UserError("--tokens counts repeated tokens, but this model reads images; use --rho0.")
    length = args.length or reading.length
    if length is None:
        raise UserError("the config.json has no longest sequence: give --length.")
    assumptions = list(reading.assumptions)
    if args.length is None:
        assumptions.append(f"{length} tokens, the config's longest sequence (--length changes it)")
    if args.rho0 is None and reading.is_text and not args.tokens:
        assumptions.append("all tokens differ (--tokens FILE counts repeated ones)")
    return {
        "architecture": _with_flags(reading.architecture, args, check_length(length)),
        "length": length,
        "init_std": reading.init_std,
        "model_type": reading.model_type,
        "assumptions": tuple(assumptions),
    }


def _from_flags(args) -> dict[str, Any]:
    """Returns fields of a `Question` from flags alone."""
    missing = [f"--{x}" for x in ("layers", "width", "length") if getattr(args, x) is None]
    if missing:
        raise UserError(f"expected a config.json or {', '.join(missing)}; see --help.")
    heads = 1 if args.heads is None else args.heads
    hidden = args.width if args.hidden is None else args.hidden
    std = 0.02 if args.init_std is None else args.init_std
    sizes = {"layers": args.layers, "width": args.width, "heads": heads, "hidden": hidden}
    for name, value in sizes.items():
        check_count(f"--{name}", value, 1, MAX_SIZE)
    if args.width % heads:
        raise UserError(f"--width must be a multiple of --heads, got {args.width}, {heads}.")
    check_range("--init-std", std, 0, 1e3)
    for name in ("sigma_v2", "sigma_w2", "sigma_b2"):
        if getattr(args, name) is not None:
            check_range(f"--{name.replace('_', '-')}", getattr(args, name), 0, 1e6)
    activation = args.activation or "relu"
    check_choice("--activation", activation, ACTIVATIONS)

    def entry_std(variance: float | None, fan_in: int) -> float:
        return std if variance is None else (variance / fan_in) ** 0.5

    arch = Architecture(
        layers=args.layers,
        width=args.width,
        heads=heads,
        head_width=args.width // heads,
        mlp_width=hidden,
        std_q=std,
        std_k=std,
        std_v=entry_std(args.sigma_v2, args.width),
        std_o=std if args.output_projection else None,
        std_1=entry_std(args.sigma_w2, args.width),
        std_2=entry_std(args.sigma_w2, hidden),
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
        "architecture": _with_flags(arch, args, args.length),
        "length": args.length,
        "init_std": std,
        "assumptions": assumptions,
    }


def _with_flags(arch: Architecture, args, length: int) -> Architecture:
    """Returns the architecture with the values of --alpha, --alpha-mlp and --beta."""
    if args.alpha is not None:
        check_range("--alpha", args.alpha, 0, 1e6)
        arch = arch.replace(alpha_sa=args.alpha)
    if args.alpha_mlp is not None:
        check_range("--alpha-mlp", args.alpha_mlp, 0, 1e6)
        arch = arch.replace(alpha_mlp=args.alpha_mlp)
    return arch if args.beta is None else with_beta(arch, args.beta, length)


def with_beta(arch: Architecture, beta: float, length: int) -> Architecture:
    """Returns the architecture whose scores have variance beta^2 ln T.

    It changes std_q = std_k, or the factor score_scale if queries and keys are normalised.

    Args:
        arch: the architecture.
        beta: standard deviation of the scores divided by sqrt(ln T).
        length: the number of tokens T.
    """
    check_range("--beta", beta, 0, 1e4)
    if arch.qk_norm:
        return arch.replace(score_scale=beta * (math.log(length) / arch.head_width) ** 0.5)
    variance_over_std4 = arch.score_scale**2 * arch.head_width * arch.width**2
    std = (beta**2 * math.log(length) / variance_over_std4) ** 0.25
    return arch.replace(std_q=std, std_k=std)


def _repeat_probability_of_file(path: Path) -> tuple[float, bool]:
    """Returns the probability that two tokens of a file are equal, and whether they are words."""
    tokens = path.read_text(errors="replace").split()
    if len(tokens) < 2:
        raise UserError(f"{str(path)!r} must hold at least two tokens, got {len(tokens)}.")
    return repeat_probability(tokens), not all(token.isdecimal() for token in tokens)


def _parser(manual: str | None) -> Parser:
    parser = Parser(prog="jaxformer advise", description=manual)
    add = parser.add_argument
    add(
        "config",
        metavar="CONFIG",
        nargs="?",
        type=Path,
        help="a Hugging Face config.json, its folder, a name on the hub, or the folder of a run",
    )
    add("--length", type=int, help="tokens in a sequence (the config's longest)")
    tokens_help = "token ids or text: counts repeated tokens, or is the input of --model"
    add("--tokens", type=Path, metavar="FILE", help=tokens_help)
    add("--rho0", type=float, help="cosine of the input tokens (from the embedding's variances)")
    add("--layers", type=int, help="number of layers (the config's)")
    add("--width", type=int, help="width of the residual stream (the config's)")
    add("--heads", type=int, help="number of heads (1)")
    add("--hidden", type=int, help="hidden width of the MLP (--width)")
    add("--init-std", type=float, help="standard deviation of all weights (0.02)")
    add("--alpha", type=float, help="residual weight of attention (1)")
    add("--alpha-mlp", type=float, help="residual weight of the MLP (1)")
    add("--beta", type=float, help="standard deviation of the scores / sqrt(ln T)")
    add("--sigma-v2", type=float, help="value variance x fan-in")
    add("--sigma-w2", type=float, help="MLP variance x fan-in")
    add("--sigma-b2", type=float, help="MLP bias variance (0)")
    add("--output-projection", action="store_true", help="a matrix W_O after attention")
    add("--pre-norm", action="store_true", help="norms before attention and MLP, not after")
    add("--causal", action="store_true", help="a query sees no later key")
    add("--gated", action="store_true", help="an MLP W_2 (phi(W_gate x) * W_1 x)")
    add("--activation", help="relu (default), gelu, gelu_tanh, quick_gelu, silu, tanh")
    add("--epsilon", type=float, default=COLLAPSE_DISTANCE, help="collapse: cosine > 1 - epsilon")
    add("--solve", metavar="WHAT", help="residual, init-std, depth-scale, layers or beta")
    add("--target-cosine", type=float, help="largest cosine after the last layer (0.5)")
    add("--target-keys", type=float, default=8.0, help="fewest keys in every layer (8)")
    add("--check", action="store_true", help="build and measure the network, solved with --solve")
    add("--width-check", action="store_true", help="predict and measure at .5, 1, 2, 4 widths")
    add("--run", type=Path, metavar="DIR", help="a run of jaxformer, finished or running")
    model_help = "a folder, a GGUF file, package:NAME or a hub name"
    add("--model", type=Path, metavar="MODEL", help=model_help)
    add("--json", action="store_true", help="print JSON")
    add("--plot", type=Path, metavar="FILE.png", help="draw the signal by layer (png, pdf, svg)")
    add("--force", action="store_true", help="overwrite the plot")
    return parser
