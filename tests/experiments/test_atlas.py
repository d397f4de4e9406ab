"""The atlas: its tasks ask what they say, and the page shows what the record has."""

import xml.etree.ElementTree as ET

import jax
import numpy as np
import pytest

from experiments import atlas
from experiments.atlas_report import anatomies, page, picture, table
from experiments.atlas_report.tasks import TASKS
from experiments.cli.flags import ROOT
from jaxformer.core import paths
from jaxformer.io.run_folder import Workdir, locked
from jaxformer.models.decoder import decoder
from jaxformer.studies.anatomy import judge
from jaxformer.studies.anatomy.parts import FIXED_MIXING
from jaxformer.studies.anatomy.report import Report
from jaxformer.training.shapes import shapes_of
from tests.studies.test_anatomy_judge import cells_of


def brackets(row):
    """The bracket that would close the innermost open one after each token; 4 if none is open."""
    stack, found = [], []
    for token in row.tolist():
        if token < 2:
            stack.append(token)
        else:
            assert stack.pop() == token - 2
        found.append(2 + stack[-1] if stack else 4)
    return found


def followed(row):
    """The token that followed the earlier copy of each token of the second half but the last."""
    first = row.tolist()[:6]
    return [first[(first.index(token) + 1) % 6] for token in row.tolist()[6:11]]


ANSWERS = {
    "copy": lambda row: row[:6].tolist(),
    "reverse": lambda row: row[5::-1].tolist(),
    "sort": lambda row: sorted(row[:6].tolist()),
    "shift": lambda row: row[:-3].tolist(),
    "induction": followed,
    "brackets": brackets,
    "majority": lambda row: [int(row[:15].sum() > 7.5)],
    "count": lambda row: [(row[:10] == 1).sum()],
    "parity": lambda row: [row[:3].sum() % 2],
    "sum": lambda row: [row[:3].sum() % 11],
}


@pytest.mark.parametrize("name", TASKS)
def test_the_small_tasks_ask_what_they_say(name):
    task = TASKS[name]
    keys = jax.random.split(jax.random.key(0), 20)
    batch = jax.tree.map(np.asarray, jax.jit(jax.vmap(task.example))(keys, np.arange(20)))
    assert batch.inputs.shape == (20, task.length) and batch.inputs.max() < task.vocab_size
    for inputs, targets, weights in zip(*batch, strict=True):
        assert targets[weights > 0].tolist() == ANSWERS[name](inputs)
        assert (weights > 0).sum() <= task.n_scored
        if name in ("copy", "reverse", "sort"):  # the answer so far follows a gap
            assert inputs[6] == 0 and inputs[7:].tolist() == targets[6:-1].tolist()


def test_the_variants_are_the_columns_and_each_changes_the_network():
    task = TASKS["copy"]
    model = decoder(**task.sizes, width=8, layers=2, heads=2, mlp_width=8)
    names = [*paths.flatten(shapes_of(model, task))]
    variants = table.variants(2)
    assert [variant.name for variant in variants] == [column.key for column in table.COLUMNS]
    for variant in variants:
        if variant.method != FIXED_MIXING:
            assert not all(map(variant.is_updated, names)), variant
            assert any(map(variant.is_updated, names)), variant
    last = next(v for v in variants if v.part == table.LAST_BLOCK)
    assert [name for name in names if last.is_zero(name)] == [
        "block_1/attn/out/kernel",
        "block_1/mlp/out/kernel",
    ]


def planted(lost, outcome):
    return {"lost": lost, "half_width": 0.02, "score": 1 - lost, "outcome": outcome}


def planted_row(mixing, mlp="worse"):
    cells = {column.key: planted(0.01, "no worse") for column in table.COLUMNS}
    cells["attention, fixed mixing"] = planted(mixing, "worse" if mixing > 0.1 else "no worse")
    cells["MLP, removed"] = planted(0.3 if mlp == "worse" else 0.04, mlp)
    return {
        "score": 0.99,
        "guessing": 0.1,
        "is_learned": True,
        "seeds": 3,
        "cells": cells,
        "sentences": ["The MLP can go."],
        "trainings": 42.0,
    }


@pytest.fixture
def record():
    rows = {
        "count": planted_row(0.0, "open"),
        "two_words": planted_row(0.8),
        "sort": planted_row(0.4),
    }
    rows["hops"] = planted_row(0.0) | {"is_learned": False, "cells": {}}
    network = anatomies.SCALES["tiny"]._asdict()
    return {"scale": "tiny", "network": network, "seeds": 3, "tasks": rows}


