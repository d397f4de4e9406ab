"""The litmus test: its verdicts on given accuracies, its training runs, and refused arguments."""

import json
import math
import signal
from argparse import Namespace
from types import SimpleNamespace

import pytest

import jaxformer
from configs import common
from experiments import litmus
from experiments.cli import flags
from experiments.schedule import launch, running
from experiments.schedule.launch import Outcome
from jaxformer import api
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import write_json
from jaxformer.stats.differences import Number
from jaxformer.studies.litmus import rule
from jaxformer.studies.litmus.rule import CANNOT_TELL, HELPS, NEEDED, NOT_NEEDED, Trained
from jaxformer.tasks.retrieval import Retrieval
from tests.experiments import pretended

OWN = '''"""A user's task."""
from configs.mixit import memorization

def get_config(arg=""):
    config = memorization.get_config(arg)
    config.model.update(width=16, mlp_width=64)
    config.task.symbols = 4
    config.train.update(batch_size=16, steps=100, eval_every=50, target=2.0)
    return config
'''


def trained(**accuracies):
    return {
        name: Trained(Number(mean, sem, 3), 3, (1e-2,), 2, "there")
        for name, (mean, sem) in accuracies.items()
    }


@pytest.mark.parametrize(
    "verdict, message, accuracies",
    [
        (
            NEEDED,
            "recall needs attention that looks at the content, and random queries and keys are "
            "enough (Standard 99.9 ± 0.1 %, Frozen-QK 99.8 ± 0.1 %, MixiT 30.0 ± 4.0 %; best "
            "guess 35.0 %; 3 seeds).",
            dict(standard=(0.999, 1e-3), frozen_qk=(0.998, 1e-3), mixit=(0.3, 0.04)),
        ),
        (
            NEEDED,
            "and random queries and keys go part of the way",
            dict(standard=(0.999, 1e-3), frozen_qk=(0.9, 1e-2), mixit=(0.4, 0.04)),
        ),
        (
            NEEDED,
            "and queries and keys must be learned",
            dict(standard=(0.999, 1e-3), frozen_qk=(0.36, 0.01), mixit=(0.34, 0.04)),
        ),
        (
            NOT_NEEDED,
            "recall does not need attention that looks at the content",
            dict(standard=(0.99, 0.01), frozen_qk=(0.2, 0.01), mixit=(0.98, 0.01)),
        ),
        (
            HELPS,
            "MixiT gets 50 % of the way from the trivial predictor (best guess) to Standard",
            dict(standard=(0.95, 0.01), mixit=(0.65, 0.01)),
        ),
        (
            CANNOT_TELL,
            "recall cannot be told at this scale: Standard does not beat the trivial predictor",
            dict(standard=(0.36, 0.01), frozen_qk=(0.9, 0.01), mixit=(0.9, 0.01)),
        ),
    ],
)
def test_the_verdict_and_its_sentence_follow_from_the_accuracies(verdict, message, accuracies):
    actual = rule.judge("recall", trained(**accuracies), "best_guess", 0.35)
    assert actual.verdict == verdict and message in actual.sentence


def test_wide_error_bars_decide_nothing():
    """Standard and MixiT do not differ significantly, and MixiT may be at chance level."""
    accuracies = {
        name: one._replace(accuracy=one.accuracy._replace(n=30))
        for name, one in trained(standard=(0.655, 0.054), mixit=(0.552, 0.004)).items()
    }
    actual = rule.judge("addition", accuracies, "guess", 0.528)
    assert actual.verdict == CANNOT_TELL and "take more seeds" in actual.sentence


def test_frozen_queries_and_keys_are_not_called_enough_because_their_error_is_wide():
    accuracies = trained(standard=(0.953, 0.003), mixit=(0.103, 0.003), frozen_qk=(0.517, 0.217))
    actual = rule.judge("recall", accuracies, "guess", 0.1)
    assert actual.verdict == NEEDED
    assert actual.sentence.startswith("recall needs attention that looks at the content (Standard")


def test_one_seed_is_said_to_have_no_interval_and_its_score_no_error():
    one = {
        name: Trained(Number(mean, math.nan, 1), 1, (1e-2,), 2, "")
        for name, mean in (("standard", 0.99), ("mixit", 0.1))
    }
    actual = rule.judge("recall", one, "guess", 0.1)
    assert actual.verdict == CANNOT_TELL
    assert actual.sentence == (
        "recall cannot be told: Standard has no interval, which takes two seeds or more and none "
        "that diverged (Standard 99.0 %, MixiT 10.0 %; guess 10.0 %; 1 seed)."
    )


