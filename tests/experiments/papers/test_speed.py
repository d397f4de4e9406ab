"""Training speed of the variants: turns, ratios, and ratios of matrix products."""

from types import SimpleNamespace

import numpy as np
import pytest

from experiments.cli import flags
from experiments.papers.mixit import speed
from experiments.papers.outcome import call
from experiments.recipes import solve
from jaxformer.core.errors import UserError

TINY = "configs/text/speed.py:scale=tiny"
SIZES = dict(mlp_width=64, width=16, layers=1, heads=2)
NO_MIXERS = {
    name: SIZES | {"mixer": "-1"}
    for name in ("standard", "frozen_qk", "frozen_mlp", "mixit", "random")
}


def measured(**changed):
    figure, settings = solve.setup(flags.load_with_overrides(TINY, {}))
    return call(figure.measure, settings | changed)


def test_speeds_are_compared_within_a_round_and_products_are_counted(monkeypatch):
    turns, setup_of = [], speed._setup

    def setup(fields, rules, settings, seed):
        return (
            fields["mixer"],
            [label for _, label in rules],
            setup_of(fields, rules, settings, seed),
        )

    def turn(setup, settings):
        """Simulates a machine that halves its speed in round two; MixiT is 1.5 times as fast."""
        mixer, labels, real = setup
        turns.append((mixer, *labels))
        slow = 1 + (len(turns) > 5)
        assert real.data.batch_size == settings.batch_size == 4
        tokens = (150.0 if mixer == "mixit" else 100.0) / slow
        flops = 8.0 if mixer == "mixit" else 10.0
        return SimpleNamespace(numbers=lambda: {"tokens_per_second": tokens}, flops=flops)

    monkeypatch.setattr(speed, "_setup", setup)
    monkeypatch.setattr(speed, "_measure", turn)
    metrics = measured().metrics
    assert turns[0] == turns[9] == ("softmax", "train")  # Standard begins, then ends
    assert len(turns) == 10 and sorted(turns[:5]) == sorted(turns[5:])
    assert metrics["speed/mixit"].mean == 1.5 and metrics["speed/mixit"].sem == 0
    assert metrics["tokens_per_second/standard"].mean == 75
    assert metrics["samples_per_second/standard"].mean == pytest.approx(75 / 16)
    assert metrics["products/mixit"].mean == 1.25 and metrics["products/frozen_qk"].mean == 1


@pytest.mark.slow  # the comparison of turns above is quick
def test_the_training_loop_measures_a_turn():
    fields = dict(SIZES, vocab_size=128, length=16)
    rules = solve.setup(flags.load_with_overrides(TINY, {}))[1]["rules"]
    settings = speed.TrainSettings(batch_size=2, steps=8, log_every=8, eval_every=0)
    throughputs = {
        name: speed._measure(speed._setup(fields, rules[name], settings, 0), settings)
        for name in ("standard", "frozen_qk")
    }
    assert all(t.numbers()["tokens_per_second"] > 0 and t.steps == 7 for t in throughputs.values())
    # Frozen-QK saves two gradients of 16 x 16 weights, over 2 x 16 tokens.
    saved = throughputs["standard"].flops - throughputs["frozen_qk"].flops
    assert saved == 2 * 2 * 32 * 16 * 16


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab": 20}, "figure.vocab must be at least 65"),
        ({"steps": 1}, "figure.steps"),
        ({"models": {}, "rules": {}}, "must name the same variants"),
        ({"models": {"mixit": {}}, "rules": {"mixit": []}}, "must have 'standard'"),
        ({"models": NO_MIXERS}, "figure.models.*: unknown mixer"),
        ({"rules": {"standard": []}}, "must name the same variants"),
    ],
)
def test_models_that_cannot_be_compared_raise(change, message):
    with pytest.raises(UserError, match=message):
        measured(**change)


def test_the_title_of_the_figure_has_the_speeds():
    arrays = {"speed": np.array([[1.0, 1.0], [1.2, 1.3]]), "products": np.array([1.0, 1.1])}
    figure = speed.draw_speed(arrays, {"mixit": {}, "standard": {}})
    title = " ".join(text.get_text() for text in figure.texts)
    assert "mixit 1.25" in title.replace("\n", " ")
