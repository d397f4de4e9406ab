r"""Which layer stores the noise if feed-forward layers are MLPs, linear or absent? (Figs. 10 to 13)

    python experiments/run.py --config=configs/associations/architectures.py:layers=linear_mlp

layers   linear_mlp | mlp_linear | mlp_mlp | none_none: the kinds of F1 and F2, the feed-forward
         layers of the first and the second layer
protocol quick | plateau (4,000 steps at learning rate .03)

scale  sizes                                    time                    expected result
tiny   32 symbols, 16 tokens, width 32,         20 CPU seconds          none: a test run
       20 steps
small  32 symbols, 64 tokens, width 128,        30 CPU seconds a seed   the table below
       300 steps, 3 seeds
paper  65 symbols, 256 tokens, width 256,       hours on a GPU          the claims in the table
       batches of 512, 5 seeds

                   probabilities of the right answer and of the noise at small scale
    F1, F2         full model    one layer cut out                  claim of the paper
    MLP, MLP       .50  .48      F2: .92 .05     F1: .33 .65        without F2 the answer remains,
                                                                    without F1 the noise
    MLP, linear    .52  .45      F2: .64 .01     F1: .40 .57        both cuts help; the loss is
                                                                    lower without F1
    linear, MLP    .51  .47      F2: .90 .07     F1: .13 .60        only the cut of F2 helps
    none, none     .49  .48      Wo, rank 5 %: .55 .39              5 % of the rank of Wo in layer 1
                                 Wo, rank 1 %: .29 .47              helps a little, 1 % destroys

In noisy recall (arXiv 2406.03068, Appendix B.5) a trigger is followed by the answer or by a noise
token. Wo is the output matrix of attention. Standard errors are at most .025, but .05 for "none,
none" and .075 for its gain at 1 %. Metrics such as `p_correct_gain_..`, `p_noise_drop_..` and
`loss_drop/..` compare a cut model with the full model of the same seed. For "none, none" the cut is
`block_0/attn/out@0.05`, 5 % of the rank of Wo in layer 1.

One claim fails after 300 steps but holds later. With MLP and linear, cutting out F1 hurts at first:
the probability of the answer changes by -.116 ± .014. With protocol=plateau, width 64 and 5 seeds
(50 to 110 CPU seconds for each seed) the cut helps (+.096 ± .025).
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
