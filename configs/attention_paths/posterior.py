r"""Posterior samples of a finite transformer with fixed attention, and its order parameter.

    python experiments/run.py --config=configs/attention_paths/posterior.py:scale=small

variant  collapsed  NUTS over the order parameters: exact at every width, cost independent of N
         weights    NUTS over all weights by the path-level forward pass: the same posterior, slower

scale  what                                  time                       expected
tiny   8 tokens, 20 features, N=5, P=40      10 CPU seconds             r-hat below 1.05
small  the paper's task, N=10, 1 dataset     collapsed 20 CPU seconds,  E[U] good 13.1, denoising
                                             weights 1 to 2 minutes     7.3, good-denoising -5.0
paper  the same, 10 chains of 1000 draws     collapsed 1 CPU minute,    the same; accuracy 95.5 %
                                             weights hours

The theory's saddle point (12.00, 6.85, -4.65 at N=10) is below E[U] by 1/N effects; E[U] is exact.
U = <v v^T>/N leaves the input projection out, as in the authors' code. The record also
has (1/n) <V_eff V_eff^T> with it (`U_effective` in arrays.npz: 13.9, 7.5, -5.6),
which the paper's text equates with U, but that holds only for n >> N. The readout is the last
token (their code); the text has the first: --config.task.readout=first.

The run can be killed at any moment. Run the same command again: it resumes, with the same draws.
Chains that are not trusted (theory/attention_paths/diagnostics.py: r-hat, effective draws in bulk
and tails, divergences, tree depth, energy) end the run with one line and exit code 4, and no
verdict uses its record. --config.posterior.least_ess=400 samples until there are 400 effective
draws.

Your own data: --config.data.file=my.npz, with `attentioned` (examples, paths, n), `heads` and
`labels`, or with `tokens`, `attention_1` .. and `labels`. All arrays of such a file are listed in
experiments/papers/attention_paths/user_problem.py.
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
        width=(10,),  # one number, or N_1 .. N_{L+1}
        temperature=0.01,
        draws=1000,  # of all chains together
        warmup=300,  # of each chain
        chains=2,
        chain_method="sequential",  # "vectorized" on accelerators
        max_tree_depth=10,
        target_accept=0.8,
        chunk=100,  # the most steps in one dispatch
        least_ess=0.0,  # sample until bulk and tails have so many effective draws; 0: take `draws`
        most_draws=100_000,  # of all chains together, however few are effective
    )
    if config.arguments.scale == "tiny":
        config.posterior.update(width=(5,), temperature=0.1)
    if config.arguments.variant == "weights":
        # With fewer, some seeds have too few effective draws or a divergence and are not trusted.
        config.posterior.update(draws=1500, warmup=300, chains=1, max_tree_depth=12)
        if config.arguments.scale == "tiny":
            config.posterior.update(draws=600, warmup=400, target_accept=0.99)
    if config.arguments.scale == "paper":
        config.posterior.update(draws=10_000, chains=10, warmup=1000)
    return config
