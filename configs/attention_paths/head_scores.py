r"""Head scores of the hidden Markov network, and the accuracy lost by pruning each head.

    python experiments/run.py --config=configs/attention_paths/head_scores.py:scale=small

scale  what                                  time             expected
tiny   8 tokens, 20 features, two datasets   3 CPU seconds    scores spread at N=5
small  the paper's task, 3 datasets          5 CPU seconds    N=10: .80 .57 1 .10
paper  10 datasets                           15 CPU seconds   N=10: .80 .59 1 .10

The score of a head is the sum of |U^{pi pi'}| over pairs of which a path passes it, divided by the
largest. The paper claims that it predicts which heads can be pruned. Expected at N=10 (10
datasets): .80 .59 1 .10 for (1)1 (1)2 (2)1 (2)2; at N=1000 .96 .95 1 .92, where scores hardly
differ. Pruning sets rows and columns of U to zero and does not solve for U again. For trained
networks see oneshot.py.

Your own data: --config.data.file=my.npz, with `attentioned` (examples, paths, n), `heads` and
`labels`, or with `tokens`, `attention_1` .. and `labels`. All arrays of such a file are listed in
experiments/papers/attention_paths/user_problem.py.
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
