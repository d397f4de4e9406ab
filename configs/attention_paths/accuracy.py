r"""Does a finite network beat its limit of infinite width, and at which width? (arXiv 2405.15926)

    python experiments/run.py --config=configs/attention_paths/accuracy.py:scale=small

scale  sizes                                     time             expected test accuracy
tiny   8 tokens, 20 features, 2 data sets        15 CPU seconds   near chance
small  the paper's task, 3 data sets, sampled    40 CPU seconds   GP limit .846, width 10 .958,
       at 3 widths                                                width 100 .917
paper  10 data sets, sampled at 7 widths         3 CPU minutes    GP limit .841, width 10 .954,
                                                                  width 100 .912

    10 data sets         GP limit  width 1000  300   100   30    10
    all four paths       .841      .851        .872  .912  .947  .954

    paths alone, in the GP limit
    good                 .925          good and denoising  .958 ± .002
    denoising            .504 ± .003   a1  .595 ± .008     a2  .499 ± .006

The GP limit is the network of infinite width, a Gaussian process that weighs all attention paths
equally. The good path computes the label, the denoising path sees only the noise, and a1 and a2 are
adversarial. The paper claims that a finite network is better because it learns which paths to use
and how to combine them, and that the other three paths alone are at chance. For a1 this does not
hold.

Standard errors are .007 for the GP limit and .002 at width 10. Accuracies sampled from the exact
posterior agree with the theory within .004. The kernel of one or two paths alone keeps the
prefactor 1/4 of the kernel of four paths. The label is read from the last token, as in the authors'
code; the text reads the first one (--config.figure.task.readout=first), which works as well.
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
