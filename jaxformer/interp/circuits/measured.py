"""A network and pairs of prompts, ready for the measurements of edges and circuits."""

import copy
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, check_choice, check_range
from jaxformer.interp import answers as answer_scores
from jaxformer.interp.answers import Answers
from jaxformer.interp.capture.running import check_tokens
from jaxformer.interp.circuits import blockwise, running, scoring
from jaxformer.interp.circuits.graph import Edge, Graph, graph_of
from jaxformer.interp.circuits.scoring import Metric
from jaxformer.models.model import Model
from jaxformer.models.texts import as_tokens

ABLATIONS = ("resample", "mean", "zero")
MAX_CASES = 16  # circuits that run at once
MAX_NUMBERS = 2**24  # of activations that run at once, as one address has them
MAX_REST = 0.25  # of what all edges do, that attributions may miss without a warning
EXACT_EDGES = 3000  # up to so many edges are patched one by one; more are attributed
# Changes below this share of what the prompts decide are rounding errors.
ROUNDING = 1e-5


class Wiring:
    """The edges of a network on pairs of prompts.

    Args:
        model: a model with activation addresses: a decoder, an encoder, a published model, or a
            Linen module of your own with `tap` (see `graph.graph_of`).
        params: its parameters.
        clean: the tokens of the clean prompts, (B, T), or texts.
        corrupted: the tokens of the corrupted prompts, with the same shape.
        answers: the scored positions and the answers of the clean prompts.
        ablation: what replaces an edge that is cut. "resample" gives it the value of the corrupted
            prompt, so a circuit is what tells the two apart. "mean" takes the mean over all prompts
            at each position, "zero" nothing at all. Zero also asks for what never varies, such as
            the positions that a previous-token head reads.
        metric: a function of logits (B, K, V) at the scored positions and of the answers that
            returns (B,): `answers.score`, `answers.margin`, which are compiled, or your own, which
            runs operation by operation whenever it is needed.

    Example:
        wiring = circuits.Wiring(model, params, clean, corrupted, answers)
        scores = wiring.attribute()
        print(wiring.curve(scores))
    """

    def __init__(
        self,
        model: Model,
        params: Mapping[str, Any],
        clean: Any,
        corrupted: Any,
        answers: Answers,
        *,
        ablation: str = "resample",
        metric: Metric = answer_scores.score,
    ):
        check_choice("ablation", ablation, ABLATIONS)
        clean, corrupted = (_tokens(as_tokens(model, x)) for x in (clean, corrupted))
        if clean.shape != corrupted.shape or clean.ndim != 2 or not clean.size:
            raise UserError(
                "clean and corrupted prompts must have one shape (prompts, tokens), got "
                f"{clean.shape} and {corrupted.shape}: a circuit needs prompts of one length."
            )
        check_tokens(model, clean)
        check_tokens(model, corrupted)
        self.model, self.params, self.metric, self.ablation = model, params, metric, ablation
        self.answers = Answers(*(jnp.asarray(x) for x in answers))
        self.tokens_BxT, self.corrupted_BxT = jnp.asarray(clean), jnp.asarray(corrupted)
        self.graph: Graph = graph_of(model, params, clean)
        self.others = self._others()
        kind = blockwise.Blockwise if blockwise.is_additive(model) else running.Whole
        position_BxK = self.answers.position_BxK
        self.setting = running.Setting(
            model, params, self.graph, self.tokens_BxT, self.others, position_BxK
        )
        self.network: running.MaskedNetwork = kind(self.setting)
        self._ends_2xBxKxV = self._ends()
        whole, nothing = self.whole_B, self.nothing_B
        if self.scale <= ROUNDING * max(np.abs(whole).max(), np.abs(nothing).max(), 1.0):
            raise UserError(
                f"the score is {whole.mean():.4g} with all edges and without any: it is constant, "
                "so no edge can matter. Give corrupted prompts that change the answer."
            )

    def with_params(self, params: Mapping[str, Any]) -> "Wiring":
        """The same prompts, answers and edges in a network with other parameters, such as a null.

        Unlike a new wiring it may have a score that no edge changes.
        """
        other = copy.copy(self)
        other.params = params
        other.others = other._others()
        other.setting = self.setting._replace(params=params, others=other.others)
        other.network = self.network.with_setting(other.setting)
        other._ends_2xBxKxV = other._ends()
        return other

    def of_prompts(self, numbers: Sequence[int] | np.ndarray) -> "Wiring":
        """The same network on some of the prompts; means are still those over all of them."""
        part, index = copy.copy(self), np.asarray(numbers)
        part.tokens_BxT, part.corrupted_BxT = self.tokens_BxT[index], self.corrupted_BxT[index]
        part.answers = Answers(*(x[index] for x in self.answers))
        part.others = {address: x[index] for address, x in self.others.items()}
        part.setting = self.setting._replace(
            tokens_BxT=part.tokens_BxT,
            others=part.others,
            position_BxK=part.answers.position_BxK,
        )
        part.network = self.network.with_setting(part.setting)
        part._ends_2xBxKxV = self._ends_2xBxKxV[:, index]
        return part

    def _ends(self) -> jax.Array:
        """Returns the logits with all edges and without any, (2, B, K, V)."""
        all_or_none_2xE = np.array([True, False])[:, None].repeat(self.n_edges, 1)
        ends_2xBxKxV = jnp.concatenate([*self._logits(all_or_none_2xE)])
        scores_2xB = self._metric(ends_2xBxKxV)
        if not np.isfinite(scores_2xB).all():
            raise UserError(
                "the score of some prompts is not finite: the network or the metric returns nan."
            )
        return ends_2xBxKxV

    @property
    def edges(self) -> list[Edge]:
        return self.graph.edges

    @property
    def n_edges(self) -> int:
        return len(self.graph.edges)

    @property
    def whole_B(self) -> np.ndarray:
        """The metric with all edges."""
        return self._metric(self._ends_2xBxKxV[:1])[0]

    @property
    def nothing_B(self) -> np.ndarray:
        """The metric without any edge."""
        return self._metric(self._ends_2xBxKxV[1:])[0]

    @property
    def scale(self) -> float:
        """The mean absolute change of the metric that all edges make together."""
        return float(np.abs(self.whole_B - self.nothing_B).mean())

    def scores(self, chosen_CxE: np.ndarray) -> np.ndarray:
        """Returns the metric (C, B) of each circuit, given as booleans over all edges.

        Edges outside a circuit carry the values of the ablation.
        """
        chosen_CxE = np.atleast_2d(chosen_CxE)
        if not len(chosen_CxE):
            return np.zeros((0, len(self.tokens_BxT)))
        return np.concatenate([self._metric(logits) for logits in self._logits(chosen_CxE)])

    def _metric(self, logits_CxBxKxV: jax.Array) -> np.ndarray:
        return scoring.scores(self.metric, logits_CxBxKxV, self.answers)

    def _logits(self, chosen_CxE: np.ndarray) -> Iterator[jax.Array]:
        """Yields the logits (C, B, K, V) of some circuits at a time."""
        width = max(x.size for x in jax.tree.leaves(self.others)) * len(self.graph.readers)
        at_once = int(np.clip(MAX_NUMBERS // width, 1, MAX_CASES))
        for start in range(0, len(chosen_CxE), at_once):
            # The last circuit is repeated, so that one size is compiled.
            index = np.minimum(np.arange(start, start + at_once), len(chosen_CxE) - 1)
            masks_CxRxS = np.moveaxis(self.graph.mask(chosen_CxE[index].T), -1, 0)
            yield self.network.logits(masks_CxRxS)[: len(chosen_CxE) - start]

    def circuit_scores(self, circuit: Iterable[Edge]) -> np.ndarray:
        """Returns the metric (B,) of one circuit, given as edges."""
        return self.scores(self.graph.chosen(circuit)[None])[0]

    @property
    def parts(self) -> list[str]:
        """The heads and MLPs."""
        return self.graph.sources[1:]

    def without(self, groups: Iterable[Sequence[str]]) -> np.ndarray:
        """Returns the metric (C, B) without each group of parts, whose edges are all cut."""
        chosen = [[edge.source not in set(parts) for edge in self.edges] for parts in groups]
        return self.scores(np.array(chosen, bool).reshape(-1, self.n_edges))

    def patch(self) -> np.ndarray:
        """Returns how much each edge adds to the metric, (E, B): exactly, one run for each edge.

        An edge that alone takes the value of the ablation shows what it carries that no other edge
        carries too. Two edges that do the same thing both have an effect of 0.
        """
        effects_ExB = self.whole_B - self.scores(~np.eye(self.n_edges, dtype=bool))
        return self._checked(effects_ExB)

    def attribute(self, steps: int = 5) -> np.ndarray:
        """Returns integrated gradients of the metric with respect to each edge, (E, B).

        All edges go from 0 to 1 together in `steps` steps, and the gradients in the middle of each
        are averaged. So the numbers of all edges sum to the metric of the network minus that
        without any edge, up to the error of the steps. One step is edge attribution patching at
        one half. It costs `steps` gradients, however many edges there are.
        """
        check_range("steps", steps, 1, 1000)
        total_RxSxB: Any = 0.0
        for level in (np.arange(steps, dtype=np.float32) + 0.5) / steps:
            total_RxSxB += self.network.slopes(level, self._slope)
        scores_ExB = self._checked((total_RxSxB / steps)[self.graph.exists_RxS])
        rest = float(np.abs(scores_ExB.sum(0) - (self.whole_B - self.nothing_B)).mean())
        if rest > MAX_REST * self.scale:
            warnings.warn(
                f"the attributions of all edges miss {rest / self.scale:.0%} of what all edges do: "
                f"take more than {steps} steps. With norms and ablation='zero' no number of steps "
                "suffices, because a norm undoes the common factor of all edges.",
                stacklevel=2,
            )
        return scores_ExB

    def edge_scores(self) -> np.ndarray:
        """Returns the default scores of all edges, (E, B): exact for up to some thousand edges.

        Integrated gradients miss steps of the network, so they are the choice only where a run for
        each edge costs too much.
        """
        return self.patch() if self.n_edges <= EXACT_EDGES else self.attribute()

    def _slope(self, logits_BxKxV: jax.Array) -> jax.Array:
        return scoring.slope(self.metric, logits_BxKxV, self.answers)

    def _others(self) -> running.Values:
        """Returns {address: what replaces the outputs of nodes}."""
        outputs = blockwise.outputs if blockwise.is_additive(self.model) else running.outputs
        other = outputs(self.model, self.params, self.graph, self.corrupted_BxT)
        if self.ablation == "resample":
            return other
        if self.ablation == "zero":
            return jax.tree.map(jnp.zeros_like, other)
        clean = outputs(self.model, self.params, self.graph, self.tokens_BxT)

        def mean(x: jax.Array, y: jax.Array) -> jax.Array:
            return jnp.broadcast_to(((x + y) / 2).mean(0, keepdims=True), x.shape)

        return jax.tree.map(mean, clean, other)

    def _checked(self, effects_ExB: np.ndarray) -> np.ndarray:
        broken_E = ~np.isfinite(effects_ExB).all(1)
        if broken_E.any():
            first = self.edges[int(broken_E.argmax())]
            raise UserError(
                f"the effect of {int(broken_E.sum())} of {self.n_edges} edges is not finite, the "
                f"first is {first}: the network returns nan when this edge is cut."
            )
        return effects_ExB


def _tokens(prompts: Any) -> np.ndarray:
    """Returns prompts as one array; lists of different lengths are none."""
    try:
        return np.asarray(prompts)
    except ValueError:
        lengths = sorted({len(prompt) for prompt in prompts})
        raise UserError(
            f"the prompts have {lengths[0]} to {lengths[-1]} tokens: a circuit needs prompts of "
            "one length."
        ) from None
