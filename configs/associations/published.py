r"""Does cutting an MLP improve the next tokens of published models? (arXiv 2406.03068)

    python experiments/run.py --config=configs/associations/published.py:what=table1,scale=paper

what          model and prompts                                   expected (published, full -> cut)
table1        Pythia-1B, "Madrid is located in"                   probability of "the" .499 -> .027,
                                                                  of "Spain" .079 -> .300
figure5_fact  the same at 154 steps of training                   "the" rises after about 10 steps
figure5_ioi   Pythia-1B, 100 sentences with an indirect           P(indirect object) / P("the")
              object (IOI), 154 steps of training                 2.3 -> 12.3
figure14_*    Pythia 160M, 410M and 1B, after 30 prepositions     "the" is among the likeliest words
              (`words`) or 40 sentences, 154 steps of training    after about 10 steps
figure15_*    Pythia 410M and 1B, IOI                             "the" falls, the object stays
figure16_*    Pythia 1B, 1.4B and 2.8B, 20 facts of Table 5       "the" falls against the answer
figure17      GPT-2 small, Mary and John, layers 9 to 12          "the" and "them" fall

scale  sizes                                                 time
tiny   a random tiny model (its numbers are meaningless)     5 CPU seconds
small  the published model, 20 prompts, 12 steps             20 minutes on a CPU
paper  all prompts, all 154 steps                            hours: each step is a download

The cut matrices and the ranks that they keep are those of the paper's appendix C.2. The paper
counts layers from 1: its layer 16 is block_15. Steps of training are revisions of the model on the
hub.

Weights come from the hub or from a folder, given by --config.figure.source=FOLDER. Several models
can be in one folder, named as on the hub, to which the variable JAXFORMER_MODELS points:
FOLDER/EleutherAI/pythia-1b, and FOLDER/EleutherAI/pythia-1b@step1000 for a revision.
"""

from configs import common

SECONDS = {"tiny": 5, "small": 1200, "paper": 6 * 3600}
STEPS = (0, *(2**i for i in range(10)), *range(1000, 144_000, 1000))
SOME_STEPS = (0, 4, 8, 16, 64, 512, 1000, 2000, 14_000, 50_000, 100_000, 143_000)
# what -> (model, prompts, matrix, fractions, at all steps of training?)
WHAT = {
    "table1": ("pythia-1b", "madrid", "block_15/mlp/in", (0.0125,), False),
    "figure5_fact": ("pythia-1b", "madrid", "block_15/mlp/in", (0.0125,), True),
    "figure5_ioi": ("pythia-1b", "ioi", "block_10/mlp/in", (0.008,), True),
    "figure14_words_160m": ("pythia-160m", "words", "", (), True),
    "figure14_words_410m": ("pythia-410m", "words", "", (), True),
    "figure14_words_1b": ("pythia-1b", "words", "", (), True),
    "figure14_sentences_160m": ("pythia-160m", "sentences", "", (), True),
    "figure14_sentences_410m": ("pythia-410m", "sentences", "", (), True),
    "figure14_sentences_1b": ("pythia-1b", "sentences", "", (), True),
    "figure15_410m": ("pythia-410m", "ioi", "block_21/mlp/in", (0.02,), False),
    "figure15_1b": ("pythia-1b", "ioi", "block_10/mlp/in", (0.008,), False),
    "figure16_1b": ("pythia-1b", "facts", "block_15/mlp/in", (0.0125,), False),
    "figure16_1.4b": ("pythia-1.4b", "facts", "block_23/mlp/in", (0.025,), False),
    "figure16_2.8b": ("pythia-2.8b", "facts", "block_31/mlp/in", (0.04,), False),
    "figure17": (
        "gpt2",
        "mary",
        "block_(8|9|10|11)/mlp/in",
        (0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9),
        False,
    ),
}


def get_config(arg: str = ""):
    arguments = common.parse(arg, what=tuple(WHAT), scale=common.SCALES)
    model, prompt, matrix, fractions, all_steps = WHAT[arguments["what"]]
    scale = arguments["scale"]
    steps = STEPS if scale == "paper" else SOME_STEPS
    config = common.figure(
        "associations/published",
        arguments,
        name="associations_published",
        source=model if model == "gpt2" else f"EleutherAI/{model}",
        revisions=tuple(f"step{step}" for step in steps) if all_steps else ("",),
        prompt=prompt,
        sentences=0 if scale == "paper" else 20,  # 0: all prompts, 100 of kind ioi
        matrix=matrix,
        fractions=fractions,
        dtype="float32",
    )
    if scale == "tiny":
        config.figure.update(
            source="tiny:gpt2" if model == "gpt2" else "tiny:gpt_neox",
            revisions=("step0", "step1") if all_steps else ("",),
            sentences=3,
            matrix="block_1/mlp/in" if matrix else "",
            fractions=(0.07, 0.2)[: len(fractions)],
        )
    return config
