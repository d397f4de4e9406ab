"""arXiv 2405.15926."""

from experiments.papers.item import Paper

PAPER = Paper(
    "attention_paths",
    "Dissecting the interplay of attention paths in a statistical mechanics theory of transformers",
    "arXiv 2405.15926",
    (),
)
