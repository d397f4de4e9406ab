r"""What each kind of feed-forward layer keeps of the noise (Appendix B.5, Figures 10 to 13).

    python experiments/run.py --config=configs/associations/architectures.py:layers=linear_mlp

layers   mlp_linear | linear_mlp | mlp_mlp | none_none: the kinds of F1 and F2

scale  what                                     time                    expected
tiny   N=32, T=16, d=32, 20 steps               20 CPU seconds          it runs
small  N=32, T=64, d=128, 300 steps, 3 seeds    2 CPU minutes           the table, not yet run
paper  N=65, T=256, d=256, batch 512, 5 seeds   hours on a GPU          the table

    F1, F2        the paper claims
    MLP, MLP      without F2 correct near 1, without F1 the noise
    MLP, linear   both cuts help
    linear, MLP   the cut of F2 helps, that of F1 leaves the noise
    none, none    Wo of layer 1 at 5 % of its rank helps a little, 1 % destroys
"""

from configs import common

LAYERS = {
    "linear_mlp": ("linear", "mlp"),
    "mlp_linear": ("mlp", "linear"),
    "mlp_mlp": ("mlp", "mlp"),
    "none_none": ("none", "none"),
}


def get_config(arg: str = ""):
    arguments = common.parse(arg, layers=(*LAYERS,), scale=common.SCALES)
    layers = LAYERS[arguments["layers"]]
    config = common.recall("associations/architectures", arguments, layers)
    config.recall.truncate = ("block_0/mlp/in", "block_1/mlp/in")
    if layers[0] == "none":
        config.recall.update(truncate=("block_0/attn/out",), followed=(0.01, 0.05))
    if config.scale == "small":
        config.n_seeds = 3
    return config
