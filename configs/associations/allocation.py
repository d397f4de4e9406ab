r"""Figure 6 of the associations paper: parameters in the MLP or in attention, for a plain bigram?

    python experiments/run.py --config=configs/associations/allocation.py:scale=small

scale  what                                               time              expected
tiny   one total, MLP shares 0 and .73, 10 steps          20 CPU seconds    it runs
small  totals 50,000 and 200,000, 5 shares, 3 seeds       2 CPU minutes     the table
paper  totals to 3 million, 5 seeds, sequences of 256     hours on a GPU    lowest at a large share

    share of the MLPs     0     .40    .57    .73    .91     floor
    loss,  50,000       2.77   2.70   2.72   2.77   3.10     2.45
    loss, 200,000       2.69   2.65   2.65   2.65   2.73     (errors over seeds .02)

The paper claims that of a fixed number of trained parameters the more are in the MLPs, the lower is
the loss on the global bigram pi_b after 100 steps, each at its best learning rate. At these totals
it holds up to a share of .4 (50,000) and .73 (200,000) only: at larger ones the remaining width, 27
and 53, is below the 65 symbols. The best share grows with the total.

The data are the bigram chain of the packaged text. The paper gives no sizes: here two layers of the
recall model, of attention (Wk, Wv, Wo: 3 d^2) and an MLP of m d hidden units (2 m d^2), with
`multipliers` m = 0, 1, 2, 4, .. and the width d that the total leaves; the share is 2m/(3 + 2m).
SGD with momentum 0.9; of `learning_rates` the one with the lowest mean loss of the last ten steps
counts (0.3 in 6 of 10 cells, 0.1 in the others: both are inside the grid). `floor` is the loss of
the chain itself, `gain` the loss at share 0 minus that at a share, seeds paired. A cell that
diverges at every rate is reported and left out. With 800,000 parameters the width is 107 or more at
every share; the row of RESULTS.md on them has rates of .01 to .2.
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
        totals=(5_000,) if tiny else (200_000, 800_000, 3_200_000) if paper else (50_000, 200_000),
        multipliers=(0, 4) if tiny else (0, 1, 2, 4, 16),
        learning_rates=(0.1, 0.3) if tiny else (0.03, 0.1, 0.3, 0.6, 1.0),
        momentum=0.9,
        batch_size=512 if paper else 16,
        steps=10 if tiny else 100,
    )
    config.n_seeds = 1 if tiny else 5 if paper else 3
    return config
