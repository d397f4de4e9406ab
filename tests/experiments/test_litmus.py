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
from jaxformer.stats.controls import Training
from jaxformer.stats.differences import Number
from jaxformer.studies.litmus import rule
from jaxformer.studies.litmus.rule import CANNOT_TELL, HELPS, NEEDED, NOT_NEEDED
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


GUESS = 0.35


def trainings(guess=GUESS, n=3, **accuracies):
    """Models whose best rate is the middle one, and for which more steps score the same.

    Those at a guess had four times the steps and five seeds.
    """
    found = {}
    for name, (mean, sem) in accuracies.items():
        is_dead = mean - 5 * sem <= guess
        score = Number(mean, sem, 5 if is_dead else n, is_share=True)
        found[name] = Training(
            score,
            3e-3,
            (1e-3, 3e-3, 1e-2),
            200,
            guess,
            longer=score,
            solved_at=100 if name == "standard" else None,
        )
    return found


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
    actual = rule.judge("recall", trainings(**accuracies), "best_guess")
    assert actual.verdict == verdict and message in actual.sentence


def test_wide_error_bars_decide_nothing():
    """Standard and MixiT do not differ significantly, and MixiT may be at chance level."""
    scores = {"standard": (0.655, 0.054), "mixit": (0.552, 0.004)}
    found = {
        name: one._replace(score=one.score._replace(n=30))
        for name, one in trainings(0.528, **scores).items()
    }
    actual = rule.judge("addition", found, "guess")
    assert actual.verdict == CANNOT_TELL and "take more seeds" in actual.sentence


def test_frozen_queries_and_keys_are_not_called_enough_because_their_error_is_wide():
    scores = {"standard": (0.953, 0.003), "mixit": (0.103, 0.003), "frozen_qk": (0.517, 0.217)}
    actual = rule.judge("recall", trainings(0.1, **scores), "guess")
    assert actual.verdict == NEEDED
    assert actual.sentence.startswith("recall needs attention that looks at the content (Standard")


def test_one_seed_is_said_to_have_no_interval_and_its_score_no_error():
    one = {
        name: training._replace(score=Number(training.score.mean, math.nan, 1))
        for name, training in trainings(0.1, standard=(0.99, 0.0), mixit=(0.1, 0.0)).items()
    }
    actual = rule.judge("recall", one, "guess")
    assert actual.verdict == CANNOT_TELL
    assert actual.sentence == (
        "recall cannot be told: Standard has no interval, which takes two seeds or more and none "
        "that diverged (Standard 99.0 %, MixiT 10.0 %; guess 10.0 %; 1 seed)."
    )


