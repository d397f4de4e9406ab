"""Of the MixiT papers: drawings and tables of settings."""

from experiments.ledger.item import Item

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
    "n = 128 in Table 4: `memorization.py` and `capacity.py`. The test compares five of the nine "
    "settings.",
    also="version B, Table 8",
)