def test_the_sentences_state_what_separates_the_tasks(record):
    content, learned, position, depth, storage = table.sentences(record["tasks"])
    assert content == (
        "Content: random mixing that does not see the tokens can replace attention in 1 task "
        "(count); it loses most in two words (80%), sort (40%)."
    )
    assert (
        "may stay random in 3 tasks (count, sort, two words), and must be trained in no" in learned
    )
    assert position.startswith("Position: the mean over all earlier tokens is enough in 3 tasks")
    # The scale "medium" has four blocks.
    assert "the first or the last block can go in 3 tasks" in depth
    assert "both are needed in no task." in depth
    assert storage.endswith("worth most in sort (30%), two words (30%). Undecided: 1.")


def test_a_task_of_one_seed_is_undecided_and_not_called_unlearned():
    """A row is made of tasks whose first seed is above guessing; one seed has no interval."""
    (variant,) = [v for v in table.variants(2) if v.name == table.UNIFORM.key]
    whole, cells = cells_of({variant: -0.4}, seeds=1)
    report = Report("Copy", judge.judge(whole, cells, 0.1), costs={"trainings": 2})
    row = table.row(report)
    assert row["is_learned"] and row["cells"][table.UNIFORM.key]["outcome"] == "open"
    assert "not learned" not in picture.picture({"copy": row})
    close, cells = cells_of({variant: -0.4}, spread=0.5, whole=0.11)  # three seeds at guessing
    report = Report("Copy", judge.judge(close, cells, 0.1), costs={"trainings": 6})
    assert not table.row(report)["is_learned"]


def test_the_picture_has_a_row_for_each_task_and_a_link_to_its_report(record):
    svg = ET.fromstring(picture.picture(record["tasks"], {"sort": "sort/anatomy.html"}))
    space = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in svg.iter(f"{space}text")]
    rows = [text for text in texts if text and text.startswith(("two", "sort", "count", "hops"))]
    assert rows == ["two words", "sort", "count", "hops (not learned)"]  # by what mixing loses
    assert "−80" in texts and "random mixing" in texts
    (link,) = svg.iter(f"{space}a")
    assert link.get("href") == "sort/anatomy.html"
    boxes = [x for x in svg.iter(f"{space}rect") if x.get("class", "").startswith("box ")]
    assert len(boxes) == 3 * len(table.COLUMNS)
    assert sum("open" in x.get("class", "") for x in boxes) == 1


def test_files_of_an_atlas_have_its_sentences_and_the_reports(record, tmp_path):
    (tmp_path / "sort").mkdir()
    (tmp_path / "sort/anatomy.html").write_text("")
    page.save(tmp_path, record)
    html = (tmp_path / "atlas.html").read_text()
    assert 'href="sort/anatomy.html"' in html and "Storage: the MLP can go in" in html
    assert page.read(tmp_path / "atlas.json")["tasks"] == record["tasks"]
    text = page.markdown(record)
    assert "### two words" in text and "Not learned by this network and training: hops." in text


def test_the_page_and_the_picture_are_those_of_the_record():
    record = page.read(ROOT / "docs/atlas/tiny.json")
    assert (ROOT / "docs/atlas.md").read_text() == page.markdown(record)
    assert (ROOT / "docs/pictures/atlas.svg").read_text() == picture.picture(record["tasks"])
    assert len(record["tasks"]) == len(anatomies.NAMES) == 17


def test_a_second_process_and_unknown_names_are_one_line_errors(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with locked(Workdir(tmp_path / "atlas")):
        assert atlas.main(["copy", f"--workdir={tmp_path / 'atlas'}"]) == 2
    assert "is in use by process" in capsys.readouterr().err
    for argv, message in (
        (["copi"], "Did you mean 'copy'"),
        (["--scale=huge"], "scale"),
        (["copy", "--write"], "name no tasks"),
    ):
        assert atlas.main(argv) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1


@pytest.mark.slow  # compiles two programs
def test_an_atlas_that_was_stopped_continues(tmp_path, monkeypatch):
    small = anatomies.Scale(8, 1, 2, 30, (1e-2,))
    monkeypatch.setitem(anatomies.SCALES, "tiny", small)
    argv = ["majority", f"--workdir={tmp_path}", "--seeds=1", "--no-examination"]
    assert atlas.main(argv) == 0
    members = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("members-*/*.json")}
    first = page.read(tmp_path / "atlas.json")
    next(iter(members)).unlink()
    assert atlas.main(argv) == 0
    again = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("members-*/*.json")}
    assert (
        len(again) == len(members) and sum(again[x] == members[x] for x in again) == len(again) - 1
    )
    assert page.read(tmp_path / "atlas.json")["tasks"] == first["tasks"]
