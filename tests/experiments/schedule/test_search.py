"""The search with Optuna. Stand-ins replace the runs; their score depends on the parameters."""

import sys
from argparse import Namespace

import pytest

from experiments import sweep
from experiments.schedule import launch, search, search_journal
from experiments.schedule.search import Range

CONFIG = "--config=configs/mixit/memorization.py:scale=tiny,variant={standard,mixit}"
SPACE = [CONFIG, "--search=tpe", "--range=optim.learning_rate=1e-5:1e-1:log"]
SPACE += ["--range=model.layers=1:3"]


def test_ranges_and_choices_make_a_space():
    args = Namespace(range=["model.layers=1:3", "optim.learning_rate=1e-5:0.1:log"])
    space = search.search_space("a:{b,c}", {"model.heads": ["1", "2"]}, args)
    assert space == {
        "model.heads": ["1", "2"],
        "model.layers": Range(1.0, 3.0, True, False),
        "optim.learning_rate": Range(1e-5, 0.1, False, True),
        "config": ["a:b", "a:c"],
    }
    params = {"config": "a:c", "model.layers": 2, "optim.learning_rate": 0.001234567}
    run = search.run_of_params("a:{b,c}", params, {"seed": "3"})
    assert run.config == "a:c" and run.varied["optim.learning_rate"] == "0.00123457"
    assert run.overrides == {
        "seed": "3",
        "model.layers": "2",
        "optim.learning_rate": "0.00123457,",
    }


def test_without_optuna_one_line_names_the_extra_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert sweep.main([*SPACE, "--dry-run"]) == 2
    assert "pip install 'jaxformer[search]'" in capsys.readouterr().err


# The score is highest at a learning rate of 1e-3 with two layers. Large rates diverge.
STAND_IN = """
import json, math, pathlib, sys
sys.path.insert(0, {root!r})
from jaxformer.io.atomic_files import with_checksum
arguments = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
folder = pathlib.Path(arguments["--workdir"])
folder.mkdir(parents=True, exist_ok=True)
rate = float(arguments["--config.optim.learning_rate"].rstrip(","))
if rate > 0.03:
    print("error: the loss was not finite at step 3. Try a lower learning rate.")
    sys.exit(2)
score = 1 - abs(math.log10(rate) + 3) / 10 - abs(int(arguments["--config.model.layers"]) - 2) / 10
metrics = {{"accuracy": {{"mean": score, "sem": 0.0, "n": 1}}}}
member = {{"seed": 0, "learning_rate": rate, "validation_accuracy": score, "metrics": metrics}}
result = {{"config": {{}}, "metrics": metrics, "seeds": [0], "members": [member]}}
(folder / "result.json").write_text(json.dumps(with_checksum(result)))
"""


@pytest.mark.slow
def test_a_search_finds_the_best_run_and_resumes(tmp_path, monkeypatch, capsys):
    optuna = pytest.importorskip("optuna", reason="pip install 'jaxformer[search]'")
    from experiments.cli import flags

    code = STAND_IN.format(root=str(flags.ROOT))
    arguments = [*SPACE, f"--workdir={tmp_path / 'broken'}", "--grid=model.heads=3,5"]
    monkeypatch.setattr(launch, "PROGRAM", (sys.executable, "-c", "raise SystemExit(2)"))
    assert sweep.main([*arguments, "--trials=3"]) == 1  # and it ends
    assert capsys.readouterr().out.count("failed: it printed nothing") == 3
    monkeypatch.setattr(launch, "PROGRAM", (sys.executable, "-c", code))
    arguments = [*SPACE, f"--workdir={tmp_path}"]
    assert sweep.main([*arguments, "--trials=6"]) == 0
    args = Namespace(search="tpe", trials=8, workdir=tmp_path)
    config = CONFIG.removeprefix("--config=")
    space = search.search_space(
        config, {}, Namespace(range=[w[8:] for w in SPACE if "--range" in w])
    )
    study = search.Search(args, config, space, {})
    trial = study.study.ask()  # a launcher that was killed while this one ran
    for name, choice in space.items():
        search.suggest(trial, name, choice)
    study.study.ask()  # and one that was killed while it asked
    assert study.remaining_trials() == 1
    capsys.readouterr()
    assert sweep.main([*arguments, "--trials=25", "--processes=2"]) == 0
    out = capsys.readouterr().out
    assert f"trial {trial.number + 1} of 25" in out and "best memorization" in out
    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(tmp_path / search_journal.JOURNAL))
    )
    study = optuna.load_study(study_name="search", storage=storage)
    states = [t.state.name for t in study.trials if t.params]
    assert len(states) == 25 and set(states) == {"COMPLETE", "PRUNED"}
    assert study.best_value > 0.85
    assert sweep.main([*arguments, "--trials=25"]) == 0
    assert "trial" not in capsys.readouterr().out.partition("best")[0]
    assert sweep.main([*arguments, "--grid=seed=1,2"]) == 2
    assert "holds another search" in capsys.readouterr().err
