r"""Does a second path remove the noise that the first path lets through? (arXiv 2405.15926)

    python experiments/run.py --config=configs/attention_paths/robustness.py:scale=small

scale  sizes                                       time             expected accuracy at noise 5
tiny   8 tokens, 20 features, noise 1 and 5        5 CPU seconds    none; negative correlation in U
small  the paper's task, noise 1 to 8, 3 data      20 CPU seconds   GP limit .817, width 10 .944
       sets
paper  8 data sets                                 1 CPU minute     GP limit .825, width 10 .946

    accuracy at noise 5, 8 data sets                 uniform second head   random second head
    good path alone                                  .564 ± .007
    both paths, GP limit (infinite width)            .825                  .750
    both paths, width 1000                           .832
    both paths, width 100                            .892
    both paths, width 10                             .946                  .918
    correlation of the two paths in U at width 10    -.85                  -.81

The network has two paths: the good one computes the label, the denoising one sees only the noise.
The paper claims that with strong noise perpendicular to the label the good path alone fails, and
that both paths together do not. U is the order parameter, which has a row and a column for each
path. The second head has random attention in the paper's text and uniform attention in the authors'
script; the run shows both.
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
