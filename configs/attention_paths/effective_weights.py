r"""The order parameter U and the mean of V V' over the posterior (arXiv 2405.15926, eq. of U).

    python experiments/run.py --config=configs/attention_paths/effective_weights.py:scale=small

scale  what                                      time            expected
tiny   8 tokens, 20 features, N = 5 and 200      10 CPU seconds  the distance grows with N
small  the paper's task, N = 10 to 1,000, 5      90 CPU seconds  see RESULTS.md
       data sets
paper  the same with 10 data sets                3 CPU minutes   the same

The text of the paper states U = <V V'>, where V has the input projection in it. The mean of V V'/n
is E[U - U G U / n] with the gradient G of the energy, so the two should agree for n far above N.
"""

from configs import common

SECONDS = {"tiny": 10, "small": 90, "paper": 180}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    tiny = arguments["scale"] == "tiny"
    config = common.figure(
        "attention_paths/effective_weights",
        arguments,
        name="paths_effective",
        task=common.hidden_markov(arguments["scale"]),
        widths=(5, 200) if tiny else (10, 100, 1000),
        temperature=0.1 if tiny else 0.01,
        draws=200 if tiny else 1000,
        warmup=150 if tiny else 300,
    )
    config.n_seeds = {"tiny": 1, "small": 5, "paper": 10}[arguments["scale"]]
    return config
