r"""Accuracy of the Bayesian transformer against its width (arXiv 2405.15926).

    python experiments/run.py --config=configs/attention_paths/accuracy.py:scale=small

scale  what                                          time             expected
tiny   8 tokens, 20 features, two datasets           15 CPU seconds   finite N and GP near chance
small  the paper's task, 3 datasets, sampled at 3 N  40 CPU seconds   GP .846, N=10 .958, N=100 .917
paper  10 datasets, sampled at 7 widths              3 CPU minutes    GP .841, N=10 .954, N=100 .912

The paper claims that a finite network is better than its GP limit because it learns which paths to
use and how to combine them. Expected (10 datasets): GP .841 +- .007, N=1000 .851, 300 .872, 100
.912, 30 .947, 10 .954 +- .002; the good path alone .925, good + denoising in the GP limit .958 +-
.002. The paper claims that the other paths alone are at chance level. Denoising (.504 +- .003) and
a2 (.499 +- .006) are; a1 is not (.595 +- .008). The exact posterior agrees with the theory within
.004. Paths alone keep the prefactor 1/4 of the four-path kernel. The readout is the last token, as
in the authors' code; the text has the first (--config.figure.task.readout=first; both work).
"""

from configs import common

SECONDS = {"tiny": 15, "small": 40, "paper": 180}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    tiny, paper = arguments["scale"] == "tiny", arguments["scale"] == "paper"
    config = common.figure(
        "attention_paths/accuracy",
        arguments,
        name="paths_accuracy",
        task=common.hidden_markov(arguments["scale"]),
        widths=(5, 20, 200) if tiny else (10, 30, 50, 100, 300, 500, 1000),
        sampled_widths=(10, 100, 1000),
        temperature=0.01,
        draws=800,
        warmup=300,
    )
    config.n_seeds = 3
    if tiny:
        config.figure.update(sampled_widths=(5,), temperature=0.1, draws=200, warmup=150)
        config.n_seeds = 2
    if paper:
        config.figure.sampled_widths = (10, 30, 50, 100, 300, 500, 1000)
        config.n_seeds = 10
    return config
