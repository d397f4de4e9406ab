r"""Do tokens become parallel, and do gradients vanish, in the limit of Theorem 2.1? (MixiT)

    python experiments/run.py --config=configs/mixit/rank_collapse.py:scale=small

scale  what                                          time             expected
tiny   m=4, n=16, tau up to 2, 200 networks          5 CPU seconds    correlations grow with tau
small  m=4, n=50, tau up to 10, 4,000 paths of the   40 CPU seconds   median |correlation| .82, .99
       equation, 1,000 networks                                       and 1.00 at tau = 1, 3 and 10
paper  the same as small                             40 CPU seconds   the paper has no figure of it

tau is depth / width. The paper says that the theorem rules out rank collapse and vanishing
gradients. tau = .02 is close to its networks: 12 layers of width 512.
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
