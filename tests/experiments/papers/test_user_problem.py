"""A user's problem from a file: its arrays, and the error for each mistake in them."""

import json

import jax
import numpy as np
import pytest

from experiments.cli import flags
from experiments.papers.attention_paths import accuracy, heads, kernels, problem, user_problem
from experiments.recipes import solve
from experiments.run import main
from jaxformer.core.errors import UserError

RNG = np.random.default_rng(0)
P, T, n = 8, 4, 3
TOKENS, MAPS = RNG.standard_normal((P, T, n)), RNG.dirichlet(np.ones(T), (2, P, 2, T))
Y = np.where(np.arange(P) % 2, 1.0, -1.0)
BY_MAPS = {"tokens": TOKENS, "attention_1": MAPS[0], "attention_2": MAPS[1], "labels": Y}
XI = np.stack(
    [(MAPS[1][:, b] @ MAPS[0][:, a] @ TOKENS)[:, -1] for a in range(2) for b in range(2)], 1
)
BY_PATHS = {"attentioned": XI, "heads": np.array([2, 2]), "labels": Y}


@pytest.fixture
def saved(tmp_path):
    def save(**arrays):
        np.savez(tmp_path / "my.npz", **arrays)
        return str(tmp_path / "my.npz")

    return save


def test_maps_and_paths_are_the_same_problem(saved):
    with jax.enable_x64(True):
        one, other = (problem.example(0, file=saved(**arrays)) for arrays in (BY_MAPS, BY_PATHS))
    np.testing.assert_allclose(one.attentioned, other.attentioned, atol=1e-12)
    assert one.heads == other.heads == (2, 2) and one.names == ("11", "12", "21", "22")
    np.testing.assert_array_equal(one.attentioned_test, one.attentioned)  # there is no test set


def test_a_test_set_names_and_outputs(saved):
    arrays = BY_PATHS | {"labels": np.stack([Y, TOKENS[:, 0, 0]], 1), "names": list("abcd")}
    arrays |= {"attentioned_test": XI[:3], "labels_test": arrays["labels"][:3]}
    example = problem.example(0, file=saved(**arrays))
    assert example.labels_test.shape == (3, 2) and example.names[:3] == ("a:1", "a:2", "b:1")
    assert not example.has_class_labels and example.accuracy(example.labels_test) == 1
    assert example.accuracy(example.labels_test.mean(0)) == pytest.approx(0)


@pytest.mark.slow  # three solvers to compile
def test_prior_variances_are_a_temperature_and_a_scale_of_the_labels(saved):
    """f is linear in every layer: the product s of the variances scales the kernel by s, so that
    ln det(s K + T) + Y (s K + T)^-1 Y is that of T/s and Y/sqrt(s), up to a constant."""
    variances = np.array([0.5, 2.0, 1.5, 3.0])
    with jax.enable_x64(True):
        scaled = problem.example(0, file=saved(**BY_PATHS, variances=variances))
        s = variances.prod()
        smaller = problem.example(0, file=saved(**BY_PATHS | {"labels": Y / s**0.5}))
        one, other = scaled.solve(5, 0.5), smaller.solve(5, 0.5 / s)
        unscaled = problem.example(0, file=saved(**BY_PATHS)).solve(5, 0.5)
    np.testing.assert_allclose(one.U, other.U, atol=1e-8)
    assert np.abs(np.asarray(one.U) - np.asarray(unscaled.U)).max() > 0.01


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": Y}, "needs 'attentioned' with 'heads', or 'tokens' with 'attention_1'"),
        ({"attentioned": XI, "heads": [2, 2]}, "has no array 'labels'; it has attentioned, heads"),
        ({"attentioned": XI, "labels": Y}, "no 'heads'"),
        (BY_PATHS | {"lables": Y}, "has an array 'lables'; expected attentioned"),
        (BY_PATHS | {"names": ["a"]}, r"names for 1 paths; its heads \(2, 2\) have 4"),
        (BY_PATHS | {"variances": [1.0, 2.0]}, "'variances' must be 4 numbers"),
        (BY_PATHS | {"variances": [1.0, 0.0, 1.0, 1.0]}, "smallest of 'variances'"),
        (
            BY_PATHS | {"labels_test": Y[:2], "attentioned_test": XI[:3]},
            "as many test inputs, got 3",
        ),
        (BY_MAPS | {"readout": "middle"}, "unknown readout 'middle'"),
        (BY_MAPS | {"attention_2": MAPS[1][:, :, :2]}, "attention maps of layer 2 must be"),
        (BY_PATHS | {"attentioned": 0 * XI}, r"all 8 examples are zero: .* singular, of rank 0"),
        (BY_PATHS | {"attentioned": 0 * XI + XI[:1]}, "are alike: their kernel is .* of rank 1"),
        (BY_MAPS | {"tokens": 0 * TOKENS}, "examples are zero"),
        (
            BY_PATHS | {"heads": [100_000, 100_000], "attentioned": XI},
            "10,000,000,000 paths of heads .* GiB",
        ),
    ],
)
def test_a_mistake_in_a_file_is_a_one_line_error(arrays, message, saved):
    with pytest.raises(UserError, match=message) as error:
        user_problem.read(saved(**arrays))
    assert "\n" not in str(error.value)


