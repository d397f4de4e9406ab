"""Each figure is measured once and can be drawn again from its arrays."""

import functools
import json
import shutil

import numpy as np
import pytest

from experiments.cli import flags
from experiments.papers.outcome import call
from experiments.papers.two_failure_modes import attention
from experiments.recipes import solve
from experiments.run import main
from jaxformer.io import npz_store
from jaxformer.io.atomic_files import CHECKSUM
from tests.experiments.conftest import wrong_errors
from tests.experiments.papers import drawing
from theory import rem

CONFIGS = {
    flags.load_config(file).figure.name: file
    for file in flags.config_files()
    if flags.load_config(file).recipe == "solve"
}
# Other tests run and draw these figures.
DRAWN_ELSEWHERE = (
    "covariance_depth",
    "signal_maps",
    "associations_allocation",
    "covariance_trained",
)
QUICK_FIGURES = ("associations_gsm8k", "signal_scores")
MAPS = "--config=configs/two_failure_modes/fig1_maps.py:scale=tiny"


def test_every_figure_has_a_config_and_is_drawn_by_a_test():
    assert {*CONFIGS, "covariance_trained"} == {*solve.FIGURES} == {*CONFIGS, *DRAWN_ELSEWHERE}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK_FIGURES else pytest.mark.slow)
        for name in sorted({*CONFIGS} - {*DRAWN_ELSEWHERE})
    ],
)
def test_a_figure_is_drawn_from_its_file_alone(name, tmp_path, monkeypatch):
    options = [f"--config={CONFIGS[name]}:scale=tiny"]
    drawing.measured_then_drawn(options, tmp_path / "run", monkeypatch)


