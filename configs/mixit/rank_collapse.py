r"""Do tokens become parallel and gradients vanish in wide, deep networks? (MixiT, Theorem 2.1)

    python experiments/run.py --config=configs/mixit/rank_collapse.py:scale=small

scale  sizes                                  time             expected result
tiny   4 tokens, width 16, tau up to 2,       5 CPU seconds    correlations grow with tau
       200 networks
small  4 tokens, width 50, tau up to 10,      40 CPU seconds   median |correlation| of two tokens:
       1,000 networks, 4,000 paths                             .82 at tau = 1, .99 at 3, 1.00 at 10
paper  the same as small                      40 CPU seconds   the paper has no figure of it

tau is depth / width. Theorem 2.1 describes wide, deep random networks by a stochastic differential
equation in tau; a path is one solution of it. The paper says that the theorem rules out rank
collapse and vanishing gradients. This run measures the correlations of both the networks and the
equation, and the gradients of the networks. The paper's own networks, 12 layers of width 512, have
a tau of about .02.
"""

from configs import common

SECONDS = {"tiny": 5, "small": 40, "paper": 40}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    config = common.figure(
        "mixit/rank_collapse",
        arguments,
        name="rank_collapse",
        length=4,
        width=50,
        times=(0.02, 0.1, 0.3, 1.0, 3.0, 10.0),
        paths=4000,
        steps=1000,
        networks=1000,
    )
    if arguments["scale"] == "tiny":
        config.figure.update(width=16, times=(0.125, 2.0), paths=200, steps=20, networks=200)
    return config