def result(seeds, baselines):
    """Returns a finished training from (accuracy, error of the test set) for each seed."""
    mean = sum(a for a, _ in seeds) / len(seeds)
    members = [
        {
            "seed": i,
            "learning_rate": rate,
            "chosen": rate == 1e-2,
            "metrics": {"accuracy": {"mean": a, "sem": error, "n": 100}},
        }
        for rate in (1e-3, 1e-2)
        for i, (a, error) in enumerate(seeds)
    ]
    spread = math.sqrt(sum((a - mean) ** 2 for a, _ in seeds) / 2 / 3)
    return {
        "config": {},
        "members": members,
        "metrics": {"accuracy": {"mean": mean, "sem": spread, "n": 3}},
        "baselines": baselines,
    }


def test_the_error_combines_seeds_and_test_set(tmp_path):
    seeds = ((0.8, 0.03), (0.9, 0.04), (1.0, 0.05))
    content = rule.read(result(seeds, {}), tmp_path)
    assert content.accuracy.mean == pytest.approx(0.9)
    assert content.accuracy.sem == pytest.approx(0.1 / 3**0.5)
    assert content.accuracy.test == pytest.approx(0.04, rel=0.03)  # root mean square of the seeds'
    assert (content.seeds, content.rates, content.tried) == (3, (1e-2,), 2)


def test_the_strongest_trivial_predictor_counts():
    scores = {"uniform": 0.1, "guess": 0.4, "unigram_loss": 3.2}
    assert rule.strongest(scores) == ("guess", 0.4)
    with pytest.raises(UserError, match="has no trivial predictor"):
        rule.strongest({"unigram_loss": 3.2})


class FakeExecutor(pretended.FakeExecutor):
    """Trains nothing: MixiT is at chance level, the others are perfect."""

    stop_after = 9

    def run(self, jobs):
        for i, job in enumerate(jobs):
            if i == self.stop_after:
                self.signal = signal.SIGTERM
                yield Outcome(job, 128 + signal.SIGTERM, 1.0, "")
                return
            job.workdir.mkdir(parents=True)
            accuracy = 0.2 if job.name == "MixiT" else 0.9
            seeds = ((accuracy, 0.01), (accuracy, 0.01), (accuracy + 0.03, 0.01))
            write_json(job.workdir / "result.json", result(seeds, {"guess": 0.3}))
            yield Outcome(job, 0, 1.0, "")


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(running, "LocalExecutor", FakeExecutor)
    return FakeExecutor


def test_the_verdict_is_printed_and_all_numbers_are_written(fake, tmp_path, capsys):
    arguments = ["--task=retrieval", f"--workdir={tmp_path}"]
    assert litmus.main(arguments) == 0
    out = capsys.readouterr().out
    assert "retrieval needs attention that looks at the content" in out and "4 to train" in out
    content = json.loads((tmp_path / "litmus.json").read_text())
    assert content["verdict"] == NEEDED and content["trivial"] == {"name": "guess", "accuracy": 0.3}
    assert content["variants"]["mixit"]["accuracy"]["mean"] == pytest.approx(0.21)
    assert (tmp_path / "litmus.png").read_bytes().startswith(b"\x89PNG")
    assert litmus.main(arguments) == 0
    assert "0 to train" in capsys.readouterr().out


def test_an_interrupted_litmus_test_resumes(fake, tmp_path, capsys, monkeypatch):
    arguments = ["--task=hops", f"--workdir={tmp_path}", "--rates=1e-3,1e-2"]
    monkeypatch.setattr(fake, "stop_after", 1)
    assert litmus.main(arguments) == 128 + signal.SIGTERM
    assert "Run the same command again: it resumes" in capsys.readouterr().out
    assert not (tmp_path / "litmus.json").exists()
    monkeypatch.setattr(fake, "stop_after", 9)
    assert litmus.main(arguments) == 0
    assert "3 to train" in capsys.readouterr().out


