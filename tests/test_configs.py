"""Every config builds with every choice of its arguments; nothing is compiled."""

import itertools
import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from configs.common import SCALES, VARIANTS, hidden_markov
from experiments.cli import flags
from experiments.papers.outcome import settings_of
from experiments.recipes import measure, oneshot, posterior, recall, solve
from jaxformer import build
from jaxformer.core.paths import flatten
from jaxformer.training.phases import trained_share
from tests.choices import cells, choices
from tests.helpers import failures

NAMES = flags.config_files()
LOADED = {name: flags.load_config(name) for name in NAMES}
ENCODERS = [n for n, c in LOADED.items() if "model" in c and c.model.get("name") == "encoder"]
FREEZING = [n for n in NAMES if set(choices(n).get("variant", ("",))) <= {*VARIANTS}]
COMPLETE = ("configs/mixit/retrieval.py", "configs/text/masked.py")  # of both kinds of models
# What a config of a recipe builds before anything runs.
BUILD: dict[str, Callable] = {
    "train": build.phases,
    "look": build.phases,
    "recall": recall.phases_of,
    "measure": measure.setup,
    "solve": solve.setup,
    "oneshot": oneshot.phases_of,
    "posterior": posterior.setup,
}


def in_all_scales(files):
    return itertools.product(files, SCALES)


def test_every_config_builds():
    """Builds the first or last cell of each scale of every config, and all tiny ones of two."""
    assert not failures(build_config, in_all_scales(NAMES))


@pytest.mark.slow  # a thousand cells
def test_every_cell_builds():
    assert not failures(build_config, ((*case, True) for case in in_all_scales(NAMES)))


def build_config(file, scale, is_complete=False):
    # Building the tiny ones takes longest: each of the authors' presets is built at some scales.
    presets = ("paper", "authors" if scale == "tiny" else "authors_deep")
    chosen = cells(file, scale=(scale,), preset=presets)
    if not is_complete and not (scale == "tiny" and file in COMPLETE):
        ends = {"tiny": (0, -1), "small": (0,), "paper": (-1,)}[scale]
        chosen = [chosen[end] for end in ends]
    for cell in chosen:
        config = flags.load_config(cell)
        if config.recipe == "posterior":
            config.task.update(hidden_markov("tiny"))  # the paper's size takes seconds to draw
        if config.recipe == "oneshot":
            config.data = LOADED[file].data  # the images of the larger scales are not here
        if "fingerprint" in config.get("task", {}):
            config.task.update(tokens="", fingerprint="")  # nor are their prepared texts
        trains = config.recipe in ("train", "measure")
        if trains and "layers" in config.model:  # every block is traced like the first
            config.model.layers = 1
        with jax.enable_x64(config.recipe == "posterior"):
            built = BUILD[config.recipe](config)
        if config.recipe in ("train", "look", "recall"):
            assert built[-1].end == config.train.steps
        if file in FREEZING and config.recipe != "measure":
            check_variant(config, built[0].setup)
        if file in ENCODERS:
            check_encoder(config, built[0].setup)


def check_variant(config, built):
    """Checks that a variant freezes the parts it names, and that the authors' preset has biases."""
    shapes, labels = built.shapes(), config.arguments
    counts = built.partition.count(shapes)
    assert ("frozen" in counts) == (labels.variant != "standard") and counts["train"] > 0
    assert ("block_0/mlp/in/bias" in flatten(shapes)) == (labels.preset != "paper")
    if labels.scale == "tiny":
        if labels.variant == "standard":  # the state of a population costs most to trace
            state = jax.eval_shape(built.create)
            members = config.n_seeds * len(config.optim.learning_rate)
            assert all(leaf.shape[0] == members for leaf in jax.tree.leaves(state.trainable))
        tokens = jax.ShapeDtypeStruct((2, built.task.length), jnp.int32)
        logits = jax.eval_shape(built.apply, shapes, tokens, None)
        assert logits.shape == (2, built.task.length, built.task.vocab_size)


def check_encoder(config, built):
    """Checks that an encoder trains everything and logs its attention entropy."""
    counts = built.partition.count(built.shapes())
    assert set(counts) == {"train"} and built.apply_with_probes is not None
    if config.arguments.scale == "tiny":
        metrics = jax.eval_shape(built.step(), jax.eval_shape(built.create), batch(built))[1]
        assert set(metrics) == {"loss", "gradient_norm", "attention_entropy"}


def batch(built):
    avoid = jax.ShapeDtypeStruct((8,), "uint32")
    return jax.eval_shape(lambda avoid: built.batch_at(avoid)(0), avoid)


def test_unfreezing_schedules_build():
    assert not failures(build_schedule, in_all_scales(["never", "at_200", "always"]))


def build_schedule(thaw, scale):
    config = flags.load_config(f"configs/mixit/unfreezing.py:thaw={thaw},scale={scale}")
    stages = build.phases(config)
    assert [stage.end for stage in stages] == [*(s for s, _ in config.unfreeze), config.train.steps]
    share = trained_share(stages, config.train.steps)
    assert (share == 1) == (thaw == "always") and share > 0.8


def test_an_induction_head_is_looked_for_in_retrieval():
    for scale in SCALES:
        arguments = f"variant=frozen_qk,scale={scale}"
        retrieval = flags.load_config(f"configs/mixit/retrieval.py:{arguments}").to_dict()
        head = flags.load_config(f"configs/mixit/induction_head.py:{arguments}").to_dict()
        assert head == retrieval | {"name": "mixit/induction_head", "recipe": "look"}


