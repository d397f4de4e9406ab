"""Measures what each block's attention, MLP and heads do in a network, on pairs of prompts.

    pairs = read_pairs("prompts.tsv", tokenizer)            or pairs_of_task(task)
    inside = measure(model, params, pairs)
    inside.effects                                          an `Effect` for each part and method

The effect of a method is the change of the score, with a positive sign if the part helps:

    mean and zero ablation,
    resampling                    score of the clean prompts - score with the part replaced
    rank 1 %, rank 10 %           score of the clean prompts - score with the part's matrices cut
                                  to this share of their rank
    patching, path patching       score with the clean part - score of the corrupted prompts
    attribution                   the first-order approximation of patching
    direct                        the contribution of the part's output to the score

`jaxformer.interp.components` and `contributions` define the methods.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, check_choice, one_line
from jaxformer.interp import contributions
from jaxformer.interp.answers import Answers
from jaxformer.interp.blocks import count_blocks
from jaxformer.interp.circuits import against_null
from jaxformer.interp.circuits.against_null import Total, over_draws
from jaxformer.interp.components import Measured
from jaxformer.interp.groups import Spare
from jaxformer.interp.mechanisms import Group
from jaxformer.interp.removal import Removal
from jaxformer.stats.ratios import Spread, spread
from jaxformer.studies.anatomy import layer_facts, together
from jaxformer.studies.anatomy.effects import Changes, Effect, effects_of, interval
from jaxformer.studies.anatomy.finished import Finished, folder_of, identity_of
from jaxformer.studies.anatomy.head_writes import head_writes
from jaxformer.studies.anatomy.labels import HeadScore, Labels, head_scores, why_no_labels
from jaxformer.studies.anatomy.layer_facts import KernelFacts, LayerFacts
from jaxformer.studies.anatomy.pairs import PromptPairs
from jaxformer.studies.anatomy.prompt_changes import PromptChanges

RANKS = {"rank 1 %": 0.01, "rank 10 %": 0.1}  # {method: the share of the rank that is kept}
REPLACING = (
    "mean ablation",
    "zero ablation",
    "resampling",
    "patching",
    "path patching",
    "attribution",
)
METHODS = (*REPLACING, *RANKS, "direct")
# Changes below this share of the largest score are rounding errors.
ROUNDING = 1e-5
MAX_NULL_HEADS = 64  # heads that are measured in null networks too


@dataclasses.dataclass(frozen=True)
class Inside:
    """The effects of the parts of a network on pairs of prompts.

    Attributes:
        score: the mean score of the clean prompts.
        half_width: the half width of its 95 % interval; nan for one pair.
        corrupted: the mean score of the corrupted prompts, for the clean prompts' answers.
        corrupted_half_width: the half width of the interval of `corrupted`.
        unit: the name of the score.
        samples: the number of pairs.
        effects: the effect of each part by each method, sorted by method, then by part.
        layers: facts about each block.
        kernels: facts about each matrix, by path.
        left_out: {method: why it is missing}.
        groups: the effects of removing several parts at once.
        spares: how many heads of a group can go at once.
        mechanisms: what parts of the first network do together.
        smallest: the loss that counts as none: 5 % of what the network knows about its prompts.
        labels: {head: (what it attends to, such as "induction", and its share of the attention)}.
        writes: {head: ("copy" or "negative", the share of the tokens that it attends to)}.
        head_scores: how much of each head's attention follows each rule, beside null networks.
        total: what the difference between clean and corrupted prompts does to the score, in the
            network and in null networks; None for one pair.
        null_effects: {part: what its mean ablation does in each null network}.
        changes: what each pair of prompts loses or gains, of which the effects are the means.
        networks: the trainings of the network, with different seeds. All of them count in the
            effects of blocks and groups; what is said about single heads holds for the first.
    """

    score: float
    half_width: float
    corrupted: float
    corrupted_half_width: float
    unit: str
    samples: int
    effects: tuple[Effect, ...]
    layers: tuple[LayerFacts, ...]
    kernels: dict[str, KernelFacts]
    left_out: dict[str, str]
    groups: tuple[Effect, ...] = ()
    spares: tuple[Spare, ...] = ()
    mechanisms: tuple[Group, ...] = ()
    smallest: float = 0.0
    networks: int = 1
    labels: Labels = dataclasses.field(default_factory=dict)
    writes: Labels = dataclasses.field(default_factory=dict)
    head_scores: tuple[HeadScore, ...] = ()
    total: Total | None = None
    null_effects: dict[str, tuple[Spread, ...]] = dataclasses.field(default_factory=dict)
    changes: PromptChanges = dataclasses.field(default_factory=PromptChanges)

    @property
    def nothing_to_explain(self) -> str:
        """The sentence that takes the place of all others; "" if the network knows something."""
        return "" if self.total is None else self.total.sentence

    @property
    def null_line(self) -> str:
        """A line on null networks: their scores, and the worth of their parts; "" without any."""
        if self.total is None or not self.total.nulls:
            return ""
        line = f"Networks with {self.total.null_name} tell clean from corrupted prompts by "
        line += f"{over_draws(self.total.null_means)}, this one by {self.total.network}"
        if self.null_effects:
            means = [abs(x.mean) for effects in self.null_effects.values() for x in effects]
            line += (
                "; no part of theirs, replaced by its mean, changes the score by more than "
                f"{max(means):.2g}"
            )
        return f"{line}."

    def certain_null(self, part: str) -> float:
        """The effect of a part by mean ablation that some null network surely has."""
        effects = self.null_effects.get(part, ())
        return max([0.0, *(abs(effect.mean) - effect.half_width for effect in effects)])


class Scores(NamedTuple):
    """The scores of clean and of corrupted prompts, as `against_null.total` reads them."""

    whole_B: np.ndarray
    nothing_B: np.ndarray


def measure(
    model: Any,
    params: Any,
    pairs: PromptPairs,
    *,
    methods: Sequence[str] = METHODS,
    heads: bool = True,
    initial: Any = None,
    others: Sequence[Any] = (),
    nulls: Sequence[Any] = (),
    null_name: str = "block weights drawn anew",
    folder: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Inside:
    """Measures the effect of each part on the score, with its error.

    Args:
        model: a decoder, an encoder, a recall model or a published model.
        params: its parameters.
        pairs: clean and corrupted prompts with their answers.
        methods: some of METHODS.
        heads: whether each head is a part, besides attention and MLP of each block.
        initial: the parameters before training, for the distance from initialisation.
        others: the parameters of the same network, trained with other seeds.
        nulls: the parameters of networks that cannot know the answer, for labels of heads, mean
            ablation and the difference between clean and corrupted prompts.
        null_name: what these networks are.
        folder: keeps each method that is finished, so that a stopped examination continues.
        progress: a function of the number of finished steps and of all steps.

    Raises:
        UserError: for a score that is not finite or that does not depend on the prompts.
    """
    for method in methods:
        check_choice("method", method, METHODS)
    if not model.spec.causal and pairs.ask_for_next_tokens:
        raise UserError(
            "the prompts ask for the next token, and this model attends to later tokens: it "
            "predicts masked ones, or copies its answers."
        )
    n_ranks = sum(method in RANKS for method in methods)
    n_passes = len(methods) - n_ranks + bool(n_ranks)  # all ranks are measured together
    n_steps = n_passes * count_blocks(model) * (1 + len(others))
    finished = 0

    def advance() -> None:
        nonlocal finished
        finished += 1
        if progress is not None:
            progress(min(finished, n_steps), n_steps)

    arrays = pairs.position, pairs.target, pairs.against, pairs.weight
    answers = Answers(*map(jnp.asarray, arrays))
    options = {"lengths": pairs.lengths, "heads": heads, "progress": advance}
    clean, corrupted, networks, in_groups = [], [], [], []
    layers: tuple[LayerFacts, ...] = ()
    first_kept: Finished | None = None
    for network_params in (params, *others):
        measured = Measured(model, network_params, pairs.clean, pairs.corrupted, answers, **options)
        clean_B, corrupted_B = (measured.scores(x) for x in (measured.clean, measured.corrupted))
        _check_scores(clean_B, corrupted_B, pairs)
        clean.append(clean_B)
        corrupted.append(corrupted_B)
        scores = clean_B, corrupted_B
        kept = Finished(folder and folder_of(folder, network_params, pairs, scores, heads))
        first_kept = first_kept or kept
        networks.append(changes_of(measured, methods, *scores, kept))
        if len(pairs) > 1:  # a sentence about a group has an interval
            first = in_groups[0] if in_groups else None
            in_groups.append(together.measure(Removal(measured), networks[-1], first))
        layers = layers or layer_facts.of_layers(measured, interval)
    tolerance = ROUNDING * max(*map(np.abs, (*clean[0], *corrupted[0])), 1.0)
    # A head has no counterpart in another network.
    shared = [{k: v for k, v in x.items() if "/head_" not in k[0]} for x in networks]
    own = {k: v for k, v in networks[0].items() if "/head_" in k[0]}
    effects = [*effects_of(shared, tolerance), *effects_of([own], tolerance)]
    order = {key: i for i, key in enumerate(networks[0])}
    effects.sort(key=lambda effect: order[effect.part, effect.method])
    groups, spares = together.combined(in_groups, tolerance) if in_groups else ([], [])
    total, null_effects = _nulls_of(
        model, nulls, pairs, answers, heads, (clean[0], corrupted[0]), null_name, first_kept
    )
    scores_of_heads = head_scores(model, params, nulls) if heads else []
    left_out = {}
    if heads and (why := why_no_labels(model)):
        left_out["labels of heads"] = why
    if "direct" in methods and not contributions.has_direct(model):
        left_out["direct"] = "the norms of this model have no scale that could be constant"
    return Inside(
        *interval(np.stack(clean))[:2],
        *interval(np.stack(corrupted))[:2],
        unit=pairs.unit,
        samples=len(pairs),
        effects=tuple(effects),
        layers=layers,
        kernels=layer_facts.of_kernels(params, initial),
        left_out=left_out,
        groups=tuple(groups),
        spares=tuple(spares),
        mechanisms=in_groups[0].mechanisms if in_groups else (),
        smallest=in_groups[0].smallest if in_groups else 0.0,
        networks=1 + len(others),
        labels={row.head: (row.label, row.score.mean) for row in scores_of_heads if row.is_label},
        writes=head_writes(model, params) if heads else {},
        head_scores=tuple(scores_of_heads),
        total=total,
        null_effects=null_effects,
        changes=PromptChanges(_alone_and_together(networks, in_groups), pairs.names),
    )


def _alone_and_together(
    networks: Sequence[Changes], in_groups: Sequence[together.Together]
) -> tuple[Changes, ...]:
    """The changes of single parts and of groups of each network."""
    empty = together.Together({}, {}, {}, 0.0)
    found = []
    for alone, of_groups in zip(networks, in_groups or [empty] * len(networks), strict=True):
        found.append(alone | of_groups.groups | of_groups.pairs)
    return tuple(found)


def _nulls_of(
    model: Any,
    nulls: Sequence[Any],
    pairs: PromptPairs,
    answers: Answers,
    heads: bool,
    scores: tuple[np.ndarray, np.ndarray],
    null_name: str,
    kept: Finished | None,
) -> tuple[Total | None, dict[str, tuple[Spread, ...]]]:
    """Scores of null networks on the prompts, and the worth of their parts by mean ablation.

    Of a network with many heads only the blocks' attention and MLPs are measured in its nulls,
    because each head of each null would cost as much as a head of the network.
    """
    if len(pairs) < 2:
        return None, {}
    with_heads = heads and getattr(model.spec, "heads", 0) * count_blocks(model) <= MAX_NULL_HEADS
    of_nulls: list[Scores] = []
    effects: dict[str, list[Spread]] = {}
    for params in nulls:
        measured = Measured(
            model,
            params,
            pairs.clean,
            pairs.corrupted,
            answers,
            lengths=pairs.lengths,
            heads=with_heads,
        )
        clean_B, corrupted_B = (measured.scores(x) for x in (measured.clean, measured.corrupted))
        if not np.isfinite([clean_B, corrupted_B]).all():
            raise UserError("a null network returns nan or infinity: give nulls of finite weights.")
        of_nulls.append(Scores(clean_B, corrupted_B))
        # Its parameters name a null, so that another one is not taken for it.
        name_of_null = f"null {identity_of(params)} mean ablation"
        change_LxCxB = None if kept is None else kept.get(name_of_null)
        if change_LxCxB is None:
            change_LxCxB = clean_B - measured.mean_ablation()
            if kept is not None:
                kept.put(name_of_null, change_LxCxB)
        for names, change_CxB in zip(measured.names, change_LxCxB, strict=True):
            for name, change_B in zip(names, change_CxB, strict=True):
                if name:
                    effects.setdefault(name, []).append(spread(change_B))
    total = against_null.total(
        Scores(*scores),
        of_nulls,
        null_name,
        what="the difference between clean and corrupted prompts changes",
    )
    return total, {part: tuple(values) for part, values in effects.items()}


def changes_of(
    measured: Measured,
    methods: Sequence[str],
    clean_B: np.ndarray,
    corrupted_B: np.ndarray,
    kept: Finished,
) -> Changes:
    """Returns what each method says about each part of one network, before any statistics."""
    low_rank = functools.cache(
        lambda: dict(zip(RANKS, measured.low_rank(*RANKS.values()), strict=True))
    )
    # L blocks, C components of a block (attention, MLP, then heads), B pairs.
    measures: dict[str, Callable[[], np.ndarray]] = {
        "mean ablation": lambda: clean_B - measured.mean_ablation(),
        "zero ablation": lambda: clean_B - measured.zero_ablation(),
        "resampling": lambda: clean_B - measured.resampling(),
        "patching": lambda: measured.patching() - corrupted_B,
        "path patching": lambda: measured.path_patching() - corrupted_B,
        "attribution": lambda: contributions.attribution(measured),
        **{rank: lambda rank=rank: clean_B - low_rank()[rank] for rank in RANKS},
    }
    if contributions.has_direct(measured.blocks.models[0]):
        measures["direct"] = lambda: contributions.direct(measured)
    changes: Changes = {}
    for method in [method for method in METHODS if method in methods and method in measures]:
        if (change_LxCxB := kept.get(method)) is None:
            change_LxCxB = measures[method]()
            kept.put(method, change_LxCxB)
        else:
            for _ in range(measured.n_blocks):
                measured.progress()
        for names, change_CxB in zip(measured.names, change_LxCxB, strict=True):
            # Low rank is not measured for heads. Their names are last, so `zip` leaves them out.
            for name, change_B in zip(names, change_CxB):
                if name:  # "" stands for the MLP of a block without MLP
                    changes[name, method] = change_B
    return changes


def _check_scores(clean_B: np.ndarray, corrupted_B: np.ndarray, pairs: PromptPairs) -> None:
    """Raises for scores that are not finite, and for prompts that do not change the score."""
    finite = np.isfinite(clean_B) & np.isfinite(corrupted_B)
    if not finite.all():
        first = one_line(pairs.names[int(finite.argmin())], 80)
        raise UserError(
            f"the score of {int((~finite).sum())} of {len(pairs)} pairs is not finite, the first "
            f"is {first!r}: the network returns nan or infinity."
        )
    scale = max(np.abs(clean_B).max(), np.abs(corrupted_B).max(), 1.0)
    if np.abs(clean_B - corrupted_B).max() <= ROUNDING * scale:
        raise UserError(
            f"the score is {clean_B.mean():.4g} on the clean and on the corrupted prompts: nothing "
            "to explain. Give corrupted prompts that change the answer."
        )
