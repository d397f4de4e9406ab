"""The recipe posterior: its result, resuming after a kill, and wrong settings."""

import json

import numpy as np
import pytest

from experiments.recipes import finish_run
from experiments.run import main
from tests.experiments.conftest import POSTERIOR as TINY
from tests.experiments.conftest import instead, wrong_errors

FEW = finish_run.UNTRUSTED  # sixty draws fail the diagnostics


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("posterior") / "run"
    assert main([*TINY, f"--workdir={workdir}"]) == FEW
    return workdir


def arrays(workdir):
    with np.load(workdir / "arrays.npz") as held:
        return dict(held)


def test_a_finished_run_has_a_complete_result(finished):
    result = json.loads((finished / "result.json").read_text())
    metrics, held = result["metrics"], arrays(finished)
    assert held["U"].shape == (60, 4, 4) and held["theta"].shape == (60, 14)
    for name, (i, j) in {"U/good,good": (0, 0), "U/good,denoising": (0, 2)}.items():
        assert metrics[name]["mean"] == pytest.approx(held["U"][:, i, j].mean(), rel=1e-12)
        assert metrics[name]["sem"] > 0 and metrics[name]["n"] > 4
    assert metrics["accuracy"]["n"] == 40 and 0 <= metrics["accuracy"]["mean"] <= 1
    for name in ("divergences", "r_hat", "ess", "tree_depth_max"):
        assert np.isfinite(metrics[name]["mean"])
    assert result["parameters"] == {"sampled": 14}
    assert set(result["baselines"]) == {"accuracy_theory", "accuracy_gp_limit", "accuracy_chance"}
    assert (finished / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert not (finished / "state.npz").exists() and not (finished / "draws").exists()


@pytest.mark.slow
def test_sampling_continues_until_the_effective_sample_size_is_reached(finished, tmp_path, capsys):
    arguments = instead(
        TINY, "--config.posterior.least_ess=100", "--config.posterior.most_draws=1000"
    )
    assert main([*arguments, f"--workdir={tmp_path}/enough"]) in (0, FEW)
    assert "goal 100" in capsys.readouterr().out
    held, result = arrays(tmp_path / "enough"), (tmp_path / "enough/result.json").read_text()
    diagnostics = json.loads(result)["diagnostics"]
    assert 60 < len(held["U"]) == diagnostics["draws"] < 1000 and not len(held["U"]) % 60
    assert min(diagnostics[name] for name in ("ess", "ess_bulk", "ess_tail")) >= 100
    first = held["U"].reshape(2, -1, 4, 4)[:, :30]  # those of the run that stopped there
    np.testing.assert_array_equal(first, arrays(finished)["U"].reshape(2, -1, 4, 4))


def test_sampling_ends_at_the_maximal_number_of_draws(tmp_path):
    arguments = instead(
        TINY, "--config.posterior.least_ess=1e6", "--config.posterior.most_draws=130"
    )
    assert main([*arguments, f"--workdir={tmp_path}/most"]) == FEW
    assert len(arrays(tmp_path / "most")["U"]) == 120


MISTAKES = [
    ("--config.posterior.draws=4", "at least 4 for each chain"),
    ("--config.posterior.least_ess=-1", "posterior.least_ess must be"),
    ("--config.posterior.width=5,7", "3 numbers N_1 .. N_3"),
    ("--config.posterior.temperature=0", "above 0"),
    ("--config.posterior.method=colapsed", "Did you mean 'collapsed'"),
    ("--config.task.design=for_paths", "Did you mean 'four_paths'"),
    ("--config.task.examples=7", "even count"),
]


def test_mistakes_are_one_line_errors(tmp_path, capsys):
    cases = [
        ([*instead(TINY, argument), f"--workdir={tmp_path}/x"], message)
        for argument, message in MISTAKES
    ]
    assert not wrong_errors(main, cases, capsys)


def test_a_damaged_state_is_named(tmp_path, capsys):
    workdir = tmp_path / "damaged"
    assert main([*TINY, "--dry-run"]) == 0
    assert "would sample 14 numbers" in capsys.readouterr().out
    workdir.mkdir()
    (workdir / "state.npz").write_bytes(b"not a zip")
    from experiments.cli import flags
    from experiments.run import parse
    from jaxformer import build
    from jaxformer.io.atomic_files import write_json
    from jaxformer.io.run_folder import config_hash

    command = parse(TINY)
    held = {"config": flags.to_dict(command.config.copy_and_resolve_references())}
    write_json(
        workdir / "config.json",
        held | {"config_hash": config_hash(build.config_identity(held["config"]))},
    )
    assert main([*TINY, f"--workdir={workdir}"]) == 2
    assert "state.npz is damaged" in capsys.readouterr().err
