r"""Two paths against perpendicular noise: the second path removes the noise that the first passes.

    python experiments/run.py --config=configs/attention_paths/robustness.py:scale=small

scale  what                                          time             expected
tiny   8 tokens, 20 features, noise 1 and 5          5 CPU seconds    negative correlation
small  the paper's task, noise 1 to 8, 3 datasets    20 CPU seconds   noise 5: GP .817, N=10 .944
paper  8 datasets                                    1 CPU minute     noise 5: GP .825, N=10 .946

The paper claims that the denoising path makes the network robust: with perpendicular noise 5 the
good path alone fails and the combination does not. Expected (8 datasets, noise 5, uniform second
head): good alone .564 +- .007, GP limit .825, N=10 .946, 100 .892, 1000 .832, correlation of the
two paths -.85 at N=10; with a random second head GP .750, N=10 .918, correlation -.81. The authors'
two-path script has a uniform second head where the text has a random one; both are shown.
"""

from configs import common

SECONDS = {"tiny": 5, "small": 20, "paper": 60}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    tiny = arguments["scale"] == "tiny"
    config = common.figure(
        "attention_paths/robustness",
        arguments,
        name="paths_robustness",
        task=common.hidden_markov(arguments["scale"], design="two_paths"),
        designs=("two_paths_uniform", "two_paths"),
        widths=(5, 20) if tiny else (10, 100, 1000),
        noises=(1.0, 5.0) if tiny else (1.0, 2.0, 3.5, 5.0, 6.5, 8.0),
        temperature=0.01,
    )
    config.n_seeds = {"tiny": 1, "small": 3, "paper": 8}[arguments["scale"]]
    return config
