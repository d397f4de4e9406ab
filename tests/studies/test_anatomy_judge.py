"""The judge of an anatomy report and its sentences, on planted numbers."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.stats.differences import Number, difference
from jaxformer.studies.anatomy import judge, parts, retraining, sentences
from jaxformer.studies.anatomy.judge import NO_WORSE, OPEN, WORSE, Cell
from jaxformer.studies.anatomy.parts import FIXED_MIXING, FROZEN, METHODS, ONLY, REMOVED, Variant

WHOLE = Variant(parts.WHOLE, parts.WHOLE)
STEPS = 400
NAMES = [part.name for part in parts.PARTS]


def number(by_seed, test=0.001) -> Number:
    """Returns an accuracy over seeds."""
    values = [*by_seed.values()]
    sem = math.nan if len(values) < 2 else float(np.std(values, ddof=1) / len(values) ** 0.5)
    return Number(float(np.mean(values)), sem, len(values), test, True, by_seed)


def cells_of(shifts, spread=0.002, seeds=3, whole=0.99, rng=None):
    """Returns the whole network and a cell with each shift of the accuracy."""
    rng = rng or np.random.default_rng(0)
    base = {seed: whole + spread * rng.normal() for seed in range(seeds)}
    cells = [
        trained_cell(
            variant, number({s: v + shift + spread * rng.normal() for s, v in base.items()})
        )
        for variant, shift in shifts.items()
    ]
    return Cell(WHOLE, number(base), 1e-3, steps=STEPS), cells


def trained_cell(variant, score) -> Cell:
    """A cell whose best rate lies inside its grid, and for which twice the steps score the same."""
    return Cell(variant, score, 3e-3, rates=(1e-3, 3e-3, 1e-2), steps=STEPS, longer=score)


def test_planted_parts_get_their_verdicts():
    shifts = {
        Variant("queries and keys", FROZEN): 0.0,
        Variant("queries and keys", REMOVED): -0.5,
        Variant("attention", FIXED_MIXING): -0.6,
        Variant("MLP", REMOVED): 0.001,
        Variant("MLP", FROZEN): 0.0,
        Variant("MLP in", FROZEN): 0.0,
        Variant("embedding", FROZEN): -0.3,
        Variant("norms", FROZEN): -0.035,  # about the margin .05 x (.99 - .2)
    }
    table = judge.judge(*cells_of(shifts, seeds=5), 0.2)
    assert table.verdict("queries and keys") == judge.MAY_STAY_RANDOM
    assert table.verdict("MLP") == judge.CAN_GO
    assert table.verdict("embedding") == judge.MUST_TRAIN
    assert table.verdict("values") == judge.CANNOT_TELL
    texts = [sentence.text for sentence in sentences.sentences(table)]
    assert texts[0].startswith("Random mixing that does not see the tokens cannot replace")
    assert "Queries and keys need not be trained: 99." in "".join(texts)
    assert any(text.startswith("The MLP can go: ") for text in texts)
    assert any(text.startswith("Without queries and keys the network is worse") for text in texts)
    # Follow from "The MLP can go".
    assert not any("MLP need not" in text or "MLP in" in text for text in texts)
    row = table.find("queries and keys", REMOVED)
    assert table.share(row) == pytest.approx(1 - 0.5 / (table.whole.score.mean - 0.2), abs=0.01)


@pytest.mark.parametrize(
    "case", ["one seed", "diverged", "not learned", "wide"], ids=lambda case: case
)
def test_nothing_is_decided_without_an_interval(case):
    variant = Variant("MLP", FROZEN)
    options = {"seeds": 1} if case == "one seed" else {"spread": 0.2 if case == "wide" else 0.002}
    whole, cells = cells_of({variant: -0.4 if case != "wide" else -0.05}, **options)
    trivial = 0.2
    if case == "diverged":
        cells = [cells[0]._replace(score=cells[0].score._replace(sem=math.nan, by_seed={}))]
    if case == "not learned":
        trivial = 0.995
    table = judge.judge(whole, cells, trivial)
    assert [row.outcome for row in table.rows] == [OPEN]
    # Only a comparison with an interval counts in the correction for many comparisons.
    assert [math.isnan(row.q) for row in table.rows] == [case != "wide"]
    assert sentences.sentences(table) == []
    assert table.verdict("MLP") == judge.CANNOT_TELL


def test_random_tables_state_only_what_their_comparisons_decide():
    rng = np.random.default_rng(1)
    stated = wrong = decided = 0
    for _ in range(120):
        truth = {
            Variant(NAMES[rng.integers(len(NAMES))], METHODS[rng.integers(4)]): float(
                rng.choice([0.0, -0.03, -0.045, -0.2, -0.6])
            )
            for _ in range(rng.integers(1, 8))
        }
        spread, seeds = rng.choice([0.001, 0.01, 0.05]), int(rng.integers(1, 7))
        whole, cells = cells_of(truth, spread, seeds, whole=0.9, rng=rng)
        table = judge.judge(whole, cells, 0.1)
        border = -table.margin * table.lead
        for sentence in sentences.sentences(table):
            row = table.find(sentence.part, sentence.method, sentence.layer)
            gap = difference(*judge.on_shared_seeds(row.cell.score, whole.score))
            above, below = gap.low > border, gap.high < border
            assert (above, below) == (sentence.outcome == NO_WORSE, sentence.outcome == WORSE)
            stated += 1
        for row in table.rows:
            if row.outcome != OPEN:
                decided += 1
                is_worse = truth[row.cell.variant] < -judge.MARGIN * 0.8
                wrong += is_worse != (row.outcome == WORSE)
    assert stated > 120
    assert wrong / decided < 0.05


def test_a_loss_is_scored_as_its_negative():
    mean = {"loss": (0.5, 0.01, 100)}
    score = judge.score_number({0: mean, 1: {"loss": (0.7, 0.01, 100)}}, "loss")
    assert score.mean == pytest.approx(-0.6) and score.by_seed == {0: -0.5, 1: -0.7}
    assert sentences.score_text(score) == "0.60 ± 0.10 nats"
    baselines = {"best_constant": 0.3, "unigram_loss": 2.0, "bigram_loss": 1.5}
    assert judge.best_trivial(baselines, "loss") == ("bigram_loss", -1.5)
    assert judge.best_trivial(baselines, "accuracy") == ("best_constant", 0.3)
    with pytest.raises(UserError, match="no trivial predictor"):
        judge.best_trivial({"unigram_loss": 2.0}, "accuracy")


def test_parts_are_found_by_layer_and_without_mlps():
    shapes = {
        "embed": {"embedding": 0},
        "block_0": {"attn": {name: {"kernel": 0} for name in ("query", "key", "value", "out")}},
        "block_1": {"attn": {name: {"kernel": 0} for name in ("query", "key", "value", "out")}},
        "gizmo": {"kernel": 0},
    }
    found = parts.parts_of(shapes)
    assert [part.name for part in found] == [
        "attention",
        "queries and keys",
        "values",
        "attention output",
        "embedding",
        "other gizmo",
    ]
    by_layer = parts.parts_of(shapes, by_layer=True)
    assert [part.layer for part in by_layer[len(found) :]] == [0] * 4 + [1] * 4
    variants = parts.variants_of(by_layer, METHODS, can_mix=True)
    names = [variant.name for variant in variants]
    assert "attention of block 1, removed" in names and "attention, fixed mixing" in names
    one = variants[names.index("attention of block 1, removed")]
    assert one.is_zero("block_1/attn/out/kernel") and not one.is_zero("block_0/attn/out/kernel")
    assert not one.is_updated("block_1/attn/query/kernel")
    assert one.is_updated("block_0/attn/query/kernel") and one.is_updated("embed/embedding")
    only = variants[names.index("embedding, only")]
    assert only.is_updated("embed/embedding") and not only.is_updated("gizmo/kernel")
    assert sentences.sentence_subject("other gizmo", None) == "The gizmo"
    assert sentences.sentence_subject("queries and keys", 1) == "Queries and keys of block 1"
    assert ONLY in {variant.method for variant in variants}


def test_a_removed_mlp_without_an_output_kernel_is_zero_as_a_whole():
    """An MLP of the recall model may be one matrix, and those of a user have other names."""
    kernel = {"kernel": np.zeros((2, 2))}
    attn = {name: kernel for name in ("query", "key", "value", "out")}
    params = {
        "block_0": {"attn": attn, "mlp": {"in": kernel, "out": kernel}},
        "block_1": {"attn": attn, "mlp": {"in": kernel}},
        "block_2": {"attn": attn, "mlp": {"up": kernel, "down": kernel}},
    }
    found = parts.variants_of(parts.parts_of(params, by_layer=True), [REMOVED], False)
    removed = {v.layer: v for v in found if v.part == parts.MLP}
    names = [name for name in paths.flatten(params) if "/mlp/" in name]
    assert [name for name in names if removed[1].is_zero(name)] == ["block_1/mlp/in/kernel"]
    assert sorted(name for name in names if removed[None].is_zero(name)) == [
        *("block_0/mlp/out/kernel", "block_1/mlp/in/kernel"),
        *("block_2/mlp/down/kernel", "block_2/mlp/up/kernel"),
    ]

    def folder(shapes):
        zeros = dict(hash="0" * 12, older_hash="0" * 12)
        subject = SimpleNamespace(**zeros, network=SimpleNamespace(shapes=shapes))
        return retraining.members_folder(Path("runs"), subject).name

    ours = {"block_0": params["block_0"]}
    assert folder(ours) == "members-000000000000" != folder(params)
