"""The ladders of all papers by name."""

from experiments.papers.associations import ladders as associations
from experiments.papers.attention_paths import ladders as attention_paths
from experiments.papers.mixit import ladders as mixit
from experiments.papers.two_failure_modes import ladders as two_failure_modes

PAPERS = (mixit, two_failure_modes, associations, attention_paths)
LADDERS = {ladder.name: ladder for paper in PAPERS for ladder in paper.LADDERS}
