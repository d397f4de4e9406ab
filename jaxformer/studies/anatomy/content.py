"""`Content`: what was measured about one transformer, and the sentences that it decides."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from jaxformer.core.text_format import counted
from jaxformer.interp import mechanisms
from jaxformer.studies.anatomy import components, sentences, together
from jaxformer.studies.anatomy.components import DecidedEffect
from jaxformer.studies.anatomy.during import During
from jaxformer.studies.anatomy.effects import Effect
from jaxformer.studies.anatomy.inside import Inside
from jaxformer.studies.anatomy.judge import Table
from jaxformer.studies.anatomy.prompt_changes import PromptChanges
from jaxformer.studies.anatomy.sentences import Sentence
from jaxformer.studies.anatomy.smallest import Elimination


@dataclass(frozen=True, eq=False)
class Content:
    """The comparisons of one transformer, and what they decide.

    Attributes:
      name: the name of the task, run or model.
      training: the comparisons of trained variants; None for a published model.
      curves: {variant: [(step, training loss)]} of the first seed at the chosen learning rate.
      inside: the effects of the components of a trained network; None if it was not examined.
      maps: {head: (B, T, T)} attention of the heads that matter.
      tokens: a text for each token of each prompt.
      theory: lines of text with predictions of the papers' theories.
      costs: numbers such as "trainings" and "seconds".
      settings: the settings of the training, for the page.
      during: the parts at several steps of training; None if they were not measured.
      smallest: the searches for the smallest set of trained parts and the smallest network.
    """

    name: str
    training: Table | None = None
    curves: Mapping[str, list[tuple[int, float]]] = field(default_factory=dict)
    inside: Inside | None = None
    maps: Mapping[str, Any] = field(default_factory=dict)
    tokens: Sequence[Sequence[str]] = ()
    theory: Sequence[str] = ()
    costs: Mapping[str, float] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    smallest: Sequence[Elimination] = ()
    during: During | None = None

    @cached_property
    def decided(self) -> list[Sentence]:
        """The sentences about trained variants, each with its part, method and outcome."""
        return sentences.sentences(self.training) if self.training else []

    @cached_property
    def effects(self) -> list[DecidedEffect]:
        """The effects in the trained network.

        Their p-values are corrected together with those of the trained variants.
        """
        if self.inside is None:
            return []
        p_values = [row.p for row in self.training.rows] if self.training else []
        return components.decide([*self.inside.effects, *self.inside.groups], p_values)

    @cached_property
    def effect_sentences(self) -> list[tuple[str, Effect]]:
        """Sentences about components, with the effects that they state."""
        if self.inside is None or self.inside.nothing_to_explain:
            return []
        return components.sentences(self.inside, self.effects)

    @cached_property
    def group_sentences(self) -> list[str]:
        """Sentences about which parts can go, and about what parts do together."""
        if self.inside is None or self.inside.nothing_to_explain:
            return []
        score = mechanisms.LOG if "nats" in self.inside.unit else mechanisms.LOGITS
        return together.sentences(
            self.inside.mechanisms,
            self.inside.spares,
            score=score,
            n_networks=self.inside.networks,
        )

    @property
    def undecided(self) -> str:
        """The line that comes first where no sentence is about training; "" otherwise."""
        if self.training is None or not self.training.rows or self.decided:
            return ""
        n_rows = len(self.training.rows)
        # Of what is decided, only "one part alone is not enough" has no sentence of its own.
        if n_decided := sum(row.is_decided for row in self.training.rows):
            return (
                f"No part that was trained alone is enough: {n_decided} of {n_rows} comparisons "
                "are decided."
            )
        return (
            f"Nothing is decided about training yet: {n_rows} of {n_rows} comparisons are open. A "
            "larger budget decides more of them."
        )

    @property
    def sources_of_error(self) -> str:
        """The samples behind the intervals of the effects in the trained network."""
        if self.inside is None:
            return ""
        prompts = counted(self.inside.samples, "prompt")
        if self.inside.networks == 1:
            return f"One trained network: the intervals are over {prompts} and not over seeds."
        return (
            f"Intervals of blocks and groups are over {self.inside.networks} trained networks and "
            f"{prompts}; those of single heads and of pairs hold for the network of seed 0."
        )

    @property
    def next_steps(self) -> list[str]:
        """Lines about a good next command."""
        steps = []
        if self.training is not None:
            n_open = sum(not row.is_decided for row in self.training.rows)
            if n_open and not self.undecided:
                steps.append(
                    f"{n_open} of {len(self.training.rows)} comparisons are open: a larger "
                    "budget or more seeds continue from here."
                )
            if not self.smallest and not self.undecided:
                steps.append(
                    "--smallest finds the smallest set of trained parts and the smallest network "
                    "that are no worse."
                )
        heads = [effect.part for _, effect in self.effect_sentences if "/head_" in effect.part]
        if heads:
            steps.append(
                f"Look at {components.part_name(heads[0]).lower()}: its attention is in "
                "anatomy.html, and jaxformer.interp.circuits finds the edges that carry the answer."
            )
        # Of the network of a run there is one, however many seeds were trained beside it.
        is_one = self.inside is not None and self.inside.networks == 1
        if is_one and self.training is not None and self.training.whole.score.n == 1:
            steps.append("With more seeds the trained networks are examined together.")
        return steps

    @property
    def sentences(self) -> list[str]:
        """A sentence for each decided comparison, the largest losses first."""
        texts = [sentence.text for sentence in self.decided]
        effects = [text for text, _ in self.effect_sentences]
        found = [elimination.sentence for elimination in self.smallest]
        when = [] if self.during is None else self.during.sentences
        return [*texts, *effects, *self.group_sentences, *self.null_sentences, *found, *when]

    @property
    def null_sentences(self) -> list[str]:
        """The networks with which the numbers are compared, or why there is nothing to explain."""
        if self.inside is None:
            return []
        line = self.inside.nothing_to_explain
        if not line and self.effect_sentences:
            line = self.inside.null_line
        return [line[0].upper() + line[1:]] if line else []

    @property
    def changes(self) -> PromptChanges:
        """The loss or gain of each pair of prompts, by network, part or group, and method."""
        return PromptChanges() if self.inside is None else self.inside.changes

    @property
    def labels_table(self) -> list[dict[str, Any]]:
        """A dict for each head and rule of attention, beside the largest score of null networks."""
        if self.inside is None:
            return []
        return [
            {
                "head": row.head,
                "label": row.label,
                "score": row.score.mean,
                "half_width": row.score.half_width,
                "null": row.null,
                "is_label": row.is_label,
            }
            for row in self.inside.head_scores
        ]

    @cached_property
    def effect_table(self) -> list[dict[str, Any]]:
        """One dict for each effect of a component: `pandas.DataFrame(report.effect_table)`."""
        rows = []
        for row in self.effects:
            decided = {"q_value": row.q, "is_decided": row.is_decided}
            rows.append(
                {**dataclasses.asdict(row.effect), **decided, "null": self._null(row.effect)}
            )
        return rows

    def _null(self, effect: Effect) -> float | None:
        """The mean effect of a part's mean ablation in null networks; None if not measured."""
        if self.inside is None or effect.method != "mean ablation":
            return None
        of_nulls = self.inside.null_effects.get(effect.part, ())
        if not of_nulls:
            return None
        return sum(null.mean for null in of_nulls) / len(of_nulls)

    @cached_property
    def table(self) -> list[dict[str, Any]]:
        """One dict for each comparison: `pandas.DataFrame(report.table)`."""
        table = self.training
        if table is None:
            return []
        return [
            {
                "part": row.cell.variant.part,
                "block": row.cell.variant.layer,
                "method": row.cell.variant.method,
                "share": table.share(row),
                "half_width": table.share_half_width(row),
                "score": row.cell.score.mean,
                "standard_error": row.cell.score.error,
                "seeds": row.cell.score.n,
                "learning_rate": row.cell.rate,
                "rates_tried": max(len(row.cell.rates), 1),
                "q_value": row.q,
                "outcome": row.outcome,
                "steps": row.cell.steps,
                "control": str(row.control),
            }
            for row in table.rows
        ]

    @property
    def verdicts(self) -> dict[str, str]:
        """{part: verdict}; a part of one block is named such as "MLP of block 1"."""
        if self.training is None:
            return {}
        return {
            part if layer is None else f"{part} of block {layer}": verdict
            for (part, layer), verdict in self.training.verdicts().items()
        }
