r"""Do tokens become more alike with depth, and less so in MixiT? (MixiT paper, version B, Table 6)

    python experiments/run.py --config=configs/mixit/covariance_depth.py:scale=small

when    initialisation | trained (each depth is trained on text, then measured on held-out text)
trains  all (MixiT trains everything but the mixing) | embeddings (MixiT trains only embeddings and
        positions; the random transformer always trains only embeddings)
preset  paper (the text) | branches (the text, with branches scaled by 4 / layers) |
        authors (their code: skips scaled by 1/sqrt(2)) |
        authors_deep (their script for text: branches scaled by 4 / layers, and more)

scale  sizes                                      time             expected verdicts (1 is true)
tiny   width 32, 2 to 8 layers, 2 seeds           10 CPU seconds   all 1
small  width 128, 2 to 32 layers, 5 seeds         15 CPU seconds   all 1 except `cosine_grows`
paper  width 512, 2 to 32 layers, 10 seeds        minutes          all 1 except `cosine_grows`
tiny   when=trained: width 16, 10 steps           40 CPU seconds   none: a test run
small  when=trained: width 32, 600 steps,         20 CPU minutes   the table of docs/sde.md
       3 seeds
paper  when=trained: width 512, 5,000 steps,      GPU hours        not yet run
       batches of 512

The paper claims that tokens become similar with depth, more so in a random transformer than in
MixiT. `covariance` is the paper's measure, which also depends on the length of the vectors;
`cosine` does not. A verdict ending in `_grows` compares 32 layers with 2; one ending in
`_mixit_below` compares the two models at every depth. The paper's own row is not monotone in depth.

Table 6 has networks trained on Wikitext. Here `figure.text` names the text; the default is the
packaged bigram chain. A network whose loss ends above that of token frequencies is too badly
trained for a comparison of depths, and the run reports it. At initialisation, tokens follow Zipf's
law and states are measured before the final norm.
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
    trained, all_are_trained = arguments["when"] == "trained", arguments["trains"] == "all"
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
                mixit=common.VARIANTS["mixit" if all_are_trained else "random_mixit"][1],
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