def test_functions_that_compute_raise_while_a_figure_is_drawn_again(monkeypatch):
    config = flags.load_config(MAPS.removeprefix("--config="))
    solve.setup(config)
    with monkeypatch.context() as patch:
        drawing.forbid(patch)
        figure, settings = solve.setup(config)
        for computes in (lambda: rem.critical_beta(0.0), lambda: call(figure.measure, settings)):
            with pytest.raises(AssertionError, match="a drawing computes"):
                computes()
    assert rem.critical_beta(0.0) == pytest.approx(2**0.5)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Returns the folder of a finished run of a small figure, and the options of the run."""
    workdir = tmp_path_factory.mktemp("drawn") / "run"
    config = "--config=configs/two_failure_modes/figC1_spectrum.py:scale=tiny"
    options = [config, "--config.figure.betas=(0.5,)", "--config.figure.length=16"]
    options += ["--config.figure.width=8", f"--workdir={workdir}"]
    assert main(options) == 0
    return workdir, options


def test_a_figure_is_drawn_into_a_file_of_its_ending(run, tmp_path):
    for ending, begins in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")):
        file = tmp_path / ending / f"a.{ending}"
        file.parent.mkdir()
        assert main([*run[1], f"--draw={file}"]) == 0
        assert file.read_bytes().startswith(begins) and [*file.parent.iterdir()] == [file]


def test_the_figure_shows_the_arrays_of_the_file(run, tmp_path):
    workdir, options = run
    arrays = npz_store.load_verified(workdir / "arrays.npz")
    before = (workdir / "figure.png").read_bytes()
    original = (workdir / "arrays.npz").read_bytes()
    npz_store.write(workdir / "arrays.npz", arrays | {"theory_radius_beta_0.5": np.array(0.9)})
    assert main([*options, "--draw"]) == 0
    assert (workdir / "figure.png").read_bytes() != before
    (workdir / "arrays.npz").write_bytes(original)
    assert main([*options, "--draw"]) == 0
    assert (workdir / "figure.png").read_bytes() == before


def test_edited_arrays_and_odd_shapes_are_one_line_errors(run, tmp_path, capsys):
    workdir, options = tmp_path / "run", [*run[1][:-1], f"--workdir={tmp_path / 'run'}"]
    shutil.copytree(run[0], workdir)
    with np.load(workdir / "arrays.npz") as file:
        arrays = dict(file)
    old = {name: array for name, array in arrays.items() if name != CHECKSUM}
    odd = {
        "empty": {name: array[..., :0] if array.ndim else array for name, array in old.items()},
        "of three axes": {name: np.ones((2, 3, 4)) for name in old},
        "words": {name: np.array(["a"]) for name in old},
        "fields": {name: np.zeros(3, [("a", "f4")]) for name in old},
    }
    edited = arrays | {"theory_radius_beta_0.5": np.array(0.9)}
    for name, content in {"edited": edited, **odd}.items():
        np.savez(workdir / "arrays.npz", **content)
        assert main([*options, "--draw"]) == 2, name
        error = capsys.readouterr().err
        expected = "damaged or edited" if name == "edited" else "has no checksum: repeat the run"
        assert expected in error and error.count("\n") == 1, (name, error)


def test_a_drawing_that_fails_loses_no_measurement(run, tmp_path, monkeypatch):
    options = [*run[1][:-1], f"--workdir={tmp_path / 'run'}"]
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="no ink"):
        broken = attention.SPECTRUM._replace(draw=_failing(attention.draw_spectrum))
        patch.setattr(attention, "SPECTRUM", broken)
        main(options)
    result = (tmp_path / "run/result.json").read_text()
    assert not (tmp_path / "run/figure.png").exists()
    with monkeypatch.context() as patch:
        broken = attention.SPECTRUM._replace(measure=_failing(attention.measure_spectrum))
        patch.setattr(attention, "SPECTRUM", broken)
        assert main(options) == 0
    assert (tmp_path / "run/figure.png").read_bytes() == (run[0] / "figure.png").read_bytes()
    assert (tmp_path / "run/result.json").read_text() == result


def _failing(function):
    @functools.wraps(function)
    def fails(**_):
        raise RuntimeError("no ink")

    return fails


def test_wrong_draws_and_files_are_one_line_errors(run, tmp_path, capsys):
    paths = ["--config=configs/attention_paths/order_parameter.py:scale=tiny"]
    paths.append(f"--workdir={tmp_path / 'x'}")
    draws = "figure.draws must be a multiple of 2"  # two chains share the draws
    cases = [
        ([*paths, "--config.figure.draws=7"], draws),
        ([*paths, "--config.figure.draws=6"], draws),
        (
            [*run[1], "--draw=a.jpg"],
            "a figure's name must end in one of .png, .pdf, .svg; got 'a.jpg'",
        ),
        ([*run[1], "--draw=nowhere/a.pdf"], "cannot write the figure nowhere/a.pdf: No such file"),
    ]
    assert not wrong_errors(main, cases, capsys)


def test_a_folder_without_the_needed_arrays_is_a_one_line_error(run, tmp_path, capsys):
    def refused(folder, config=MAPS):
        assert main([config, f"--workdir={folder}", "--draw"]) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ") and error.count("\n") == 1
        return error

    assert "there is none in" in refused(tmp_path / "none") and not (tmp_path / "none").exists()
    trained = "--config=configs/mixit/retrieval.py:variant=mixit,scale=tiny"
    assert "recipe 'train' store none" in refused(run[0], trained)
    (tmp_path / "empty").mkdir()
    assert "has no arrays.npz to draw" in refused(tmp_path / "empty")
    (tmp_path / "empty/arrays.npz").write_bytes(b"PK")
    assert "arrays.npz is damaged" in refused(tmp_path / "empty")
    np.savez(tmp_path / "empty/arrays.npz", other=np.zeros(1))
    assert "has no array 'weights_beta_0.1'" in refused(tmp_path / "empty")
    config = json.loads((run[0] / "config.json").read_text())["config"]
    assert config["figure"]["betas"] == [0.5]
