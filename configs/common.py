"""What configs share: the whole of a training config, of a figure, the variants."""

from ml_collections import ConfigDict

from configs.arguments import parse as parse

SCALES = ("tiny", "small", "paper")
PRESETS = ("paper", "authors", "authors_deep")
TEXT_BASE_LAYERS = 4  # of the authors' trainer for text; those of algorithmic tasks have 1

# variant -> (mixer, rules). The first rule that matches a parameter's whole path decides.
VARIANTS = {
    "standard": ("softmax", ((".*", "train"),)),
    "frozen_qk": ("softmax", ((".*/(query|key)/.*", "frozen"), (".*", "train"))),
    "frozen_mlp": ("softmax", ((".*/mlp/.*", "frozen"), (".*", "train"))),
    "mixit": ("mixit", ((".*/mix", "frozen"), (".*", "train"))),
    "random": ("softmax", (("(embed|unembed)/.*", "train"), (".*", "frozen"))),
    "random_mixit": ("mixit", (("(embed|unembed|positions)/.*", "train"), (".*", "frozen"))),
}
# Like random_mixit, except that its table of positions is not trained either.
FIXED_POSITIONS = {
    "random_mixit_fixed": ("mixit", (("(embed|unembed)/.*", "train"), (".*", "frozen")))
}
# Tiny Shakespeare as configs/text/lm.py prepares it: the folder and the fingerprint of its tokens.
SHAKESPEARE = ("tinyshakespeare-bpe1024", "1460733d6353")


def training(name: str, arguments: dict[str, str]) -> ConfigDict:
    """A whole config for the recipe `train`, to be changed field by field."""
    return _whole(
        name=name,
        recipe="train",
        arguments=arguments,
        seed=0,  # of the first member: initialisation, fixed mixing and training stream
        n_seeds=1,
        task=dict(),
        data=dict(
            seed=12345,  # of the held-out sets, common to all members
            train_size=0,  # examples of a finite training set; 0 draws fresh ones for ever
            test_size=1000,
            validation_size=1000,
            split="redraw",  # or "hash": a share of all possible examples for each set, of one law
            test_share=0.125,
            validation_share=0.0625,
        ),
        model=dict(),
        partition=((".*", "train"),),
        # Later rules: ((step, ((pattern, label), ..)), ..); from that step on they hold.
        unfreeze=(),
        optim=dict(
            learning_rate=(1e-3,),  # several are tried; validation chooses, test reports
            schedule="cosine",
            warmup=50,
            clip=1.0,  # global norm over the trainable leaves; 0 is off
            labels=dict(train=adamw()),
        ),
        # The mesh: data=0 takes the devices that the others leave, members=0 as many as divide the
        # population (seeds x learning rates), each part of which then has devices of its own.
        devices=dict(data=0, fsdp=1, tensor=1, members=1),
        train=dict(
            batch_size=128,
            steps=1000,
            log_every=10,
            eval_every=100,
            # Members one after the other in one program, or side by side ("vmap": faster
            # where one member does not fill the device, at n times the memory).
            members="map",
            target=2.0,  # stop when all seeds of some rate reach it in validation; above 1: never
            probes=(),  # numbers of the forward pass to log at every step: attention_entropy
            loss_chunk=0,  # positions whose logits are held at once, for large vocabularies; 0: all
            accumulate=1,  # parts of a batch, one in memory at a time; the gradient is the whole's
            throughput=False,  # rows of tokens a second, FLOPs and time waiting for data
            signal=False,  # rows of each layer's cosine, keys and gradient at every evaluation
        ),
    )


def figure(name: str, arguments: dict[str, str], /, **settings) -> ConfigDict:
    """A whole config for the recipe `solve`: the settings of one figure function.

    `data.file`: arrays of one's own (.npz) in place of the hidden Markov task, where one is drawn.
    """
    whole = dict(name=name, recipe="solve", arguments=arguments, seed=0, n_seeds=1)
    return _whole(**whole, figure=settings, data=dict(file=""))


def hidden_markov(scale: str, design="four_paths", sigma_perp: float = 1.0) -> dict:
    """The task of the attention-path figures; the heads are those of `design`."""
    tiny = scale == "tiny"
    return dict(
        design=design,
        examples=40 if tiny else 100,
        test_examples=400 if tiny else 1000,
        length=8 if tiny else 30,
        features=20 if tiny else 200,
        sigma_par=1.0,
        sigma_perp=sigma_perp,
        hardness=10.0,
        readout="last",  # the authors' code; their text says "first"
    )


def adamw(weight_decay: float = 1e-3) -> dict:
    """The optimizer of one label; `multiplier` scales its learning rate."""
    return dict(name="adamw", b1=0.9, b2=0.999, eps=1e-8, weight_decay=weight_decay, multiplier=1.0)