def test_paper_scale_has_the_published_optima_of_mixit():
    """Table 8 of arXiv 2506.01115; validation chooses from several learning rates."""
    optima = {
        "addition": (8, 512, 64, 1e-3, 128),
        "dyck": (4, 512, 64, 1e-3, 512),
        "modular_addition": (2, 512, 32, 1e-3, 256),
        "retrieval": (2, 1024, 4, 1e-4, 1024),
        "hops": (5, 512, 8, 1e-4, 128),
    }
    for task, (layers, width, heads, rate, batch_size) in optima.items():
        config = flags.load_config(f"configs/mixit/{task}.py:variant=mixit,scale=paper")
        model = config.model
        assert (model.layers, model.width, model.heads) == (layers, width, heads), task
        assert rate in config.optim.learning_rate and config.train.batch_size == batch_size, task


def test_queries_and_keys_are_drawn_with_the_scale_of_the_config():
    scales = [("fan_in", 0.125), ("0.02", 0.02), ("0.5", 0.5)]
    cases = [(std, expected, scale) for std, expected in scales for scale in SCALES]
    assert not failures(check_qk_scale, cases)


def check_qk_scale(std, expected, scale):
    config = flags.load_config(f"configs/mixit/qk_scale.py:std={std},scale={scale}")
    config.model.layers = 1
    built = build.phases(config)[0].setup
    assert set(built.partition.count(built.shapes())) == {"frozen", "train"}
    if scale == "tiny":
        attn = jax.jit(built.init)(jax.random.key(0))["block_0"]["attn"]
        for name, wanted in (("query", expected), ("key", expected), ("value", 0.125)):
            assert attn[name]["kernel"].std() == pytest.approx(wanted, rel=0.05)


def test_a_figure_has_the_fields_that_its_config_sets():
    figures = [name for name in NAMES if LOADED[name].recipe == "solve"]
    assert not failures(check_figure, in_all_scales(figures))


def check_figure(file, scale):
    for cell in cells(file, scale=(scale,)):
        figure, settings = solve.setup(flags.load_config(cell))
        assert {*settings} <= {*settings_of(figure.measure)}
        assert {*settings_of(figure.draw)} <= {"arrays", *settings}


def test_the_oneshot_config_builds():
    config = flags.load_config("configs/attention_paths/oneshot.py:scale=tiny")
    built = oneshot.phases_of(config)[0].setup
    counts = built.partition.count(built.shapes())
    assert counts["train"] == 4 * 192 * 2 * 8 + 2 * 16 * 2 * 16 + 192 * 16 + 16


UNITS = {"second": 1, "minute": 60, "min": 60, "hour": 3600, "day": 86400}
TIME = re.compile(
    r"(?:(?P<low>\d+)(?: to (?P<high>\d+))?|(?P<word>half an|an|some)|\b)"
    r" ?(?:CPU |GPU )?(?P<unit>second|minute|min|hour|day)s?\b(?P<seed> a seed)?"
)


def test_the_docstring_of_every_config_is_its_manual():
    assert not failures(check_manual, NAMES)


def check_manual(file):
    text = manual(file)
    assert f"python experiments/run.py --config={file}" in text
    assert all(word in text.lower() for word in ("tiny", "small", "paper", "expected"))


def manual(file):
    return (flags.ROOT / file).read_text().split('"""')[1]


def test_the_times_of_a_manual_agree_with_SECONDS():
    assert not failures(check_times, NAMES)


def check_times(file):
    """Each scale has a line that begins with it, and its time; "hours" are two to nine of them."""
    seconds = flags.config_module(file).SECONDS
    assert {*SCALES} <= seconds.keys()
    for scale in SCALES:
        seeds = flags.load_config(f"{file}:scale={scale}").n_seeds
        lines = [line for line in manual(file).splitlines() if line.startswith(f"{scale} ")]
        result = [TIME.search(line) for line in lines]
        assert result and all(result), (file, scale)
        ranges = [spread(match, seeds) for match in result]
        low, high = ranges[0]
        assert low <= seconds[scale] <= high, (file, scale)
        # A key such as "small,when=trained" has a line of its own, or its time on another one.
        for key in seconds:
            if key.startswith(f"{scale},") and len(ranges) > 1:
                assert any(low <= seconds[key] <= high for low, high in ranges[1:]), (file, key)


def spread(match, seeds):
    unit = UNITS[match["unit"]] * (seeds if match["seed"] else 1)
    if match["low"]:
        return int(match["low"]) * unit, int(match["high"] or match["low"]) * unit
    exact = {"half an": 0.5, "an": 1.0}.get(match["word"])
    return (exact * unit, exact * unit) if exact else (2 * unit, 9 * unit)


def test_the_authors_script_for_text_counts_depth_in_fours():
    for file, base in (("text/lm", 4), ("text/yelp", 4), ("mixit/dyck", 1)):
        cell = f"configs/{file}.py:variant=mixit,scale=tiny,preset=authors_deep"
        model = flags.load_with_overrides(cell, {}).model
        assert (model.depth_alpha, model.base_layers) == (1.0, base), file


def test_authors_preset_has_the_counts_of_table_4():
    counts = {"standard": 790400, "frozen_mlp": 394880, "frozen_qk": 724352, "mixit": 724736}
    for variant, expected in counts.items():
        name = f"configs/mixit/capacity.py:variant={variant},scale=paper,preset=authors"
        built = build.phases(flags.load_config(name))[0].setup
        assert built.partition.count(built.shapes())["train"] == expected
