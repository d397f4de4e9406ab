"""The recall recipe: probes, truncations and the two fits of fine-tuning."""

import json
import signal
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.text import Text

from experiments.papers.associations import recall_figures, recall_probes, recall_summary
from experiments.papers.associations.recall_callback import RecallCallback
from experiments.run import main
from jaxformer import surgery
from jaxformer.core.errors import UserError
from jaxformer.io.checkpoint_writer import Checkpoints
from jaxformer.io.run_folder import Workdir
from jaxformer.tasks.recall import Recall
from jaxformer.tasks.task import Batch
from tests.experiments.conftest import AFTER_ROWS, WHILE_SAVING, wrong_errors

FINETUNE = "--config=configs/associations/finetune.py:scale=tiny"
SIZES = ("--config.model.width=8", "--config.data.test_size=16", "--config.train.batch_size=8")


def test_every_fraction_is_laser_in_one_program():
    key = jax.random.key(0)
    params = {"a": {"kernel": jax.random.normal(key, (6, 4))}, "b": {"kernel": jnp.ones((3, 3))}}
    fractions = (0.0, 0.3, 0.5, 1.0)
    traced = []

    def measure(cut):
        traced.append(1)
        return cut["a"]["kernel"]

    measured = surgery.truncations(params, "a", fractions, measure)
    assert len(traced) == 1
    for cut, fraction in zip(measured, fractions, strict=True):
        expected = surgery.laser(params, "a", fraction)["a"]["kernel"]
        # Of the largest entry: a cut matrix has entries that only rounding keeps from 0.
        np.testing.assert_allclose(cut, expected, rtol=0, atol=1e-6 * abs(expected).max())
    with pytest.raises(UserError, match=r"in \[0, 1\], got 1.5"):
        surgery.truncations(params, "a", (1.5,), measure)


@pytest.mark.slow  # two more compilations of the recall step
def test_finetuning_is_two_fits_with_probes(tmp_path, capsys):
    # A member that diverges is recorded and stops no other.
    rates = "--config.optim.learning_rate=(0.03,1e30)"
    assert main([FINETUNE, *SIZES, rates, f"--workdir={tmp_path / 'run'}"]) == 0
    assert "at rate 1e+30 diverged at step 1; it is recorded" in capsys.readouterr().out
    result = json.loads((tmp_path / "run/result.json").read_text())
    expected = {"p_correct", "p_noise_drop_without_f2", "attention_difference_clean"}
    assert expected <= set(result["metrics"])
    assert [member["diverged_at"] for member in result["members"]] == [None, 1]
    assert [member["chosen"] for member in result["members"]] == [True, False]
    for name in ("p_correct", "loss", "accuracy"):
        member, whole = result["members"][0]["metrics"][name], result["metrics"][name]
        assert whole["n"] == 1 and whole["mean"] == member["mean"]
    steps = [row["step"] for row in Workdir(tmp_path / "run").rows() if "probes" in row]
    # Every second of the first steps on either kind of data, here all.
    assert steps == [*range(0, 21, 2)]
    with np.load(tmp_path / "run/arrays.npz") as arrays:
        full = arrays["probes/p_correct"][-1]
        cut = arrays["truncated/block_1/mlp/in/p_correct"]
        np.testing.assert_allclose(cut[0, -1], full[0], rtol=1e-4)
        dropped = arrays["probes/p_correct_without_f2"][-1]
        np.testing.assert_allclose(cut[0, 0], dropped[0], rtol=1e-4)
        weights, query = arrays["attention/weights"], arrays["attention/query"]
        assert list(arrays["attention/steps"]) == [10, 20]
        np.testing.assert_allclose(weights[:, 0, : query + 1].sum(-1), 1, rtol=1e-5)
        assert not weights[:, 0, query + 1 :].any()
    for name in ("figure", "layers", "memories", "attention"):
        assert (tmp_path / f"run/{name}.png").exists()
    drawn = f"--draw={tmp_path / 'fig8.pdf'}"
    assert main([FINETUNE, *SIZES, rates, f"--workdir={tmp_path / 'run'}", drawn]) == 0
    assert {f.name for f in tmp_path.glob("*.pdf")} == {
        f"fig8{part}.pdf" for part in ("", "-layers", "-memories", "-attention")
    }