def split(config: ConfigDict) -> None:
    """Splits by a hash; with the authors' presets as they do: short examples are never trained."""
    config.data.split = "hash" if config.arguments.preset == "paper" else "redraw"


def budget(config: ConfigDict, steps: int, rates: tuple, mixing_steps: int, mixing_rates: tuple):
    """Steps and learning rates; those of MixiT, which learns slowly, are its own."""
    if config.arguments.variant == "mixit":
        steps, rates = mixing_steps, mixing_rates
    config.train.steps, config.optim.learning_rate = steps, rates
    embeddings_want_more(config)


def embeddings_want_more(config: ConfigDict) -> None:
    """The rates of a network of which the embeddings alone are trained: the best is near .1."""
    if config.arguments.variant in ("random", "random_mixit"):
        config.optim.learning_rate = (1e-2, 3e-2, 1e-1, 3e-1)


def decoder(config: ConfigDict, *, width: int, layers: int, heads: int) -> None:
    """Sets config.model and config.partition for the arguments variant, scale and preset."""
    mixer, config.partition = (VARIANTS | FIXED_POSITIONS)[config.arguments.variant]
    fixed = mixer == "mixit"
    config.model = dict(
        name="decoder",
        width=width,
        layers=layers,
        heads=heads,
        mlp_width=4 * width,
        mixer=mixer,
        # std of MixiT's W: theory 1/sqrt(nm), head 1/sqrt(n_h m), spread (one a head between that
        # and 1/sqrt(m), as in the authors' code), token 1/sqrt(m), or a number
        mixing_scale="spread",
        mixing_identity=True,
        sink_head=False,
        learned_positions=fixed,
        causal=True,  # False: every token sees all, in softmax and in fixed mixing
        use_bias=False,
        act="silu",
        # fan_in: 1/sqrt(inputs). The papers' 0.02 makes frozen attention uniform at n = 64.
        init_std="fan_in",
        qk_init_std="fan_in",
        embed_init_std=1.0,
        residual_scale=1.0,
        branch_scale=1.0,
        **dict(depth_alpha=0.0, base_layers=1),  # branches: times (base_layers/layers)^depth_alpha
        **dict(base_width=0.0, base_mlp_width=0.0),  # linear maps: times sqrt(base / inputs) or 1
        use_norm=True,
        use_mlp=True,
        remat=False,
        remat_keep="nothing",  # what recomputed blocks keep: nothing, dense or products
        fused=False,  # attention without weights in memory: for GPUs and long sequences
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


def authors(fixed: bool, deep: bool, base_layers: int = 1) -> dict:
    """Fields of a decoder (`fixed`: of MixiT) that the authors' Llama file sets, unlike the text.

    `deep` is their depth_alpha = 1, of the script for text; else 0, of those for algorithmic tasks.
    """
    fields: dict = dict(use_bias=True)  # which explains Table 4's counts of parameters
    fields |= dict(depth_alpha=1.0, base_layers=base_layers) if deep else {}
    if fixed:
        # They never pass the base of the last map of the MLP, which is then 1.
        fields |= dict(sink_head=True, act="shaped_leaky", base_width=512.0, base_mlp_width=1.0)
        fields |= dict(mixing_scale="token" if deep else "spread", mixing_identity=not deep)
        fields |= {} if deep else dict(residual_scale=0.5**0.5, branch_scale=0.5**0.5)
    return fields


def masked_text(*, window: int) -> dict:
    """The task of masked language modelling on the packaged chain; `text` names a file instead."""
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
    """A task on prepared text; `more` are the window and what only this task has."""
    return dict(
        name=name,
        tokens=tokens,  # a folder of experiments/prepare.py; "" is the packaged chain
        fingerprint=fingerprint,  # of these tokens; "" takes any
        documents=documents,  # the beginning of each document, padded; else windows of all text
        **more,
    )


def encoder(
    config: ConfigDict, *, width: int, layers: int, heads: int, beta: float, alpha_sa: float
) -> None:
    """Sets config.model: the post-norm encoder of arXiv 2505.24333 with its variances."""
    config.model = dict(
        name="encoder",
        width=width,
        layers=layers,
        heads=heads,
        beta=beta,  # scores have deviation beta sqrt(ln T)
        alpha_sa=alpha_sa,
        alpha_mlp=1.0,
        sigma_v2=0.2,
        sigma_w2=0.2,
        sigma_b2=4e-4,
        activation="relu",
        causal=False,
        scan=False,  # True: a deep network compiles as fast as a shallow one, and computes the same
        dtype="float32",
        param_dtype="float32",
    )


def _whole(**sections) -> ConfigDict:
    """A config whose arguments are labels: they chose its fields, and no field is added to them."""
    config = ConfigDict(sections)
    config.arguments.lock()
    return config
