r"""Samples the exact posterior of a finite transformer with fixed attention (arXiv 2405.15926).

    python experiments/run.py --config=configs/attention_paths/posterior.py:scale=small

variant  collapsed  NUTS over the order parameter: exact, with the same cost at every width
         weights    NUTS over all weights: the same posterior, but slower

scale  sizes                                 time                       expected mean of U
tiny   8 tokens, 20 features, width 5,       10 CPU seconds             none: r-hat below 1.05
       40 examples
small  the paper's task, width 10,           collapsed 20 CPU seconds,  good 13.1, denoising 7.3,
       1 data set                            weights 1 to 2 minutes     good-denoising -5.0
paper  the same, 10 chains of 1,000 draws    collapsed 1 CPU minute,    the same; accuracy 95.5 %
                                             weights hours

The order parameter U = <v v^T>/N, for width N, shows which attention paths the network uses and how
it combines them. The theory (12.00, 6.85, -4.65 at width 10) is a saddle point and differs from the
exact mean by effects of order 1/N. U leaves out the input projection, as in the authors' code.
`U_effective` in arrays.npz includes it (13.9, 7.5, -5.6). The paper's text equates U and
`U_effective`, which holds only if the number of features is far above N. The label is read from the
last token, as in the authors' code; for the first one, as in the text, add
--config.task.readout=first.

After an interruption the same command resumes with the same draws. If the chains are not trusted
(theory/attention_paths/diagnostics.py has the limits), the run ends with one line and exit code 4,
and no verdict uses its record. --config.posterior.least_ess=400 samples until there are 400
effective draws.

Your own data: --config.data.file=my.npz, with the arrays `attentioned` (examples, paths, features),
`heads` and `labels`, or with `tokens`, `attention_1`, `attention_2` and `labels`. All arrays of
such a file are listed in experiments/papers/attention_paths/user_problem.py.
"""

from configs import common

SECONDS = {
    "tiny": 10,
    "small": 20,
    "small,variant=weights": 120,
    "paper": 60,
    "paper,variant=weights": 3 * 3600,
}


def get_config(arg: str = ""):
    arguments = common.parse(arg, variant=("collapsed", "weights"), scale=common.SCALES)
    config = common.figure("attention_paths/posterior", arguments)
    del config.figure
    config.recipe = "posterior"
    config.task = common.hidden_markov(config.arguments.scale)
    config.posterior = dict(
        method=config.arguments.variant,
        width=(10,),  # one width for all layers, or a width for each: N_1 .. N_{L+1}
        temperature=0.01,
        draws=1000,  # in all chains together
        warmup=300,  # steps of each chain before its first draw
        chains=2,
        chain_method="sequential",  # "vectorized" on accelerators
        max_tree_depth=10,
        target_accept=0.8,
        chunk=100,  # largest number of steps in one dispatch
        # Effective draws in the bulk and in the tails at which sampling ends; 0: it ends after
        # `draws`.
        least_ess=0.0,
        most_draws=100_000,  # in all chains together; sampling ends there even below `least_ess`
    )
    if config.arguments.scale == "tiny":
        config.posterior.update(width=(5,), temperature=0.1)
    if config.arguments.variant == "weights":
        # With fewer draws, some seeds have too few effective draws or a divergence, and are not
        # trusted.
        config.posterior.update(draws=1500, warmup=300, chains=1, max_tree_depth=12)
        if config.arguments.scale == "tiny":
            config.posterior.update(draws=600, warmup=400, target_accept=0.99)
    if config.arguments.scale == "paper":
        config.posterior.update(draws=10_000, chains=10, warmup=1000)
    return config