def test_memories_are_scored_as_what_they_store():
    N, T, q, noise = 5, 4, 0, 4
    task = Recall(n_symbols=4, context=T)
    assert (task.trigger_tokens, task.noise_token) == ((q,), noise)
    maps = {
        "values": jnp.eye(N).at[2].set(jnp.eye(N)[3]),  # token 2 is copied as 3
        "feed_forward": jnp.zeros((N, N)).at[:, noise].set(1.0).at[0, 3].set(2.0),
        "previous_token": jnp.eye(T, k=-1) + 9 * jnp.eye(T, k=1),  # the future does not count
        "induction": jnp.zeros((N, N)).at[q, q].set(3.0).at[1, 1].set(1.0),
    }
    scores = {n: float(v) for n, v in recall_probes.memory_scores(maps, task).items()}
    assert scores["recall_values"] == pytest.approx(3 / 4)
    assert scores["recall_noise"] == pytest.approx(4 / 5)
    assert scores["recall_previous"] == 1
    rest = np.array([1.0] + [0.0] * 23)  # all but (q, q)
    expected = (3 - rest.mean()) / rest.std(), (0.25 - rest.mean()) / rest.std()
    result = scores["induction_triggers"], scores["induction_others"]
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_maps_show_the_first_averaged_member():
    """An earlier member has diverged and is not averaged."""
    task, draws = Recall(n_symbols=4, context=6), iter(jax.random.split(jax.random.key(0), 9))

    def kernel():
        kernel_2xDxD = jax.random.normal(next(draws), (2, 5, 5))
        return {"kernel": kernel_2xDxD.at[0].set(jnp.nan)}

    blocks = {f"block_{i}": {"attn": {"key": kernel(), "value": kernel()}} for i in range(2)}
    params = blocks | {"embed": {"embedding": kernel()["kernel"]}, "unembed": kernel()}
    model = SimpleNamespace(spec=SimpleNamespace(feed_forward=("none", "none")))
    callback = SimpleNamespace(setup=SimpleNamespace(model=model, task=task))
    members = [{"diverged_at": at, "chosen": True, "learning_rate": 1.0} for at in (3, None)]
    (member,) = recall_summary.averaged_members(members)
    maps, scores = RecallCallback._memories(callback, (params, {}), member)
    assert all(np.isfinite(heat_map).all() for heat_map in maps.values())
    assert all(score.shape == (2,) for score in scores.values())
    arrays = {f"memories/{name}": np.asarray(heat_map) for name, heat_map in maps.items()}
    for seed, caption in (({"memories/seed": np.array(7)}, "seed 7"), ({}, "the first seed")):
        figure = recall_figures.memories(task, arrays | seed)
        texts = [text.get_text() for text in figure.findobj(Text)]
        assert any(f"One network ({caption})" in text for text in texts), texts


def test_the_last_of_ten_layers_is_the_tenth():
    """Layers are sorted by number, not as text."""
    curves = {f"p_noise{e}": 0 for e in ("", "_without_f9", "_without_f10", "_at_0.5")}
    assert [*recall_figures._versions(curves)] == ["", "_without_f10", "_without_f9", "_at_0.5"]
    curves["p_noise_without_f1"] = 0
    assert [*recall_figures._versions(curves)] == ["", "_without_f10", "_at_0.5"]