def test_rates_and_seeds_reach_every_model(fake, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    made, job = [], launch.make_job
    monkeypatch.setattr(launch, "make_job", lambda *a, **more: made.append(a) or job(*a, **more))
    assert litmus.main(["--task", "dyck", "--seeds", "5", "--rates", "1e-3,1e-2"]) == 0
    assert [label for label, *_ in made] == ["Standard", "Frozen-QK", "MixiT", "Random"]
    for _, _, overrides, root in made:
        assert overrides == {"n_seeds": "5", "optim.learning_rate": "1e-3,1e-2"}
        assert str(root) == "runs/litmus/dyck-tiny"


def test_new_tasks_and_variants_need_no_second_list(monkeypatch, tmp_path):
    """A new task and a new variant are registered in one place."""
    known = flags.training_configs("mixit")
    assert {"retrieval", "addition", "hops", "dyck", "memorization", "capacity"} <= {*known}
    assert not {"initialisation", "induction_head", "posterior", "sde_paths"} & {*known}
    (tmp_path / "own.py").write_text(OWN)
    files = [*flags.config_files(), str(tmp_path / "own.py")]
    monkeypatch.setattr(flags, "config_files", lambda: files)
    monkeypatch.setitem(common.VARIANTS, "mine", common.VARIANTS["standard"])
    assert flags.training_configs("mixit") == known | {"own": str(tmp_path / "own.py")}
    args = Namespace(variants="standard,mixit,mine", scale="tiny", seeds=3, rates="")
    jobs = litmus.jobs_of(args, str(tmp_path / "own.py"), tmp_path)
    assert [job.name for job in jobs.values()] == ["Standard", "MixiT", "Mine"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "give --task=NAME, one of addition, "),
        (["--task=retrieval", "--config=x.py"], "give --task=NAME"),
        (["--task=retreival"], "unknown task 'retreival'. Did you mean 'retrieval'?"),
        (["--task=hops", "--scale=huge"], "unknown scale 'huge'"),
        (["--task=hops", "--seeds=0"], "--seeds must be a whole number of at least 1"),
        (["--task=hops", "--rates=fast"], "--config.optim.learning_rate must be a sequence"),
        (["--task=hops", "--variants=mixit"], "must have standard and mixit, standard is missing"),
        (["--task=hops", "--variants=standard,mixt"], "unknown variant 'mixt'. Did you mean"),
        (["--config=nowhere.py"], "no config file 'nowhere.py'"),
        (["--config=mixit/initialisation"], "needs a training config"),
        (["--config=configs/mixit/sde_paths.py"], "unknown config argument 'variant=standard'"),
        (["--config=configs/mixit/initialisation.py"], "needs a training config"),
    ],
)
def test_wrong_arguments_are_one_line_errors(arguments, message, capsys):
    assert litmus.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and message in error


def test_a_python_call_judges_a_task_like_the_command(tmp_path, monkeypatch):
    """Training is replaced: MixiT is at chance level, the other variants are perfect."""
    calls = {}

    def train(task, model, partition, **arguments):
        variant = arguments["workdir"].name
        calls[variant] = model.spec.mixer, arguments["learning_rate"], arguments["target"]
        accuracy = 0.2 if variant == "mixit" else 0.9
        seeds = ((accuracy, 0.01), (accuracy, 0.01), (accuracy + 0.03, 0.01))
        content = result(seeds, {"guess": 0.3})
        finished = SimpleNamespace(as_json=lambda: content, baselines=content["baselines"])
        return SimpleNamespace(result=finished, folder=arguments["workdir"])

    monkeypatch.setattr(api, "train", train)
    task = Retrieval(max_pairs=3, vocab=16)
    actual = jaxformer.litmus(task, name="facts", workdir=tmp_path, progress=False)
    assert actual.verdict == NEEDED and actual.sentence.startswith("facts needs attention")
    assert calls == {
        "standard": ("softmax", 3e-3, 0.99),
        "frozen_qk": ("softmax", 1e-2, 0.99),
        "mixit": ("mixit", 3e-3, 0.99),
        "random": ("softmax", 3e-2, 0.99),
    }
    assert "trivial predictor (guess)  30.0 %" in str(actual) and "<pre>" in actual._repr_html_()
    assert repr(actual) == str(actual)
    assert [row["variant"] for row in actual.rows] == [*calls, "trivial: guess"]
    assert json.loads((tmp_path / "litmus.json").read_text())["sentence"] == actual.sentence
    assert (tmp_path / "litmus.png").exists()


def test_a_wrong_python_call_is_refused_before_training(monkeypatch):
    task = Retrieval(max_pairs=3, vocab=16)
    with pytest.raises(UserError, match="litmus needs a task"):
        jaxformer.litmus("retrieval")
    with pytest.raises(UserError, match="Did you mean 'mixit'"):
        jaxformer.litmus(task, variants=["standard", "mixt"])
    with pytest.raises(UserError, match="must contain standard and mixit; mixit is missing"):
        jaxformer.litmus(task, variants=["standard"])
    monkeypatch.setattr(Retrieval, "baselines", lambda self, batch: {"unigram_loss": 1.0})
    with pytest.raises(UserError, match="has no trivial predictor"):
        jaxformer.litmus(task)


@pytest.mark.slow
def test_a_config_of_the_user_is_judged(tmp_path, capsys):
    assert litmus.main(["--help"]) == 0
    (tmp_path / "own.py").write_text(OWN)
    arguments = [f"--config={tmp_path / 'own.py'}", "--seeds=2", "--rates=1e-6,1e-2"]
    arguments += ["--variants=standard,mixit", f"--workdir={tmp_path / 'runs'}"]
    assert litmus.main(arguments) == 0
    assert "own does not need attention that looks at the content" in capsys.readouterr().out
    content = json.loads((tmp_path / "runs/litmus.json").read_text())
    assert (
        content["variants"]["mixit"]["rates"] == [0.01]
        and content["variants"]["mixit"]["tried"] == 2
    )
