"""The results of the demo: one of each paper, with its runs and the sentence that states it."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from experiments.papers import demo_agreement, sentences
from jaxformer.core.variants import label


class Part(NamedTuple):
    """A run of the demo: its name, config, overrides, and its approximate CPU seconds."""

    name: str
    config: str
    seconds: float
    overrides: Mapping[str, str] = {}


class Headline(NamedTuple):
    """The result of a paper in the demo, with the runs that show it."""

    paper: str  # a key of PAPERS
    item: str  # such as "Table 2, retrieval"
    parts: Mapping[str, Part]  # by the cell names that the sentence uses
    sentence: Callable[[sentences.Runs], str]
    agrees: Callable[[sentences.Runs], bool] | None = None  # whether the full run shows the same

    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts.values())


def three_seeds(task: str, variant: str) -> Part:
    """Returns the training of a variant in a task of the MixiT paper."""
    file = {"retrieval": "retrieval", "memorisation": "memorization"}[task]
    config = f"configs/mixit/{file}.py:variant={variant},scale=tiny"
    return Part(f"{task}, {label(variant)}", config, 15, {"n_seeds": "3"})


# The sizes lie between tiny, which shows only that the code runs, and small, which takes ten times
# as long.
RECALL = {
    "n_seeds": "3",
    "task.context": "32",
    "model.width": "128",
    "train.batch_size": "32",
    "train.steps": "250",
    "train.eval_every": "250",
    "optim.learning_rate": "0.05",
    "recall.probe_every": "50",
    "recall.followed": "()",
    "data.test_size": "128",
}
SDE = Part(
    "SDE and networks",
    "configs/mixit/sde_paths.py:scale=small",
    20,
    {"figure.widths": "(50, 200)"},
)
DIAGRAM = Part(
    "trainability diagram", "configs/two_failure_modes/fig1_trainability.py:scale=small", 30
)
POSTERIOR = Part("collapsed posterior", "configs/attention_paths/posterior.py:scale=small", 25)
HEADLINES = (
    Headline(
        "mixit",
        "Table 2, retrieval",
        {
            "standard": three_seeds("retrieval", "standard"),
            "frozen_qk": three_seeds("retrieval", "frozen_qk"),
            "mixit": three_seeds("retrieval", "mixit"),
            "standard, memorisation": three_seeds("memorisation", "standard"),
            "mixit, memorisation": three_seeds("memorisation", "mixit"),
        },
        sentences.freezing,
        demo_agreement.freezing,
    ),
    Headline(
        "random_attention",
        "Theorem 2.1",
        {"paths": SDE},
        sentences.stochastic_equation,
        demo_agreement.stochastic_equation,
    ),
    Headline(
        "two_failure_modes",
        "Figure 1c",
        {"diagram": DIAGRAM},
        sentences.collapse_border,
        demo_agreement.collapse_border,
    ),
    Headline(
        "associations",
        "Figure 3",
        {"run": Part("noisy recall", "configs/associations/recall.py:scale=tiny", 20, RECALL)},
        sentences.noise,
        demo_agreement.noise,
    ),
    Headline(
        "attention_paths",
        "Figure 2c, bottom",
        {"sampled": POSTERIOR},
        sentences.order_parameter,
        demo_agreement.order_parameter,
    ),
)
