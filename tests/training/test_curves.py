"""The figure of a run: its title, its note and the scale of its loss."""

from jaxformer.training import curves


def test_the_figure_shows_its_title_and_what_a_line_is():
    runs = {name: [{"step": 0, "loss": [1.0] * n}] for name, n in (("first", 3), ("second", 8))}
    chosen = {"first": [True] * 3, "second": [True] * 8}
    texts = [text.get_text() for text in curves.curves(runs, {}, chosen, title="It works").texts]
    assert "It works" in texts and "A line is a seed: 3 of first, 8 of second." in texts


def test_a_baseline_may_have_another_name_in_the_legend():
    rows = {"mine": [{"step": 0, "loss": [1.0]}]}
    scores = {"unigram_loss": 3.425, "bigram_loss": 2.0}
    figure = curves.curves(rows, scores, names={"unigram_loss": "answer frequencies"})
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["mine", "answer frequencies 3.42", "bigram loss 2"]


def test_the_loss_has_a_logarithmic_axis_if_it_falls_by_decades():
    scales = {}
    for name, losses in {
        "less than a decade": [3.4, 3.0, 2.2],
        "three decades": [3.4, 0.1, 0.002],
        "diverged from the start": [None, None, None],
    }.items():
        rows = [{"step": step, "loss": [loss, loss]} for step, loss in enumerate(losses)]
        figure = curves.curves({"standard": rows}, {"unigram_loss": 3.5})
        scales[name] = figure.axes[0].get_yscale()
    assert scales == {
        "less than a decade": "linear",
        "three decades": "log",
        "diverged from the start": "linear",
    }


def test_validation_scores_are_compared_with_trivial_scores_of_their_own_set():
    test = {"guess": 0.66, "unigram_loss": 3.5}
    config = {"data": {"split": "redraw"}}
    result = {"baselines": test, "validation_baselines": {"guess": 0.48, "unigram_loss": 3.4}}
    assert curves.trivial_lines(result) == {"guess": 0.48, "unigram_loss": 3.5}
    # An older result has scores on the test set only, whose examples are easier.
    older = {"baselines": test, "config": config}
    assert curves.trivial_lines(older) == {"unigram_loss": 3.5}
    by_hash = {"baselines": test, "config": {"data": {"split": "hash"}}}
    assert curves.trivial_lines(by_hash) == test
