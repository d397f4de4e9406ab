r"""Do the theory's head scores predict which heads can be pruned? (arXiv 2405.15926)

    python experiments/run.py --config=configs/attention_paths/head_scores.py:scale=small

scale  sizes                                 time             expected scores of the four heads
tiny   8 tokens, 20 features, 2 data sets    3 CPU seconds    they differ at width 5
small  the paper's task, 3 data sets         5 CPU seconds    .80  .57  1  .10 at width 10
paper  10 data sets                          15 CPU seconds   .80  .59  1  .10 at width 10

The heads are in the order: first and second of layer 1, first and second of layer 2. The score of a
head is the sum of the absolute entries of the order parameter U over all pairs of paths of which at
least one passes the head, divided by the largest such sum. At width 1000 the scores hardly differ
(.96, .95, 1, .92, 10 data sets). Pruning a head sets the rows and columns of its paths in U to
zero; the rest of U stays as it is. For trained networks see configs/attention_paths/oneshot.py.

Your own data: --config.data.file=my.npz, with the arrays `attentioned` (examples, paths, features),
`heads` and `labels`, or with `tokens`, `attention_1`, `attention_2` and `labels`. All arrays of
such a file are listed in experiments/papers/attention_paths/user_problem.py.
"""

from configs import common

SECONDS = {"tiny": 3, "small": 5, "paper": 15}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    tiny = arguments["scale"] == "tiny"
    config = common.figure(
        "attention_paths/head_scores",
        arguments,
        name="paths_head_scores",
        task=common.hidden_markov(arguments["scale"]),
        widths=(5, 200) if tiny else (10, 100, 1000),
        temperature=0.01,
    )
    config.n_seeds = {"tiny": 2, "small": 3, "paper": 10}[arguments["scale"]]
    return config
