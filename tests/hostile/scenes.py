"""The commands that are killed and damaged: their arguments and the files that they start from.

A scene more is a line of SCENES, and a line of TEMPLATES if it starts from files.
"""

import os
import subprocess
import sys
from pathlib import Path

from experiments import prepare
from experiments.confirmation import plan
from experiments.confirmation.judging_code import code_digest
from experiments.ledger.item import Cell, Item, Paper
from experiments.ledger.rules import above, of
from jaxformer.models.pretrained import tiny
from tests.experiments.conftest import POSTERIOR, ROOT, TINY, instead
from tests.experiments.papers.test_paths import ONESHOT
from tests.experiments.test_text import SMALL as TEXT

SEED = int(os.environ.get("HOSTILE_SEED") or 0)
RUN = ("experiments.run", "--workdir={place}")
SMALL = instead(TINY, "--config.train.steps=40", "--config.optim.warmup=5")
FIGURE = "configs/two_failure_modes/figB1_overlap.py"
PREPARE = ("--tokenizer=bpe:300", "--documents=line")
SCENES = {
    "train": (*RUN, *SMALL),
    "population": (*RUN, *SMALL, "--config.n_seeds=2", "--config.optim.learning_rate=1e-3,1e-2"),
    "text": (
        "experiments.run",
        "--workdir={place}/run",
        *TEXT,
        "--config.task.tokens={place}/tokens",
    ),
    "look": (*RUN, *instead(SMALL, "--config=configs/mixit/induction_head.py:scale=tiny")),
    "recall": (
        *RUN,
        "--config=configs/associations/finetune.py:scale=tiny",
        "--config.model.width=8",
        "--config.data.test_size=16",
        "--config.train.batch_size=8",
    ),
    "posterior": (*RUN, *POSTERIOR),
    "solve": (*RUN, f"--config={FIGURE}:scale=tiny"),
    "measure": (
        *RUN,
        "--config=configs/mixit/initialisation.py:variant=frozen_qk,scale=tiny",
        "--config.model.width=16",
        "--config.model.mlp_width=64",
        "--config.data.test_size=20",
    ),
    "oneshot": (*RUN, *ONESHOT, "--config.bayes.draws=16"),
    "prepare": (
        "experiments.prepare",
        "--dataset=text:{template}/t.txt",
        "--out={place}/tokens",
        *PREPARE,
    ),
    "search": (
        "experiments.cut",
        "{template}/gpt2",
        "--search",
        "--prompts={template}/p.tsv",
        "--out={place}/rows",
        "--fraction=0.3,0.6",
    ),
    "activations": ("tests.hostile.store_activations", "{place}"),
    "anatomy": (
        "experiments.anatomy",
        "--task=jaxformer.tasks.language:NextToken(window=8)",
        "--steps=150",
        "--batch-size=16",
        "--width=16",
        "--layers=1",
        "--heads=2",
        "--methods=frozen",
        "--seeds=1",
        "--rates=1e-2,3e-2",
        "--budget=1h",
        "--workdir={place}",
    ),
    "confirmation": (
        "experiments.confirm",
        "run",
        "--plan={place}/PLAN.json",
        "--claims=tests.hostile.scenes:CLAIMS",
        "--workdir={place}/runs",
        "--processes=1",
    ),
}
CELL = Cell(FIGURE, scales=("tiny",))
CLAIMS = Paper("p", "t", "s", (Item("Table 1", "c.", {"a": CELL}, {"r": above(of("a"), 0.5)}),))


def write_text(folder: Path) -> None:
    lines = (f"line {i} of a text, {i * i} ☃\n" for i in range(2000))
    (folder / "t.txt").write_text("".join(lines))


def write_tokens(folder: Path) -> None:
    write_text(folder)
    arguments = [f"--dataset=text:{folder / 't.txt'}", f"--out={folder / 'tokens'}", *PREPARE]
    assert prepare.main(arguments) == 0


def write_model(folder: Path) -> None:
    tiny.save("gpt2", folder / "gpt2", tiny.TEXTS)
    prompts = ("Madrid is located in\tSpain", "The capital of France is\tParis")
    (folder / "p.tsv").write_text("".join(f"{prompt}\n" for prompt in prompts))


def write_plan(folder: Path) -> None:
    """Writes a plan with a row that has two runs of one cell, with different seeds."""
    config, names = f"{FIGURE}:scale=tiny", ("first", "second")
    digest = plan.digest_without_seeds(config, {})
    runs = {name: plan.PlannedConfig(config, {}, 0, i, digest, 1.0) for i, name in enumerate(names)}
    row = plan.PlannedRow(
        "p", "Table 1", plan.item_digest(CLAIMS.items[0]), "held", "r", 5, "", "A", {"a": names}
    )
    plan.write(
        plan.with_hash(plan.Plan("t", (row,), runs, code_digest(plan.JUDGING_MODULES), "")), folder
    )


TEMPLATES = {
    "text": write_tokens,
    "prepare": write_text,
    "search": write_model,
    "confirmation": lambda folder: write_plan(folder / "PLAN.json"),
}


def attack(module: str, scene: str, folder: Path, times: int) -> None:
    """Runs `harness` or `damage` on a scene, in a new process that has used no device."""
    if scene in TEMPLATES:
        (folder / "template").mkdir()
        TEMPLATES[scene](folder / "template")
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".jax_cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    words = [f"tests.hostile.{module}", str(folder), str(SEED), str(times), *SCENES[scene]]
    done = subprocess.run(
        [sys.executable, "-m", *words], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    print(f"HOSTILE_SEED={SEED}\n{done.stdout}")
    assert done.returncode == 0, f"HOSTILE_SEED={SEED}\n{done.stdout}{done.stderr[-3000:]}"
