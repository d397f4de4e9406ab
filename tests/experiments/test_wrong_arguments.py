"""Wrong arguments of every command end with exit code 2 and one line that helps."""

from experiments import look, reproduce, run, sweep
from tests.experiments.conftest import wrong_errors
from tests.experiments.schedule.test_planning import PAPERS
from tests.experiments.test_sweep import CONFIG as SWEPT

RETRIEVAL = "--config=configs/mixit/retrieval.py:variant=mixit,scale=tiny"

# (arguments, a part of the error)
RUN = [
    ((), "no config given"),
    (("--config=a", "--config=b"), "--config is given 2 times"),
    ((RETRIEVAL, "--config.train.stpes", "9"), "Did you mean 'train.steps'?"),
    (("--confg=x",), "unknown flag '--confg=x'. Did you mean '--config'?"),
    (("train",), "unknown word 'train'"),
    (("--config",), "--config needs a value"),
    (("--config=configs/mixit/retreival.py",), "Did you mean 'configs/mixit/retrieval.py'?"),
    (("--config=mixit/retreival:scale=tiny",), "Did you mean 'mixit/retrieval'? `jaxformer con"),
    (("--config=README.md",), "is not a Python file"),
    (("--config=configs/mixit/retrieval.py:variant=mixt",), "unknown variant 'mixt'. Did you mean"),
    (("--config=configs/mixit/retrieval.py:scale=big",), "The choices are: tiny, small, paper"),
    (("--config=configs/mixit/retrieval.py:varian=mixit",), "Did you mean 'variant'?"),
    ((RETRIEVAL, "--config.optim.learningrate=1"), "Did you mean 'optim.learning_rate'?"),
    ((RETRIEVAL, "--config.optim.lr=1"), "Did you mean 'optim.learning_rate'?"),
    ((RETRIEVAL, "--config.model.d_model=1"), "Did you mean 'model.width'?"),
    ((RETRIEVAL, "--config.optim.learning_rate=fast"), "must be a sequence such as 0.003, got"),
    ((RETRIEVAL, "--config.optim.learning_rate=-1"), "must be positive numbers"),
    ((RETRIEVAL, "--config.train.steps=1.5"), "must be a whole number such as 400, got '1.5'"),
    ((RETRIEVAL, "--config.train.steps=-1"), "train.steps must be at least 0, got -1"),
    ((RETRIEVAL, "--config.train.steps=0"), "must not exceed the run (0 steps)"),
    ((RETRIEVAL, "--config.model.use_bias=maybe"), "must be true or false, got 'maybe'"),
    ((RETRIEVAL, "--config.task.length=2"), "task has: format, max_pairs, name, vocab."),
    ((RETRIEVAL, "--config.lenght=2"), "It has: data, devices, model, n_seeds, optim, partition"),
    ((RETRIEVAL, "--config.variant=standard"), "give it after the colon"),
    ((RETRIEVAL, "--config.arguments.scale=paper"), "after the colon of --config=FILE:scale=..."),
    ((RETRIEVAL, "--config.recipe=solve"), "recipe is not a field to override"),
    ((RETRIEVAL, "--config.task.name=retreival"), "unknown task 'retreival'. Did you mean"),
    ((RETRIEVAL, "--config.model.name=decodr"), "unknown model 'decodr'. Did you mean 'decoder'?"),
    ((RETRIEVAL, "--config.optim.labels.train.name=adamv"), "unknown optimizer 'adamv'"),
    ((RETRIEVAL, "--config.optim.labels.train.name=sgd"), "optimizer 'sgd' has no field 'b1'"),
    ((RETRIEVAL, "--config.optim.schedule=cosin"), "Did you mean 'cosine'?"),
    ((RETRIEVAL, "--config.model.heads=3"), "3 heads do not divide the width 64"),
    ((RETRIEVAL, "--config.model.mixer=softmx"), "unknown mixer 'softmx'"),
    ((RETRIEVAL, "--config.model.mixing_scale=theroy"), "unknown mixing scale 'theroy'"),
    ((RETRIEVAL, "--config.model.dtype=float31"), "unknown dtype 'float31'"),
    ((RETRIEVAL, "--config.task.max_pairs=99"), "retrieval needs 1 <= max_pairs <= vocab / 4"),
    ((RETRIEVAL, "--config.n_seeds=0"), "n_seeds must be at least 1, got 0"),
    ((RETRIEVAL, "--config.data.test_size=0"), "data.test_size must be at least 1"),
    ((RETRIEVAL, "--config.optim.warmup=999"), "the warm-up (999 steps) must not exceed"),
    (
        (
            "--config=configs/mixit/retrieval.py:variant=standard",
            "--config.model.heads=64",
        ),
        "even head dimension, got width 64 / 64 heads = 1",
    ),
    (
        (
            RETRIEVAL,
            "--config.partition=(('.*/mx', 'frozen'), ('.*', 'train'))",
        ),
        "the pattern '.*/mx' matches no path",
    ),
    (
        (
            RETRIEVAL,
            "--config.partition=(('.*', 'train'), ('.*/mix', 'frozen'))",
        ),
        "has no effect: earlier rules",
    ),
    ((RETRIEVAL, "--config.partition=(('.*/mix', 'train'),)"), "no rule covers"),
    ((RETRIEVAL, "--config.partition=(('.*', 'frozen'),)"), "train nothing"),
    (
        (
            "--config=configs/mixit/retrieval.py:scale=tiny",
            "--config.partition=(('.*/(qury|key)/.*', 'frozen'), ('.*', 'train'))",
        ),
        "'qury' in the pattern '.*/(qury|key)/.*' matches no path. Did you mean 'query'?",
    ),
    ((RETRIEVAL, "--config.partition=(('.*', 'trian'),)"), "no optimizer for the label 'trian'"),
]
SWEEP = [
    (
        [f"--config={SWEPT}", "--grid=model.heads=2,3", "--dry-run"],
        "model.heads = 3: 3 heads do not divide the width",
    ),
    ([], "give --config=FILE:ARGUMENTS, or --file"),
    (["--config=configs/mixit/hops.py:variant=mixit"], "nothing to sweep: give --grid"),
    ([f"--config={SWEPT}", "--grid=model.layers="], "has no values"),
    ([f"--config={SWEPT}", "--grid=model.layers"], "has no values"),
    ([f"--config={SWEPT}", "--grid=seed=1", "--grid=seed=2"], "--grid seed is given twice"),
    ([f"--config={SWEPT}", "--grid=model.layer=2"], "no field 'model.layer'. Did you mean"),
    ([f"--config={SWEPT}", "--grid=model.layers=2,x"], "must be a whole number such as 2"),
    ([f"--config={SWEPT}", "--grid=optim.learning_rate=1e-3,x"], "must be a sequence"),
    ([f"--config={SWEPT}", "--grid=model.width+seed=2"], "needs 2 numbers joined by +"),
    ([f"--config={SWEPT}", "--config.train.step=2"], "Did you mean 'train.steps'"),
    (["--config=configs/mixit/hops.py:variant={a"], "a brace without its other half"),
    (["--config=configs/mixit/hops.py:variant={}"], "empty braces"),
    (["--config=configs/mixit/hops.py:variant={mixt,mixit}"], "Did you mean 'mixit'"),
    (["--file=table7_retrievel.toml"], "Did you mean 'table7_retrieval.toml'"),
    ([f"--config={SWEPT}", "--processes=0"], "--processes must be a whole number"),
]
REPRODUCE = [
    ([], "give --paper=NAME, one of one, two or all"),
    (["--paper=on"], "unknown paper 'on'. Did you mean 'one'? The choices are: all, one, two"),
    (["--paper=one", "--only=Table 2"], "unknown table or figure 'Table 2'."),
    (["--paper=one", "--scale=smal"], "unknown scale 'smal'. Did you mean 'small'?"),
    (["--paper=one", "--budget=soon"], "--budget must be a time such as 90s"),
    (["--paper=one", "--budget=2h", "--budget=3h"], "--budget is given 2 times"),
    (["--paper=one", "--seeds=0"], "--seeds must be a whole number of at least 1"),
]
LOOK = [
    ([], "got 0 folders"),
    (["nowhere"], "no config.json"),
    (["--polt=x"], "unknown flag '--polt=x'"),
    (["x", "--sequences=none"], "--sequences must be a whole number of at least 1, got 'none'"),
]


def test_run_names_the_mistake_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not wrong_errors(run.main, RUN, capsys)
    assert not list(tmp_path.rglob("result.json"))


def test_other_commands_name_the_mistake(capsys):
    def reproduce_main(arguments):
        return reproduce.main(arguments, PAPERS)

    failures = wrong_errors(sweep.main, SWEEP, capsys)
    failures += wrong_errors(reproduce_main, REPRODUCE, capsys)
    failures += wrong_errors(look.main, LOOK, capsys)
    assert not failures
