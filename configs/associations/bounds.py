r"""Do Theorem 1 and Lemmas D.1 and D.2 keep to their bounds often enough? (arXiv 2406.03068)

    python experiments/run.py --config=configs/associations/bounds.py:scale=small

scale  sizes                                        time            expected result
tiny   16 symbols, 64 tokens, 2,048 samples         10 CPU seconds  none: a test run
small  64 symbols, 256 tokens, 65,536 samples,      8 CPU minutes   a bound holds always or never
       100 trials
paper  the same as small                            8 CPU minutes   a bound holds always or never

Each bound may fail with probability .05. A hundred trials within it show that it fails in less than
3.7 % of all, four only that it fails in less than 60 %. Lemma D.1 is measured as printed, and with
the 1/(N+1) that its mean lacks. Theorem 1 is measured with the inputs of its proof (the current
token) and of its statement (the current and the previous token).
"""

from configs import common

SECONDS = {"tiny": 10, "small": 480, "paper": 480}


def get_config(arg: str = ""):
    arguments = common.parse(arg, scale=common.SCALES)
    tiny = arguments["scale"] == "tiny"
    return common.figure(
        "associations/bounds",
        arguments,
        name="associations_bounds",
        alpha=0.3,  # probability of the noise
        delta=0.05,  # probability with which a bound may fail
        N=16 if tiny else 64,
        T=64 if tiny else 256,
        samples=2048 if tiny else 65_536,
        trials=8 if tiny else 100,
    )