def test_no_file_and_a_file_of_something_else(tmp_path):
    with pytest.raises(UserError, match="there is no such file"):
        user_problem.read(str(tmp_path / "none.npz"))
    (tmp_path / "text.npz").write_text("not arrays")
    with pytest.raises(UserError, match="is no file of arrays"):
        user_problem.read(str(tmp_path / "text.npz"))


FIGURES = ("order_parameter", "head_scores", "path_kernels", "alignment", "accuracy", "wider")
JOBS = ("posterior", *FIGURES)


@pytest.mark.parametrize("job", JOBS)
def test_a_job_is_checked_before_it_starts(job, saved, tmp_path, capsys):
    command = f"--config=configs/attention_paths/{job}.py:scale=tiny"
    assert main([command, f"--config.data.file={saved(**BY_PATHS)}", "--dry-run"]) == 0
    assert main([command, f"--config.data.file={tmp_path}/no.npz", f"--workdir={tmp_path}/x"]) == 2
    error = capsys.readouterr().err
    assert "there is no such file" in error and error.count("\n") == 1


@pytest.mark.parametrize("job", ("datasets", "robustness"))
def test_a_figure_that_draws_its_own_data_refuses_a_file(job, saved, tmp_path, capsys):
    command = f"--config=configs/attention_paths/{job}.py:scale=tiny"
    file = f"--config.data.file={saved(**BY_PATHS)}"
    assert main([command, file, f"--workdir={tmp_path}/x"]) == 2
    error = capsys.readouterr().err
    assert f"figure 'paths_{job}' takes no data.file" in error and error.count("\n") == 1
    assert "paths_order_parameter" in error


@pytest.mark.parametrize("seeds", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_file_is_one_data_set_whatever_the_seeds(seeds, saved):
    """The numbers are those of one problem and have no error bar."""
    one_path = {"attentioned": XI[:, :1], "heads": np.array([1, 1]), "labels": Y}
    with jax.enable_x64(True):
        sets = problem.Datasets({"file": saved(**BY_PATHS)}, 0.1, 0, seeds)
        (data,) = sets.examples()
        U = data.solve(5, 0.1).U
        expected = data.accuracy_at(U, 0.1)
        measured = accuracy.measure_accuracy((5,), (), 0, 0, sets)
        metrics, baselines = measured.metrics, measured.baselines
        metrics |= {f"net/{k}": v for k, v in heads.measure_networks((5,), sets).metrics.items()}
        aligned = kernels.measure_alignment((5,), 99, sets)
        lone = problem.Datasets({"file": saved(**one_path)}, 0.1, 0, seeds)
        accuracy.measure_accuracy((5,), (), 0, 0, lone)
        kernels.measure_path_kernels(lone.task, (5,), 0.1, 0)
    metrics |= aligned.metrics
    K = np.einsum("ab,pan,qbn->pq", U, XI, XI, optimize=True)
    assert metrics["alignment/N=5"].mean == pytest.approx(Y @ K @ Y / P / np.linalg.norm(K))
    assert metrics["accuracy/N=5"].mean == metrics["net/accuracy/N=5"].mean
    assert metrics["accuracy/N=5"].mean == expected
    assert {metric.n for metric in metrics.values()} == {1} and baselines == {"chance": 0.5}
    assert aligned.arrays["overlap"].shape == (2, 1, P)  # as many components as examples


def test_the_record_of_a_file_has_one_seed(saved):
    config = flags.load_config("configs/attention_paths/alignment.py:scale=paper")
    assert solve.setup(config)[1]["n_seeds"] == 10 and solve.uses_seeds(config)
    config.data.file = saved(**BY_PATHS)
    assert solve.setup(config)[1]["n_seeds"] == 1 and not solve.uses_seeds(config)


def test_kernels_of_several_outputs_are_of_every_path_and_output(saved):
    """The labels, one column after the other, are aligned with a kernel of two equal blocks."""
    arrays = BY_PATHS | {"labels": np.stack([Y, -Y], 1)}
    with jax.enable_x64(True):
        sets = problem.Datasets({"file": saved(**arrays)}, 0.1, 0, 1)
        metrics = kernels.measure_alignment((5,), 4, sets).metrics
        drawn = kernels.measure_path_kernels(sets.task, (5,), 0.1, 0)
    K = np.einsum("pan,qan->pq", XI, XI)
    expected = Y @ K @ Y / P / np.linalg.norm(K) / 2**0.5
    assert metrics["alignment/GP_limit"].mean == pytest.approx(expected)
    assert drawn.metrics["alignment/K,GPlimit"].mean == pytest.approx(expected)
    assert len(drawn.arrays["paths"]) == 8


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS)
def test_a_job_runs_on_user_data(job, saved, tmp_path):
    arrays = BY_PATHS | {"labels": np.stack([TOKENS[:, 0, 0], TOKENS[:, 1, 0]], 1)}
    command = f"--config=configs/attention_paths/{job}.py:scale=tiny"
    file = f"--config.data.file={saved(**arrays)}"
    assert main([command, file, f"--workdir={tmp_path}/run"]) == 0
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert any(value["mean"] is not None for value in result["metrics"].values())
    assert (tmp_path / "run/figure.png").exists() and result["seeds"] == [0]
