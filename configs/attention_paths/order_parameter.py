r"""Which attention paths does a network use, and how does it combine them? (arXiv 2405.15926)

    python experiments/run.py --config=configs/attention_paths/order_parameter.py:scale=small

scale  sizes                                   time             expected order parameter U
tiny   8 tokens, 20 features, widths 5 and     10 CPU seconds   far from the identity at width 5,
       200                                                      near it at width 200
small  the paper's task, widths 10, 100 and    35 CPU seconds   good 12.00, denoising 6.85,
       1000                                                     good-denoising -4.65 at width 10
paper  the same with 8,000 posterior draws     1 CPU minute     the same, smaller errors

U has a row and a column for each path: good (computes the label), a1, denoising (sees only the
noise) and a2, in this order; a1 and a2 are adversarial. The paper claims that the good and the
denoising path grow as the width falls, and that their entry is negative: the network subtracts the
noise from the label. The expected numbers are those of the theory. The exact posterior has 13.1,
7.34 and -5.09 at width 10; at width 1000 the diagonal is 1.1 to 1.3. The paper's order swaps a1 and
denoising.

The paper calls two different matrices U. The first, without the input projection, has the mean E[U]
at every width; the authors' code measures it. The second, <V_eff V_eff^T>/n of the main text, has
the mean E[U - U G U / n] and agrees with U only if n, the number of features, is far above the
width. At width 100 and n = 231 its good-denoising entry is -.49 instead of -.30.

Your own data: --config.data.file=my.npz, with the arrays `attentioned` (examples, paths, features),
`heads` and `labels`, or with `tokens`, `attention_1`, `attention_2` and `labels`. All arrays of
such a file are listed in experiments/papers/attention_paths/user_problem.py.
"""

from configs import common

SECONDS = {"tiny": 10, "small": 35, "paper": 60}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    tiny = arguments["scale"] == "tiny"
    config = common.figure(
        "attention_paths/order_parameter",
        arguments,
        name="paths_order_parameter",
        task=common.hidden_markov(arguments["scale"]),
        widths=(5, 200) if tiny else (10, 100, 1000),
        temperature=0.1 if tiny else 0.01,
        draws=200 if tiny else 2000,
        warmup=150 if tiny else 300,
    )
    if arguments["scale"] == "paper":
        config.figure.draws = 8000
    return config
