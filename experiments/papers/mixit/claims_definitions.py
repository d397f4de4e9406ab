"""Drawings and tables of settings of the MixiT papers, which claim no number.

`defines` tells where the repository has the content of the drawing or table.
"""

from experiments.ledger.item import Item

VARIANTS = Item(
    "Figure 1",
    "A drawing of the variants: what each of them trains, and what it mixes tokens with.",
    defines="`jaxformer/core/variants.py`: VARIANTS lists the mixer and the partition rules of "
    "each variant. Every run prints which parameters are frozen.",
)

GRID = Item(
    "Table 7",
    "The ranges of the grid search.",
    defines="`configs/sweeps/table7_*.toml`; `python experiments/sweep.py --file=... --dry-run` "
    "lists the runs of a grid.",
    note="Batch sizes and ranges differ between tasks.",
)

OPTIMA = Item(
    "Table 8",
    "The best settings of MixiT for each task.",
    defines="`scale=paper` of the configs, as in `configs/mixit/addition.py`. A test compares "
    "five of the nine settings with the table.",
    note="The best settings of Standard and Frozen-QK are not published. For memorisation this "
    "table has n = 1024 (`memorization.py`) and Table 4 has n = 128 (`capacity.py`).",
)
