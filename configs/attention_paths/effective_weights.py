r"""Is the order parameter U the posterior mean of V V', as the text says? (arXiv 2405.15926)

    python experiments/run.py --config=configs/attention_paths/effective_weights.py:scale=small

scale  sizes                                     time            expected result
tiny   8 tokens, 20 features, widths 5 and 200   10 CPU seconds  the distance grows with the width
small  the paper's task, widths 10 to 1,000,     90 CPU seconds  see RESULTS.md
       5 data sets
paper  the same with 10 data sets                3 CPU minutes   see RESULTS.md

The paper's text defines U = <V V'>. V are the effective weights of the paths, which contain the
input projection. The exact mean of V V'/n is E[U - U G U / n], with n input features and the
gradient G of the energy. It agrees with the mean of U only if n is far above the width. The run
measures the distance of these two matrices.
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
