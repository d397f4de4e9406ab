"""Every config, variant and scale is built and checked; nothing is compiled."""

from pathlib import Path

import jax
import pytest

from configs.common import PRESETS, SCALES, VARIANTS, hidden_markov
from experiments.recipes import measure, oneshot, posterior, recall, solve
from experiments.shared import flags
from experiments.shared.outcome import settings_of
from jaxformer import build
from jaxformer.paths import flatten
from jaxformer.training.setup import trained_share

NAMES = flags.known_configs()
ALONE = ("unfreezing", "qk_scale", "induction_head")  # configs with arguments of their own
MIXIT = [n for n in NAMES if "/mixit/" in n and not any(word in n for word in ALONE)]
ENCODERS = {
    "fig1_losses": ("trainable", "rank_collapse", "entropy_collapse"),
    "fig4_entropy": ("beta_0_5", "beta_4_0"),
    "figC2_low_rate": ("beta_1_4",),
}
RECALL = [name for name in NAMES if flags.load_config(name).recipe == "recall"]
FIGURES = [name for name in NAMES if flags.load_config(name).recipe == "solve"]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("file", [name for name in MIXIT if name not in FIGURES])
def test_a_config_builds(file, variant, scale):
    for preset in PRESETS:
        config = flags.load_config(f"{file}:variant={variant},scale={scale},preset={preset}")
        if config.recipe == "measure":
            measure.setup(config)
            continue
        built = build.phases(config)[0].setup
        shapes = built.shapes()
        counts = built.partition.count(shapes)
        assert ("frozen" in counts) == (variant != "standard") and counts["train"] > 0
        assert ("block_0/mlp/in/bias" in flatten(shapes)) == (preset == "authors")
        if scale == "tiny":
            state = jax.eval_shape(built.create)
            members = config.n_seeds * len(config.optim.learning_rate)
            assert all(leaf.shape[0] == members for leaf in jax.tree.leaves(state.trainable))
            tokens = jax.ShapeDtypeStruct((2, built.task.length), int)
            logits = jax.eval_shape(built.apply, shapes, tokens, None)
            assert logits.shape == (2, built.task.length, built.task.vocab_size)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("thaw", ["never", "at_200", "always"])
def test_an_unfreezing_schedule_builds(thaw, scale):
    config = flags.load_config(f"configs/mixit/unfreezing.py:thaw={thaw},scale={scale}")
    stages = build.phases(config)
    assert [stage.end for stage in stages] == [*(s for s, _ in config.unfreeze), config.train.steps]
    share = trained_share(stages, config.train.steps)
    assert (share == 1) == (thaw == "always") and share > 0.8


@pytest.mark.parametrize("scale", SCALES)
def test_an_induction_head_is_looked_for_in_retrieval(scale):
    words = f"variant=frozen_qk,scale={scale}"
    plain = flags.load_config(f"configs/mixit/retrieval.py:{words}").to_dict()
    looked = flags.load_config(f"configs/mixit/induction_head.py:{words}").to_dict()
    assert looked == plain | {"name": "mixit/induction_head", "recipe": "look"}


@pytest.mark.parametrize(
    "task, layers, width, heads, rate, batch",
    [
        ("addition", 8, 512, 64, 1e-3, 128),
        ("dyck", 4, 512, 64, 1e-3, 512),
        ("modular_addition", 2, 512, 32, 1e-3, 256),
        ("retrieval", 2, 1024, 4, 1e-4, 1024),
        ("hops", 5, 512, 8, 1e-4, 128),
    ],
)
def test_paper_scale_has_the_published_optima_of_mixit(task, layers, width, heads, rate, batch):
    """Table 8 of arXiv 2506.01115; the rate is one of those that validation chooses from."""
    config = flags.load_config(f"configs/mixit/{task}.py:variant=mixit,scale=paper")
    model = config.model
    assert (model.layers, model.width, model.heads) == (layers, width, heads)
    assert rate in config.optim.learning_rate and config.train.batch_size == batch


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("std, expected", [("fan_in", 0.125), ("0.02", 0.02), ("0.5", 0.5)])
def test_a_scale_of_queries_and_keys_is_that_of_their_draws(std, expected, scale):
    built = build.phases(flags.load_config(f"configs/mixit/qk_scale.py:std={std},scale={scale}"))[
        0
    ].setup
    assert set(built.partition.count(built.shapes())) == {"frozen", "train"}
    if scale == "tiny":
        attn = jax.jit(built.init)(jax.random.key(0))["block_1"]["attn"]
        for name, wanted in (("query", expected), ("key", expected), ("value", 0.125)):
            assert attn[name]["kernel"].std() == pytest.approx(wanted, rel=0.05)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("file", [f"configs/two_failure_modes/{name}.py" for name in ENCODERS])
def test_an_encoder_config_builds(file, scale):
    for variant in ENCODERS[Path(file).stem]:
        built = build.phases(flags.load_config(f"{file}:variant={variant},scale={scale}"))[0].setup
        counts = built.partition.count(built.shapes())
        assert set(counts) == {"train"} and built.probed is not None
        if scale == "tiny":
            metrics = jax.eval_shape(built.step(), jax.eval_shape(built.create), batch(built))[1]
            assert set(metrics) == {"loss", "gradient_norm", "attention_entropy"}


def batch(built):
    avoid = jax.ShapeDtypeStruct((8,), "uint32")
    return jax.eval_shape(lambda avoid: built.batch_at(avoid)(0), avoid)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("file", FIGURES)
def test_a_figure_has_the_fields_its_config_sets(file, scale):
    figure, settings = solve.setup(flags.load_config(f"{file}:scale={scale}"))
    assert {*settings} <= {*settings_of(figure.measure)}
    assert {*settings_of(figure.draw)} <= {"arrays", *settings}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("variant", ["collapsed", "weights"])
def test_a_posterior_config_builds(variant, scale):
    name = f"configs/attention_paths/posterior.py:variant={variant},scale={scale}"
    config = flags.load_config(name)
    config.task.update(hidden_markov("tiny"))  # the paper's size takes seconds to draw
    with jax.enable_x64(True):
        built = posterior.setup(config)
    assert built.sampler.method == variant and built.data.heads == (2, 2)


def test_the_oneshot_config_builds():
    built = oneshot.phases_of(flags.load_config("configs/attention_paths/oneshot.py:scale=tiny"))[
        0
    ].setup
    counts = built.partition.count(built.shapes())
    assert counts["train"] == 4 * 192 * 2 * 8 + 2 * 16 * 2 * 16 + 192 * 16 + 16


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("file", RECALL)
def test_a_recall_config_builds(file, scale):
    config = flags.load_config(f"{file}:scale={scale}")
    *_, last = recall.phases_of(config)
    assert last.end == config.train.steps
    built = last.setup
    assert set(built.partition.count(built.shapes())) == {"frozen", "train"}


@pytest.mark.parametrize("file", NAMES)
def test_a_docstring_is_the_manual(file):
    text = (flags.ROOT / file).read_text().split('"""')[1]
    assert f"python experiments/run.py --config={file}" in text
    assert all(word in text.lower() for word in ("tiny", "small", "paper", "expected"))


def test_authors_preset_has_the_counts_of_table_4():
    counts = {"standard": 790400, "frozen_mlp": 394880, "frozen_qk": 724352, "mixit": 724736}
    for variant, expected in counts.items():
        name = f"configs/mixit/memorization.py:variant={variant},scale=paper,preset=authors"
        built = build.phases(flags.load_config(name))[0].setup
        assert built.partition.count(built.shapes())["train"] == expected
