"""ICLR 2025."""

from experiments.papers.item import Paper

PAPER = Paper(
    "associations",
    "Distributional Associations vs In-Context Reasoning",
    "ICLR 2025",
    (),
)
