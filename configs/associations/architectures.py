r"""Noise in MLPs, linear layers and none (Appendix B.5, Figures 10 to 13).

    python experiments/run.py --config=configs/associations/architectures.py:layers=linear_mlp

layers   mlp_linear | linear_mlp | mlp_mlp | none_none: the kinds of F1 and F2

scale  what                                     time                    expected
tiny   N=32, T=16, d=32, 20 steps               20 CPU seconds          it runs
small  N=32, T=64, d=128, 300 steps, 3 seeds    30 CPU seconds a seed   the table
paper  N=65, T=256, d=256, batch 512, 5 seeds   hours on a GPU          the claims

    F1, F2        the paper claims                     small: p(correct), p(noise), of the cut model
    MLP, MLP      without F2 correct, without F1 noise .50 .48; without F2 .92 .05, F1 .33 .65
    MLP, linear   both cuts help, F1's loss is lower   .52 .45; without F2 .64 .01, F1 .40 .57
    linear, MLP   the cut of F2 helps, F1's leaves     .51 .47; without F2 .90 .07, F1 .13 .60
                  the noise
    none, none    Wo of layer 1 at 5 % of its rank     .49 .48; at 5 % .55 .39, at 1 % .29 .47
                  helps a little, 1 % destroys

`p_correct_gain_..`, `p_noise_drop_..` and `loss_drop/..` are differences of a cut and the full
model, seeds paired; of "none, none" those at `block_0/attn/out@0.05`. Errors are .025 at most; of
"none, none" .05, and .075 of its gain at 1 %. One claim does not show at 300 steps: with MLP and
linear, cutting F1 hurts (p(correct) -.116 +- .014). It shows with longer training: protocol=plateau
(d = 64, rate .03, 4,000 steps, 5 seeds, 50 to 110 CPU seconds a seed) ends at +.096 +- .025.
"""

from configs import common
from configs.noisy_recall import PROTOCOLS, recall

SECONDS = {"tiny": 20, "small": 90, "small,protocol=plateau": 450, "paper": 3 * 3600}

LAYERS = {
    "linear_mlp": ("linear", "mlp"),
    "mlp_linear": ("mlp", "linear"),
    "mlp_mlp": ("mlp", "mlp"),
    "none_none": ("none", "none"),
}


def get_config(arg: str = ""):
    arguments = common.parse(arg, layers=(*LAYERS,), protocol=PROTOCOLS, scale=common.SCALES)
    layers = LAYERS[arguments["layers"]]
    config = recall("associations/architectures", arguments, layers)
    config.recall.truncate = ("block_0/mlp/in", "block_1/mlp/in")
    if layers[0] == "none":
        config.recall.update(truncate=("block_0/attn/out",), followed=(0.01, 0.05))
    if config.arguments.scale == "small" and arguments["protocol"] == "quick":
        config.n_seeds = 3
    return config
