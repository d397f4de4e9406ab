"""The memory estimate: its parts, its accuracy, settings that lower it, runs that do not fit."""

import jax
import pytest

from experiments.run import main, parse
from jaxformer import build
from jaxformer.core import optim
from jaxformer.core.partition import Partition
from jaxformer.core.settings import DataSettings, DeviceSettings, TrainSettings
from jaxformer.planning import settings_to_try
from jaxformer.planning.published import TokenTask, shapes_only
from jaxformer.tasks.source import make_source
from jaxformer.training.cost import memory
from jaxformer.training.phases import Phase
from jaxformer.training.population import population
from jaxformer.training.setup import make_setup
from tests.experiments.conftest import tiny
from tests.models.tiny_configs import CONFIGS


def setup_of(*flags):
    return build.phases(parse(tiny(*flags)).config)[0].setup


def test_state_is_counted_to_the_byte():
    """It has parameters, two moments of the trained ones, and a few numbers for each member."""
    one = setup_of()
    counts = one.partition.count(one.shapes())
    floats = counts["frozen"] + 3 * counts["train"]
    assert 0 < memory.state_bytes(one) - 4 * floats <= 4 * 6
    three = memory.state_bytes(setup_of("--config.n_seeds=3"))
    assert abs(three - 3 * memory.state_bytes(one)) <= 4 * 6


def test_members_side_by_side_multiply_gradient_and_activations():
    one, map_, vmap = (
        memory.step_bytes(setup_of(f"--config.n_seeds={n}", f"--config.train.members={how}"))
        for n, how in ((1, "map"), (3, "map"), (3, "vmap"))
    )
    assert map_ == one and vmap == 3 * one


def test_remat_stores_less():
    """Rematerialisation stores the inputs of all four layers and the activations of one."""
    kept = memory.step_bytes(setup_of("--config.model.layers=4"))
    less = memory.step_bytes(setup_of("--config.model.layers=4", "--config.model.remat=True"))
    assert 0.25 * kept < less < 0.8 * kept


def test_a_loss_in_chunks_is_proposed_only_where_the_model_takes_it():
    """A cap of the logits, as Gemma 2 has, excludes it."""
    rules = Partition(((".*", "train"),))
    tx = optim.optimizer(rules, {"train": optim.SGD()}, 0, optim.schedule("constant", 1, 0))
    proposed = {}
    for name in ("gemma2", "gemma2_uncapped"):
        task, model = shapes_only(TokenTask(64), CONFIGS[name] | {"vocab_size": 5000})
        data = make_source(task, DataSettings(), 128)
        members, devices = population(0, 1, (1e-3,)), DeviceSettings(data=1)
        setup = make_setup(task, model, rules, tx, data, members, TrainSettings(128), devices)
        settings = [option.setting for option in settings_to_try.options(setup)]
        proposed[name] = "train.loss_chunk=4096" in settings
    assert proposed == {"gemma2": False, "gemma2_uncapped": True}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["map", "vmap"])
def test_the_estimate_is_near_what_xla_takes(how):
    flags = ("--config.n_seeds=4", "--config.train.batch_size=64")
    population = setup_of(*flags, f"--config.train.members={how}")
    about = memory.state_bytes(population) + memory.step_bytes(population)
    state, batch = jax.eval_shape(population.create), memory.batch_shapes(population)
    program = jax.jit(population.step(), donate_argnums=0).lower(state, batch).compile()
    assert 0.5 < memory.program_bytes(program) / about < 2


def test_a_population_that_does_not_fit_is_refused(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(memory, "free_memory", lambda: 2**20)
    flags = ("--config.n_seeds=1000", "--config.train.members=vmap")
    assert main([*tiny(*flags), f"--workdir={tmp_path / 'run'}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "a population of 1000 needs about" in line
    assert f"1.0 MiB are free on this {jax.default_backend()}" in line
    assert "take --config.train.members=map, fewer seeds (--config.n_seeds)" in line
    monkeypatch.setattr(memory, "free_memory", lambda: None)
    assert "an unknown amount free" in memory.check_memory([Phase(1, setup_of())])


def test_free_memory_is_plausible():
    free = memory.free_memory()
    assert free is None or 2**20 < free < 2**50


def test_the_limit_of_a_control_group_counts_what_is_used(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "CONTROL_GROUP", tmp_path)
    for name, text in {"max": "5000000", "current": "4000000", "stat": "inactive_file 7"}.items():
        (tmp_path / f"memory.{name}").write_text(text + "\n")
    assert memory.free_host_memory() == 1_000_007
    (tmp_path / "memory.max").write_text("max\n")  # no limit
    assert memory.free_host_memory() != 1_000_007


def test_sizes_are_checked_before_anything_is_allocated(tmp_path, capsys):
    messages = {
        "n_seeds=200000000": "n_seeds must be at most 100,000",
        "data.test_size=1000000000000": "data.test_size must be at most 10,000,000",
        "data.train_size=2000000000": "data.train_size = 2000000000",
        "model.mlp_width=10000000": "a population of 1 needs about",
    }
    failures = []
    for field, message in messages.items():
        for more in ([], ["--dry-run"]):
            code = main([*tiny(f"--config.{field}"), f"--workdir={tmp_path / 'run'}", *more])
            error = capsys.readouterr().err
            if code != 2 or message not in error or error.count("\n") != 1:
                failures.append((field, more, code, error))
    assert not failures


def test_the_dry_run_of_a_measurement_refuses_what_the_run_would(tmp_path, capsys):
    config = "--config=configs/mixit/initialisation.py:variant=frozen_qk"
    for field in ("data.test_size=1000000000000", "n_seeds=1000000000000"):
        for more in ([], ["--dry-run"]):
            flags = [config, f"--config.{field}", f"--workdir={tmp_path / 'run'}", *more]
            assert main(flags) == 2
            assert field.replace("=", " = ").split()[0] in capsys.readouterr().err
