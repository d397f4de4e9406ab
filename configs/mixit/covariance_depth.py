r"""Covariance of the last layer's tokens against depth (MixiT paper, version B, Table 6).

    python experiments/run.py --config=configs/mixit/covariance_depth.py:scale=small

when    initialisation | trained (each depth for 600 steps on text, measured on held-out text)
trains  all (what MixiT trains: everything but the mixing) | embeddings (as the random transformer)
preset  paper (the text) | branches (the text with branches times 4/L) | authors (their code, with
        skips of 1/sqrt(2)) | authors_deep (their script for text: branches times 4/L, and more)

scale  what                                            time             expected verdicts
tiny   n=32, L = 2, 4, 8, 2 seeds                      10 CPU seconds   all 1
small  n=128, L = 2 to 32, 5 seeds                     15 CPU seconds   all 1 but cosine_grows
paper  n=512, L = 2 to 32, sequences of 256, 10 seeds  minutes          the same
tiny   when=trained: n=16, L = 2, 4, 10 steps          40 CPU seconds   it runs
small  when=trained: n=32, L = 2 to 32, 3 seeds        20 CPU minutes   see below
paper  when=trained: n=512, 5,000 steps of 512         GPU hours        not yet run

The paper claims that tokens become similar with depth, more in a random transformer than in MixiT.
The verdict has two parts: growth from L=2 to 32, and MixiT below the random transformer at every L.
The printed row itself is not monotone. `covariance` (raw) depends on scale and similarity, `cosine`
on similarity only. At initialisation tokens follow Zipf's law and are measured before the final
norm.

Table 6 has trained networks on Wikitext. Here the text is `figure.text`, by default the packaged
chain, on which no model can be better than the bigram. A network that ends above the unigram loss
has learned nothing about depth; the run prints this and its record has it. Two choices, what is
trained and whether branches shrink with the depth, are crossed: docs/sde.md has the result.
"""

from configs import common

SECONDS = {
    "tiny": 10,
    "small": 15,
    "paper": 180,
    "tiny,when=trained": 40,
    "small,when=trained": 1200,
    "paper,when=trained": 3 * 3600,
}
DEPTHS = (2, 4, 8, 16, 32)
INITIALISATION = dict(
    tiny=dict(width=32, heads=4, depths=(2, 4, 8), sequences=8, length=32, vocab=200, n_seeds=2),
    small=dict(width=128, heads=8, depths=DEPTHS, sequences=8, length=64, vocab=1000, n_seeds=5),
    paper=dict(width=512, heads=8, depths=DEPTHS, sequences=16, length=256, vocab=8192, n_seeds=10),
)
TRAINED = dict(
    tiny=dict(width=16, heads=2, depths=(2, 4), sequences=8, length=16, n_seeds=2),
    small=dict(width=32, heads=4, depths=DEPTHS, sequences=32, length=32, n_seeds=3),
    paper=dict(width=512, heads=8, depths=DEPTHS, sequences=64, length=256, n_seeds=5),
)


def get_config(arg: str = ""):
    arguments = common.parse(
        arg,
        when=("initialisation", "trained"),
        trains=("all", "embeddings"),
        scale=common.SCALES,
        preset=(*common.PRESETS, "branches"),
    )
    trained, whole = arguments["when"] == "trained", arguments["trains"] == "all"
    sizes = (TRAINED if trained else INITIALISATION)[arguments["scale"]]
    fields = dict(
        width=sizes["width"],
        heads=sizes["heads"],
        mlp_width=4 * sizes["width"],
        init_std="fan_in",
        qk_init_std="fan_in",
        embed_init_std=1.0,
        residual_scale=1.0,
        branch_scale=1.0,
    )
    random = dict(fields, mixer="softmax")
    mixit = dict(fields, mixer="mixit", learned_positions=True, mixing_scale="spread")
    if arguments["preset"] == "branches":
        for model in (random, mixit):
            model.update(depth_alpha=1.0, base_layers=common.TEXT_BASE_LAYERS)
    elif arguments["preset"] != "paper":
        for model, fixed in ((random, False), (mixit, True)):
            model.update(init_std=0.02, qk_init_std=0.02, embed_init_std=0.02)
            deep = arguments["preset"] == "authors_deep"
            model.update(common.authors(fixed, deep, base_layers=common.TEXT_BASE_LAYERS))
    config = common.figure(
        "mixit/covariance_depth",
        arguments,
        name="covariance_trained" if trained else "covariance_depth",
        models=dict(random=random, mixit=mixit),
        depths=sizes["depths"],
        sequences=sizes["sequences"],
        length=sizes["length"],
    )
    if trained:
        config.figure.update(
            text="",
            rules=dict(
                random=common.VARIANTS["random"][1],  # embeddings only
                mixit=common.VARIANTS["mixit" if whole else "random_mixit"][1],
            ),
            learning_rates=(3e-3, 1e-2),
            batch_size=16,
            steps=600,
        )
        if config.arguments.scale == "tiny":
            config.figure.update(batch_size=8, steps=10)
        elif config.arguments.scale == "paper":
            config.figure.update(learning_rates=(5e-4,), batch_size=512, steps=5000)
    else:
        config.figure.vocab = sizes["vocab"]
    config.n_seeds = sizes["n_seeds"]
    return config
