"""Can one layer of random attention approximate causal functions? (MixiT version B, Theorem 5.1)

    python experiments/run.py --config=configs/mixit/universality.py:scale=small

scale  sizes                                         time            expected verdicts (1 is true)
tiny   16 heads, 2 seeds                             20 CPU seconds  not meaningful
small  1 to 128 heads, 4,000 sequences, 5 seeds      2 CPU minutes   all 1
paper  1 to 512 heads, 40,000 sequences, 10 seeds    an hour         all 1; the paper prints none

Errors of a linear readout at small scale, with 1, 16 and 128 heads (1 is the error of a constant):

target                           Frozen-QK          rotary positions   MixiT
look-up of a similar token       0.74  0.47  0.33   0.74  0.51  0.28   0.83  0.72  0.52
running maximum                  0.64  0.52  0.50   0.65  0.53  0.51   0.84  0.77  0.54
the token before                 0.85  0.71  0.70   0.86  0.71  0.48   0.96  0.54  0.09
sin of the token itself          0.39  0.36  0.22   0.39  0.36  0.26   0.39  0.39  0.39

Theorem 5.1: one layer of attention with frozen random queries and keys, and an MLP, approximates
every continuous causal function on a compact set. The proof uses the outputs of random heads as
features of a linear readout and gives no rate. The run fits this readout by ridge regression, with
and without random ReLU units, on sequences of 8 tokens in [-1, 1]^4. An error is the mean square on
fresh sequences, divided by the variance of the target; the theorem is about the largest error.

The paper leaves out three limits:

- Frozen-QK has no positions, which the theorem needs. Its error for "the token before" stays at
  0.70 with any number of heads, even with the ReLU units.
- At the first token each head returns that token, so a readout without ReLU units is linear there.
- With ReLU units MixiT is not linear either: its error for the maximum falls from 0.54 to 0.20
  (Frozen-QK: 0.11).

The number of ReLU units is fixed, while their inputs grow with the number of heads. With ReLU units
the error for "sin of the token itself" therefore rises from 0.08 to 0.24.
"""

from configs import common

SECONDS = {"tiny": 20, "small": 120, "paper": 3600}
HEADS = (1, 2, 4, 8, 16, 32, 64, 128)
MLP_HEADS = (1, 4, 16, 64)
SIZES = dict(
    tiny=dict(heads=(1, 4, 16), mlp_heads=(1, 4), relu_features=64, train=500, test=250),
    small=dict(heads=HEADS, mlp_heads=MLP_HEADS, relu_features=512, train=4000, test=1000),
    paper=dict(
        heads=(*HEADS, 256, 512), mlp_heads=MLP_HEADS, relu_features=2048, train=40_000, test=2000
    ),
)


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    config = common.figure(
        "mixit/universality",
        arguments,
        name="universality",
        length=8,  # tokens in a sequence
        dim=4,  # size of a token, and of a head's queries and keys
        qk_std=1.0,
        ridge=1e-9,
        **SIZES[arguments["scale"]],
    )
    config.n_seeds = dict(tiny=2, small=5, paper=10)[arguments["scale"]]
    return config
