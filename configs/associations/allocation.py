r"""Should a bigram model have its parameters in MLPs or in attention? (arXiv 2406.03068, Figure 6)

    python experiments/run.py --config=configs/associations/allocation.py:scale=small

scale  sizes                                              time              expected result
tiny   5,000 parameters, MLP shares 0 and .73, 10 steps   20 CPU seconds    none: a test run
small  50,000 and 200,000 parameters, 5 shares, 3 seeds   2 CPU minutes     the table below
paper  200,000 to 3 million parameters, 5 seeds,          hours on a GPU    lowest loss at a large
       sequences of 256 tokens                                              MLP share

    share of parameters in MLPs    0     .40    .57    .73    .91     chain
    loss with 50,000 parameters   2.77   2.70   2.72   2.77   3.10    2.45
    loss with 200,000             2.69   2.65   2.65   2.65   2.73    2.45

The paper claims that the loss on a bigram after 100 steps falls with the share of parameters in
MLPs. At small scale this holds only up to a share of .4 (50,000 parameters) or .73 (200,000). At
larger shares the width that remains, 27 or 53, is below the 65 symbols of the text. Standard errors
over seeds are .02. With 800,000 parameters the width is 107 or more at every share.

The text is drawn from the packaged bigram chain; `floor` is the loss of the chain itself (the last
column). The paper gives no sizes. Each of the two layers has attention with 3 d^2 parameters and an
MLP with 2 m d^2 parameters, for width d and multiplier m. The share of MLPs is therefore
2m / (3 + 2m), and d follows from the total. Each number is that of the best of five learning rates.
`gain` is the loss at share 0 minus that at another share with the same seed. A model that diverges
at every rate is reported and left out.
"""

from configs import common

SECONDS = {"tiny": 20, "small": 120, "paper": 3 * 3600}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    tiny, paper = arguments["scale"] == "tiny", arguments["scale"] == "paper"
    config = common.figure(
        "associations/allocation",
        arguments,
        name="associations_allocation",
        text="",
        window=256 if paper else 16 if tiny else 32,
        # numbers of trained parameters
        totals=(5_000,) if tiny else (200_000, 800_000, 3_200_000) if paper else (50_000, 200_000),
        # hidden units of an MLP divided by the width: m above
        multipliers=(0, 4) if tiny else (0, 1, 2, 4, 16),
        learning_rates=(0.1, 0.3) if tiny else (0.03, 0.1, 0.3, 0.6, 1.0),
        momentum=0.9,
        batch_size=512 if paper else 16,
        steps=10 if tiny else 100,
    )
    config.n_seeds = 1 if tiny else 5 if paper else 3
    return config
