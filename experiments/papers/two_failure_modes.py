"""arXiv 2505.24333."""

from experiments.papers.item import Paper

PAPER = Paper(
    "two_failure_modes",
    "Two failure modes of deep transformers and how to avoid them",
    "arXiv 2505.24333",
    (),
)
