"""Of the MixiT papers: drawings, settings, and what needs data or a machine we lack."""

from experiments.ledger.item import CODE_DIFFERS, Item

VARIANTS = Item(
    "Figure 1",
    "A drawing of the variants: what each of them trains, and what it mixes tokens with.",
    defines="`configs/common.py`: VARIANTS, a mixer and two strings a variant; what is frozen is "
    "printed by every run.",
)

GRID = Item(
    "Table 7",
    "The ranges of the grid search.",
    defines="`configs/sweeps/table7_*.toml`; `python experiments/sweep.py --file=... --dry-run` "
    "lists what one is.",
    note="Batches and ranges differ by task.",
    also="version B, Table 7",
)

OPTIMA = Item(
    "Table 8",
    "The best settings of MixiT for each task.",
    defines="scale=paper of the configs, as in `configs/mixit/addition.py`; a test compares them.",
    note="Those of Standard and Frozen-QK are not published. Memorisation has n = 1024 here and "
    "n = 128 in Table 4; the config follows Table 4.",
    also="version B, Table 8",
)

YELP = Item(
    "Table 1, Yelp polarity",
    "MixiT classifies reviews at 92.6 %, above Standard's 90.6 %.",
    needs="Yelp reviews and the Llama tokenizer",
    note="Not like for like: in the code MixiT mixes both ways and Standard stays causal.",
    flags=(CODE_DIFFERS,),
    also="version B, Table 3",
)

PERPLEXITIES = {"WikiText-103": "2.78, 3.07, 3.73", "FineWeb-Edu": "3.05, 3.16, 4.08"}
LANGUAGE = tuple(
    Item(
        f"Table 3, {name}",
        f"Log perplexity: Frozen-QK comes close to Standard, MixiT lags behind ({values}).",
        needs=f"{name} and the Llama tokenizer",
        note='"Log perplexity" is a mean of batch means in the code: it depends on the batch size.',
        also="version B, Table 2",
    )
    for name, values in PERPLEXITIES.items()
)

THROUGHPUT = Item(
    "Appendix C, throughput",
    "Frozen-QK trains 1.24 and MixiT 1.32 times as fast as Standard.",
    needs="an H100; `python benchmarks/lab_huggingface.py` times steps of Standard on a CPU",
    note="Neither version says how many GPUs.",
    also="version B, Appendix D",
)
