r"""Heat maps of the order parameter: which attention paths a network uses and combines.

    python experiments/run.py --config=configs/attention_paths/order_parameter.py:scale=small

scale  what                                   time             expected
tiny   8 tokens, 20 features, N = 5 and 200   10 CPU seconds   N=5 far from I, N=200 near
small  the paper's task, N = 10, 100, 1000    35 CPU seconds   12.00, 6.85, -4.65 at N=10
paper  the same, 8000 draws                   1 CPU minute     the same, smaller errors

The paper claims (arXiv 2405.15926): U^{pi pi'} = <V^pi . V^pi'> shows which paths the
network uses; good and denoising grow as N falls and are anticorrelated: the network subtracts the
denoising path from the good one. Expected at N=10: 12.00, 6.85 and -4.65 in theory; 13.1, 7.34
and -5.09 sampled, exact at this N; at N=1000 the diagonal is 1.1 to 1.3.

The paper identifies two different Gram matrices. (A), without the input projection, has mean E[U]
at every width; the authors' code measures it. (B), the main text's <V_eff V_eff^T>/n, is
E[U - U G U / n]: at N=100, n=231 its good-denoising entry is -.49 where U has -.30. They agree only
for n >> N. The order of paths is good, a1, denoising, a2 (h_1 slowest; the paper swaps a1 and
denoising).

Your own data: --config.data.file=my.npz, with `attentioned` (examples, paths, n), `heads` and
`labels`, or with `tokens`, `attention_1` .. and `labels`. All arrays of such a file are listed in
experiments/papers/attention_paths/user_problem.py.
"""

from configs import common

SECONDS = {"tiny": 10, "small": 35, "paper": 60}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    tiny = arguments["scale"] == "tiny"
    config = common.figure(
        "attention_paths/order_parameter",
        arguments,
        name="paths_order_parameter",
        task=common.hidden_markov(arguments["scale"]),
        widths=(5, 200) if tiny else (10, 100, 1000),
        temperature=0.1 if tiny else 0.01,
        draws=200 if tiny else 2000,
        warmup=150 if tiny else 300,
    )
    if arguments["scale"] == "paper":
        config.figure.draws = 8000
    return config