def result(seeds, baselines, rates=(1e-3, 1e-2, 3e-2), steps=100):
    """A finished training of (accuracy, error of the test set) by seed; the middle rate is best."""
    best = sorted(rates)[len(rates) // 2]
    mean = sum(a for a, _ in seeds) / len(seeds)
    members = [
        {
            "seed": i,
            "learning_rate": rate,
            "chosen": rate == best,
            "diverged_at": None,
            "validation_accuracy": a - 0.05 * (rate != best),
            "metrics": {"accuracy": {"mean": a - 0.05 * (rate != best), "sem": error, "n": 100}},
        }
        for rate in rates
        for i, (a, error) in enumerate(seeds)
    ]
    n = len(seeds)
    spread = math.sqrt(sum((a - mean) ** 2 for a, _ in seeds) / max(n - 1, 1) / n)
    return {
        "config": {"train": {"steps": steps}},
        "members": members,
        "metrics": {"accuracy": {"mean": mean, "sem": spread, "n": n}},
        "baselines": baselines,
        "steps": steps,
    }


def test_the_error_combines_seeds_and_test_set(tmp_path):
    seeds = ((0.8, 0.03), (0.9, 0.04), (1.0, 0.05))
    runs = rule.Runs({1: result(seeds, {})}, tmp_path)
    content = rule.read(runs, runs, GUESS)
    assert content.accuracy.mean == pytest.approx(0.9)
    assert content.accuracy.sem == pytest.approx(0.1 / 3**0.5)
    assert content.accuracy.test == pytest.approx(0.04, rel=0.03)  # root mean square of the seeds'
    assert (content.seeds, content.rates, content.tried) == (3, (1e-2,), 3)


def test_the_strongest_trivial_predictor_counts():
    scores = {"uniform": 0.1, "guess": 0.4, "unigram_loss": 3.2}
    assert rule.strongest(scores) == ("guess", 0.4)
    with pytest.raises(UserError, match="has no trivial predictor"):
        rule.strongest({"unigram_loss": 3.2})


def planted(variant, n_seeds, **more):
    """MixiT is at chance level whatever its steps, the others solve the task."""
    accuracy = 0.28 if variant == "mixit" else 0.93
    seeds = [(accuracy + 0.01 * (i % 2), 0.01) for i in range(n_seeds)]
    return result(seeds, {"guess": 0.3}, **more)


class FakeExecutor(pretended.FakeExecutor):
    """Trains nothing."""

    stop_after = 9

    def run(self, jobs):
        for i, job in enumerate(jobs):
            if i == self.stop_after:
                self.signal = signal.SIGTERM
                yield Outcome(job, 128 + signal.SIGTERM, 1.0, "")
                return
            job.workdir.mkdir(parents=True)
            config = launch.config_dict(job.config, job.overrides)
            rates = (1e-2,) if job.name.endswith("x") else (1e-3, 1e-2, 3e-2)
            variant = "mixit" if job.name.startswith("MixiT") else "standard"
            content = planted(
                variant, config["n_seeds"], rates=rates, steps=config["train"]["steps"]
            )
            write_json(job.workdir / "result.json", content)
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
    mixit = content["variants"]["mixit"]
    assert mixit["accuracy"]["mean"] == pytest.approx(0.28, abs=0.01)
    # It ran again with twice its steps and, for the five seeds of "does not learn", with four.
    assert (mixit["seeds"], mixit["control"]) == (3, "does not learn")
    files = tmp_path.glob("mixit-retrieval-mixit*/result.json")
    steps = sorted(json.loads(file.read_text())["steps"] for file in files)
    assert steps[1:] == [2 * steps[0], 4 * steps[0]]
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
    assert [label for label, *_ in made][:4] == ["Standard", "Frozen-QK", "MixiT", "Random"]
    for _, _, overrides, root in made[:4]:
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
    calls = []

    def train(task, model, partition, **arguments):
        variant = "mixit" if model.spec.mixer == "mixit" else "standard"
        rates = arguments["learning_rate"]
        rates = rates if isinstance(rates, list) else [rates]
        seeds, steps = arguments["seeds"], arguments["steps"]
        calls.append((arguments["workdir"].name, rates, len(seeds), steps, arguments["target"]))
        content = planted(variant, len(seeds), rates=rates, steps=steps)
        for member in content["members"]:
            best = 0.93 - abs(member["learning_rate"] - sorted(rates)[len(rates) // 2])
            member |= {"chosen": len(rates) == 1, "validation_accuracy": best}
        finished = SimpleNamespace(as_json=lambda: content, baselines=content["baselines"])
        return SimpleNamespace(result=finished, folder=arguments["workdir"])

    monkeypatch.setattr(api, "train", train)
    task = Retrieval(max_pairs=3, vocab=16)
    actual = jaxformer.litmus(task, name="facts", workdir=tmp_path, progress=False)
    assert actual.verdict == NEEDED and actual.sentence.startswith("facts needs attention")
    assert calls == [
        ("standard-rates", [1e-3, 3e-3, 1e-2], 1, 300, 0.99),
        ("standard", [3e-3], 3, 300, 0.99),
        ("frozen_qk-rates", [3e-3, 1e-2, 3e-2], 1, 300, 0.99),
        ("frozen_qk", [1e-2], 3, 300, 0.99),
        ("mixit-rates", [1e-3, 3e-3, 1e-2], 1, 300, 0.99),
        ("mixit", [3e-3], 3, 300, 0.99),
        ("random-rates", [1e-2, 3e-2, 1e-1], 1, 300, 0.99),
        ("random", [3e-2], 3, 300, 0.99),
        ("mixit-steps2x", [3e-3], 3, 600, 0.99),
        ("mixit-steps4x", [3e-3], 5, 1200, 0.99),
    ]
    assert actual.variants["mixit"].control == "does not learn"
    assert "MixiT                      28." in str(actual)
    assert "rate 0.003, 600 steps, does not learn" in str(actual)
    assert "trivial predictor (guess)  30.0 %" in str(actual) and "<pre>" in actual._repr_html_()
    assert repr(actual) == str(actual)
    assert [row["variant"] for row in actual.rows][2:] == ["mixit", "random", "trivial: guess"]
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


def test_a_budget_leaves_a_loser_not_trained(monkeypatch):
    def train(task, model, partition, **arguments):
        is_mixit, rates = model.spec.mixer == "mixit", arguments["learning_rate"]
        rates = rates if isinstance(rates, list) else [rates]
        content = planted("mixit" if is_mixit else "standard", len(arguments["seeds"]), rates=rates)
        for member in content["members"]:
            member["validation_accuracy"] = 0.93 - abs(member["learning_rate"] - 3e-3)
        finished = SimpleNamespace(as_json=lambda: content, baselines=content["baselines"])
        return SimpleNamespace(result=finished, folder=None)

    monkeypatch.setattr(api, "train", train)
    task = Retrieval(max_pairs=3, vocab=16)
    actual = jaxformer.litmus(task, name="facts", budget=-1.0, progress=False)
    assert actual.verdict == CANNOT_TELL
    assert actual.sentence.startswith(
        "facts cannot be told: MixiT scores less than Standard and is not trained within the budget"
    )


PLANTS = {
    "dead rate": (
        dict(rate=1e-3),
        "not trained (its best rate 0.001 is the lowest that was tried)",
    ),
    "one rate": (dict(rates=(3e-3,)), "not trained (one learning rate tried, 3 are needed)"),
    "stopped early": (
        dict(longer=Number(0.9, 0.01, 3, is_share=True)),
        "not trained (2 x 200 steps score 0.9, not 0.6)",
    ),
    "without a longer run": (
        dict(longer=None),
        "not trained (cannot tell whether it ended: no run of twice the steps)",
    ),
    "bimodal": (
        dict(
            score=Number(0.6, 0.2, 3, is_share=True, by_seed={0: 0.95, 1: 0.35, 2: 0.5}),
            solved=0.9,
        ),
        "two modes (1 of 3 seeds solve it)",
    ),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_model_that_was_not_trained_decides_nothing(name):
    change, words = PLANTS[name]
    found = trainings(standard=(0.99, 0.001), mixit=(0.6, 0.01))
    assert rule.judge("recall", found, "guess").verdict == HELPS
    found["mixit"] = found["mixit"]._replace(**change)
    if name == "bimodal":  # so wide an interval decides nothing, unless Standard's is narrower
        assert rule.compared_trainings(found["mixit"], found["standard"]).word == "two modes"
        return
    actual = rule.judge("recall", found, "guess")
    assert actual.verdict == CANNOT_TELL
    assert f"MixiT scores less than Standard and is {words} (" in actual.sentence


def test_two_models_that_reach_the_target_are_not_told_apart():
    """Both stopped there, so what is left of a difference is where they stopped."""
    found = trainings(standard=(0.996, 0.0002), mixit=(0.991, 0.0002))
    found = {name: one._replace(is_at_target=True) for name, one in found.items()}
    assert rule.judge("recall", found, "guess").verdict == NOT_NEEDED