def test_the_sequence_shown_has_both_noise_and_another_ybar_than_the_trigger():
    task = Recall(n_symbols=4, context=6)
    (q,), tau = task.trigger_tokens, task.noise_token
    assert (q, tau) == (0, 4)
    inputs = jnp.array(
        [
            [q, q, q, tau, q, 1],  # ybar is the trigger
            [q, 2, 3, q, 2, q],  # no noise
            [q, tau, q, 3, q, 1],
            [1, 2, 3, 2, 1, 3],  # nothing scored
        ]
    )
    here = inputs == q
    weights = (here & (jnp.cumsum(here, 1) >= 2)) * 1.0
    shown = recall_probes.query_to_show(task, Batch(inputs, inputs, weights))
    assert shown.tokens_T.tolist() == inputs[2].tolist() and shown.position == 4
    target, noise = recall_probes.followers(task, inputs)
    assert target[2].tolist() == [False, False, False, True, False, True]
    assert noise[2].tolist() == [False, True, False, False, False, False]


@pytest.mark.slow
def test_if_all_diverge_the_last_good_state_is_kept(tmp_path, capsys):
    workdir = tmp_path / "run"
    arguments = [FINETUNE, *SIZES, "--config.train.log_every=1", f"--workdir={workdir}"]
    # Adam's steps grow with the rate: a few are finite, as float32 ends at 3e38.
    assert main([*arguments, "--config.optim.learning_rate=(20.0,)"]) == 2
    error = capsys.readouterr().err
    assert "error: the loss was not finite at step" in error and "Traceback" not in error
    assert not (workdir / "result.json").exists()
    with Checkpoints(workdir / "ckpt") as checkpoints:
        result = checkpoints.restore()
    assert result is not None and result.step > 0
    assert all(np.isfinite(leaf).all() for leaf in result.arrays.values() if leaf.dtype.kind == "f")


@pytest.mark.slow
def test_killed_in_either_fit_the_run_ends_as_if_it_had_not_been(tmp_path, interrupted):
    sizes = (*SIZES, "--config.train.log_every=1", "--config.n_seeds=2", "--config.train.steps=25")
    workdir, whole = tmp_path / "killed", tmp_path / "whole"
    arguments = [FINETUNE, *sizes, f"--workdir={workdir}"]

    stopped = interrupted(arguments, AFTER_ROWS, 5, signal.SIGTERM)  # on clean data
    assert stopped.returncode == 128 + signal.SIGTERM, stopped.stderr
    killed = interrupted(arguments, WHILE_SAVING, 15, signal.SIGKILL)  # on noisy data
    assert killed.returncode == -signal.SIGKILL and "resuming from step" in killed.stdout
    assert not (workdir / "result.json").exists()
    assert main(arguments) == 0
    assert main([*arguments[:-1], f"--workdir={whole}"]) == 0
    assert Workdir(workdir).rows() == Workdir(whole).rows()
    resumed, reference = (json.loads((d / "result.json").read_text()) for d in (workdir, whole))
    for name in ("metrics", "members", "steps", "baselines"):
        assert resumed[name] == reference[name]
    with np.load(workdir / "arrays.npz") as resumed, np.load(whole / "arrays.npz") as reference:
        assert resumed.files == reference.files
        for name in resumed.files:
            np.testing.assert_array_equal(resumed[name], reference[name])


MISTAKES = [
    ("--config.recall.truncate=('block_1/mpl/in',)", "matches no path"),
    ("--config.recall.fractions=(2.0,)", "LASER fraction must be a number in"),
    ("--config.recall.pretrain_steps=20", "must be 0 to train.steps - 1 = 19"),
    ("--config.task.alpha=1.5", "alpha must be in"),
    ("--config.task.triggers=#", "not among the 32 symbols"),
]


def test_mistakes_are_one_line_errors(tmp_path, capsys):
    workdir = f"--workdir={tmp_path / 'w'}"
    cases = [([FINETUNE, argument, workdir], message) for argument, message in MISTAKES]
    assert not wrong_errors(main, cases, capsys)
