"""Parts that configs share: complete configs of a training and of a figure, models, variants.

"The papers" are the two versions of the MixiT paper unless a function names another one.
"""

from dataclasses import asdict

from ml_collections import ConfigDict

from configs.arguments import parse as parse
from jaxformer.core.settings import DataSettings, DeviceSettings, OptimSettings, TrainSettings
from jaxformer.core.variants import FIXED_POSITIONS as FIXED_POSITIONS
from jaxformer.core.variants import VARIANTS as VARIANTS
from jaxformer.core.variants import variant_named

SCALES = ("tiny", "small", "paper")
# The model of the papers' text, that of the authors' code, or that of their script for text.
PRESETS = ("paper", "authors", "authors_deep")
TEXT_BASE_LAYERS = 4  # `base_layers` in the authors' script for text; 1 for algorithmic tasks

# The folder and the token fingerprint of tiny Shakespeare, prepared as in configs/text/lm.py.
SHAKESPEARE = ("tinyshakespeare-bpe1024", "1460733d6353")


def training(name: str, arguments: dict[str, str]) -> ConfigDict:
    """Returns a complete config for the recipe `train`, whose fields a config file changes.

    The sections data, optim, devices and train have the fields, defaults and meanings of the
    dataclasses in jaxformer/core/settings.py.
    """
    return _complete(
        name=name,
        recipe="train",
        arguments=arguments,
        # Seed of the first member (a run with one seed and one learning rate). It sets the
        # initialisation, the fixed mixing and the training stream.
        seed=0,
        n_seeds=1,
        task=dict(),
        data=asdict(DataSettings()),
        model=dict(),
        # (pattern of parameter paths, label). A label names an optimizer of optim.labels, or it is
        # "frozen".
        partition=((".*", "train"),),
        # Rules that replace the partition from a step on: ((step, ((pattern, label), ..)), ..).
        unfreeze=(),
        optim=asdict(OptimSettings(labels={"train": adamw()})),
        devices=asdict(DeviceSettings()),
        train=asdict(TrainSettings()),
    )


def figure(name: str, arguments: dict[str, str], /, **settings) -> ConfigDict:
    """Returns a complete config for the recipe `solve`: the settings of one figure function.

    `settings["name"]` is a name in experiments/recipes/solve.py, or "package.module:FIGURE" of a
    `Figure` in a module. The docstring of its function `measure` explains the settings.

    `data.file` names a user's arrays (.npz), which replace the hidden Markov task of a figure.
    """
    fields = dict(name=name, recipe="solve", arguments=arguments, seed=0, n_seeds=1)
    return _complete(**fields, figure=settings, data=dict(file=""))


def hidden_markov(scale: str, design="four_paths", sigma_perp: float = 1.0) -> dict:
    """Returns the hidden Markov task of the attention-path figures; `design` names its heads."""
    tiny = scale == "tiny"
    return dict(
        design=design,
        examples=40 if tiny else 100,
        test_examples=400 if tiny else 1000,
        length=8 if tiny else 30,
        features=20 if tiny else 200,
        sigma_par=1.0,  # deviation of the noise in the span of the two state vectors
        sigma_perp=sigma_perp,  # deviation of the noise perpendicular to this span
        hardness=10.0,  # factor of the attention scores before the softmax
        readout="last",  # as in the authors' code; their text has "first"
    )


def adamw(weight_decay: float = 1e-3) -> dict:
    """Returns the optimizer of one label; `multiplier` scales its learning rate."""
    return dict(name="adamw", b1=0.9, b2=0.999, eps=1e-8, weight_decay=weight_decay, multiplier=1.0)


def set_split(config: ConfigDict) -> None:
    """Sets the split of the preset: "hash", or "redraw" as in the authors' code.

    With "redraw", kinds with few examples, such as short strings, may occur in held-out sets only.
    """
    config.data.split = "hash" if config.arguments.preset == "paper" else "redraw"


def set_budget(
    config: ConfigDict, steps: int, rates: tuple, mixing_steps: int, mixing_rates: tuple
) -> None:
    """Sets steps and learning rates. MixiT learns slowly and has those with the prefix mixing_."""
    if config.arguments.variant == "mixit":
        steps, rates = mixing_steps, mixing_rates
    config.train.steps, config.optim.learning_rate = steps, rates
    raise_rates_of_embeddings(config)


def raise_rates_of_embeddings(config: ConfigDict) -> None:
    """Sets higher learning rates if only embeddings are trained; the best rate is then near .1."""
    if config.arguments.variant in ("random", "random_mixit"):
        config.optim.learning_rate = (1e-2, 3e-2, 1e-1, 3e-1)


