"""Every config, variant and scale is built and checked; nothing is compiled."""

import jax
import pytest

from configs.common import PRESETS, SCALES, VARIANTS
from experiments import flags, training
from experiments.recipes import measure, recall, solve
from jaxformer.paths import flatten

NAMES = flags.known_configs()
MIXIT = [name for name in NAMES if "/mixit/" in name and "unfreezing" not in name]
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
        built = training.setup(config)
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
    stages = training.phases(config)
    assert [stage.end for stage in stages] == [*(s for s, _ in config.unfreeze), config.train.steps]
    share = training.trained_share(config, config.train.steps)
    assert (share == 1) == (thaw == "always") and share > 0.8


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("file", FIGURES)
def test_a_figure_has_the_fields_its_config_sets(file, scale):
    function, settings = solve.setup(flags.load_config(f"{file}:scale={scale}"))
    assert callable(function) and settings


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("file", RECALL)
def test_a_recall_config_builds(file, scale):
    config = flags.load_config(f"{file}:scale={scale}")
    (*_, (end, built)) = recall.stages_of(config)
    assert end == config.train.steps
    assert set(built.partition.count(built.shapes())) == {"frozen", "train"}


@pytest.mark.parametrize("file", NAMES)
def test_a_docstring_is_the_manual(file):
    text = (flags.ROOT / file).read_text().split('"""')[1]
    assert f"python experiments/run.py --config={file}" in text
    assert all(word in text for word in ("tiny", "small", "paper", "expected"))


def test_authors_preset_has_the_counts_of_table_4():
    counts = {"standard": 790400, "frozen_mlp": 394880, "frozen_qk": 724352, "mixit": 724736}
    for variant, expected in counts.items():
        name = f"configs/mixit/memorization.py:variant={variant},scale=paper,preset=authors"
        built = training.setup(flags.load_config(name))
        assert built.partition.count(built.shapes())["train"] == expected
