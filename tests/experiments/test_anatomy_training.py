"""Anatomy reports of tiny networks: masks equal partitions, and known truths are found."""

import json
import math
from typing import Any

import jax
import numpy as np
import pytest

import jaxformer
from experiments import anatomy
from jaxformer.core import paths
from jaxformer.core.settings import DataSettings
from jaxformer.studies.anatomy import findings, parts, study, subject
from jaxformer.studies.anatomy.parts import FIXED_MIXING, FROZEN, REMOVED, Variant
from jaxformer.studies.anatomy.store import Store
from jaxformer.studies.anatomy.training import Trainer
from jaxformer.tasks.retrieval import Retrieval

SIZES = {"width": 16, "layers": 1, "heads": 2, "mlp_width": 32}
DATA = DataSettings(test_size=100, validation_size=100)


@pytest.mark.slow  # compiles two training programs
def test_a_masked_part_has_the_bits_of_a_frozen_partition():
    task = Retrieval(max_pairs=2, vocab=16)
    one = subject.of_task(task, steps=12, batch_size=8, data=DATA, **SIZES)
    trainer = Trainer(one.network)
    frozen = {part.name: part for part in parts.PARTS}["queries and keys"]
    trained, params = trainer.train(Variant("qk", FROZEN, fixed=frozen.pattern), 1, 1e-2)
    run = jaxformer.train(
        task,
        one.network.model,
        ((frozen.pattern, "frozen"), (".*", "train")),
        steps=12,
        batch_size=8,
        seeds=[1],
        learning_rate=1e-2,
        warmup=3,
        data=DATA,
        progress=False,
    )
    jax.tree.map(np.testing.assert_array_equal, params, run.member(0))
    assert trained.test["loss"] == run.result.members[0]["metrics"]["loss"]
    # A removed part stays zero, and nothing of its branch moves.
    everything = {part.name: part for part in parts.parts_of(one.network.shapes)}
    (removed,) = parts.variants_of([everything["MLP"]], [REMOVED], can_mix=False)
    _, params = trainer.train(removed, 1, 1e-2)
    start = paths.flatten(trainer.network.init(jax.random.fold_in(jax.random.key(1), 0)))
    after = paths.flatten(params)
    assert not np.any(after["block_0/mlp/out/kernel"])
    np.testing.assert_array_equal(after["block_0/mlp/in/kernel"], start["block_0/mlp/in/kernel"])
    assert np.any(after["embed/embedding"] != start["embed/embedding"])


@pytest.mark.slow  # trains nine small networks
def test_retrieval_needs_no_trained_queries_and_keys_but_attention(tmp_path):
    sizes: dict[str, Any] = {"width": 32, "steps": 500, "rates": (1e-2,)}
    what = subject.of_task(Retrieval(max_pairs=3, vocab=16), **sizes)
    attention, queries_keys = (
        next(part for part in parts.PARTS if part.name == name)
        for name in (parts.ATTENTION, parts.QUERIES_KEYS)
    )
    variants = [
        *parts.variants_of([queries_keys], [FROZEN], can_mix=False),
        *parts.variants_of([attention], [FIXED_MIXING], can_mix=True),
    ]
    found = study.Study(what, variants, Store(tmp_path), max_seeds=5)
    assert study.run(found, budget=math.inf)
    report = findings.report_of(found)
    assert report.verdicts["queries and keys"] == "may stay random"
    # One rate was tried, so that the network which lost to it was not shown to be trained.
    assert not any("replace attention" in text for text in report.sentences)
    mixing = report.training.find(parts.ATTENTION, FIXED_MIXING)
    assert mixing.word == "not trained (one learning rate tried, 3 are needed)"
    # The circuit has a head in each block: one finds the pair, the other copies its value.
    report = findings.with_look_inside(report, found, lambda line: None)
    helping = [row.effect for row in report.effects if row.is_decided and row.effect.value > 0]
    heads = {effect.part for effect in helping if effect.method == "resampling"}
    for block in range(2):
        assert any(head.startswith(f"block_{block}/attn/head_") for head in heads), heads
    again = study.Study(what, variants, Store(tmp_path), max_seeds=5)
    assert [member for stage in again.stages() for member in stage] == []
    assert findings.report_of(again).sentences == findings.report_of(found).sentences


@pytest.mark.slow
def test_a_task_that_nothing_learns_is_a_one_line_error_and_keeps_what_was_trained(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    code = anatomy.main(["--task=retrieval", "--steps=2", "--rates=1e-6", "--budget=1m"])
    assert code == 2
    assert "nothing to explain: after 2 steps" in capsys.readouterr().err
    assert len([*tmp_path.rglob("whole-*.json")]) == 1


@pytest.mark.slow  # compiles in three processes
def test_two_processes_train_the_same_members(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ("from jaxformer.tasks.memorize import Memorize", "Small = Memorize(8)")
    (tmp_path / "small_task.py").write_text("\n".join(lines))
    argv = ["--task=small_task.py:Small", "--steps=60", "--width=16", "--layers=1", "--heads=2"]
    argv += ["--rates=3e-2", "--seeds=1", "--methods=frozen"]
    members = []
    for name, options in {"one": [], "two": ["--processes=2"]}.items():
        assert anatomy.main([*argv, f"--workdir={name}", *options]) == 0
        files = (tmp_path / name).glob("members-*/*.json")
        members.append({f.name: json.loads(f.read_text())["test"] for f in files})
    assert members[0] == members[1] and len(members[0]) == 11