def decoder(config: ConfigDict, *, width: int, layers: int, heads: int) -> None:
    """Sets config.model and config.partition for the arguments variant, scale and preset.

    The comments in jaxformer/models/decoder_spec.py explain the fields of the model.
    """
    mixer, config.partition = variant_named(config.arguments.variant)
    fixed = mixer == "mixit"
    config.model = dict(
        name="decoder",
        width=width,
        layers=layers,
        heads=heads,
        mlp_width=4 * width,
        mixer=mixer,
        # Standard deviation of MixiT's mixing matrix W, for width n, width n_h of a head and m
        # tokens: theory 1/sqrt(nm), head 1/sqrt(n_h m), token 1/sqrt(m), or a number. With spread,
        # each head draws a value between head and token, as in the authors' code.
        mixing_scale="spread",
        mixing_identity=True,
        sink_head=False,
        positions="rotary",  # of softmax attention; none: tokens do not know their places
        learned_positions=fixed,
        # The token that ends a document of a packed window, within which attention stays; -1: none.
        document_end=-1,
        causal=True,  # False: tokens attend to all positions, in softmax and in fixed mixing
        use_bias=False,
        act="silu",
        # fan_in: 1/sqrt(inputs). The papers' 0.02 makes frozen attention uniform at width 64.
        init_std="fan_in",
        qk_init_std="fan_in",
        embed_init_std=1.0,
        residual_scale=1.0,
        branch_scale=1.0,
        # Branches are scaled by (base_layers / layers)^depth_alpha.
        **dict(depth_alpha=0.0, base_layers=1),
        # Linear maps are scaled by sqrt(base / inputs); a base of 0 leaves them as they are.
        **dict(base_width=0.0, base_mlp_width=0.0),
        # The factors of q.k (0: 1/sqrt of the head's width) and of the logits, as in muP.
        **dict(score_scale=0.0, logit_scale=1.0),
        use_norm=True,
        use_mlp=True,
        remat=False,
        remat_keep="nothing",  # with remat: activations that are stored (nothing, dense, products)
        fused=False,  # attention without its weights in memory, for GPUs and long sequences
        scan=False,  # one compiled block for all layers: for depth, see jaxformer/models/decoder.py
        dtype="float32",
        param_dtype="float32",
    )
    if config.arguments.scale == "paper" or config.arguments.preset != "paper":
        config.model.update(init_std="0.02", qk_init_std="0.02", embed_init_std=0.02)
    if config.arguments.preset != "paper":
        of_text = config.name.startswith("text/")
        deep = config.arguments.preset == "authors_deep"
        config.model.update(authors(fixed, deep, TEXT_BASE_LAYERS if of_text else 1))


def keep_head_trained(config: ConfigDict) -> None:
    """Sets the partition of a random classifier, whose head takes the place of the unembedding."""
    if config.arguments.variant.startswith("random"):
        positions = "|positions" if config.arguments.variant == "random_mixit" else ""
        config.partition = ((f"(embed|head{positions})/.*", "train"), (".*", "frozen"))


def authors(fixed: bool, deep: bool, base_layers: int = 1) -> dict:
    """Returns the fields of a decoder in which the authors' Llama file differs from their text.

    Args:
      fixed: Whether the decoder is MixiT.
      deep: Whether depth_alpha is 1, as in their script for text; it is 0 for algorithmic tasks.
      base_layers: The number of layers at which depth_alpha has no effect.
    """
    fields: dict = dict(use_bias=True)  # explains the parameter counts of Table 4
    if deep:
        fields |= dict(depth_alpha=1.0, base_layers=base_layers)
    if fixed:
        # The authors' code never sets the base of the MLP's last map, which is 1 by default.
        fields |= dict(sink_head=True, act="shaped_leaky", base_width=512.0, base_mlp_width=1.0)
        fields |= dict(mixing_scale="token" if deep else "spread", mixing_identity=not deep)
        if not deep:
            fields |= dict(residual_scale=0.5**0.5, branch_scale=0.5**0.5)
    return fields


def masked_text(*, window: int) -> dict:
    """Returns the task of masked language modelling. `text` names a file.

    An empty `text` is the packaged bigram chain, a Markov chain of characters.
    """
    return dict(
        name="masked_text",
        text="",
        window=window,
        rate=0.15,
        masking="plain",  # or "bert": 80 % mask, 10 % a random symbol, 10 % unchanged
    )


def prepared_text(
    name: str, tokens: str = "", fingerprint: str = "", documents: bool = False, **more
) -> dict:
    """Returns a task on prepared text; `more` are the window and the task's other fields."""
    return dict(
        name=name,
        tokens=tokens,  # a folder written by experiments/prepare.py; "": the packaged bigram chain
        fingerprint=fingerprint,  # checksum that the tokens must have; "" accepts any
        # Whether an example is the padded beginning of a document instead of a window of the text.
        documents=documents,
        **more,
    )


def encoder(
    config: ConfigDict, *, width: int, layers: int, heads: int, beta: float, alpha_sa: float
) -> None:
    """Sets config.model: the post-norm encoder of arXiv 2505.24333, with the paper's variances."""
    config.model = dict(
        name="encoder",
        width=width,
        layers=layers,
        heads=heads,
        beta=beta,  # scores of T tokens have the standard deviation beta sqrt(ln T)
        alpha_sa=alpha_sa,  # strength of the skip connection around attention
        alpha_mlp=1.0,  # strength of the skip connection around the MLP
        sigma_v2=0.2,  # variance times fan-in of the value weights
        sigma_w2=0.2,  # variance times fan-in of the MLP weights
        sigma_b2=4e-4,  # variance of the MLP biases
        activation="relu",
        causal=False,
        scan=False,  # True: one compiled block for all layers, with the same results
        dtype="float32",
        param_dtype="float32",
    )


def _complete(**sections) -> ConfigDict:
    """Returns a config with locked arguments.

    The arguments only record how the other fields were chosen, so changing them would do nothing.
    """
    config = ConfigDict(sections)
    config.arguments.lock()
    return config
