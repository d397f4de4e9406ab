"""The page, drawing and tables of an anatomy report, from planted numbers."""

import csv
import dataclasses
import html
import io
import json
import math
import pickle
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.studies.anatomy import components, drawing, judge
from jaxformer.studies.anatomy.effects import Effect
from jaxformer.studies.anatomy.inside import Inside
from jaxformer.studies.anatomy.layer_facts import KernelFacts, LayerFacts
from jaxformer.studies.anatomy.parts import FIXED_MIXING, FROZEN, ONLY, REMOVED, Variant
from jaxformer.studies.anatomy.report import Report
from tests.studies.test_anatomy_judge import cells_of

SHIFTS = {
    Variant("attention", REMOVED): -0.6,
    Variant("attention", FIXED_MIXING): -0.5,
    Variant("queries and keys", FROZEN): 0.0,
    Variant("queries and keys", REMOVED): -0.04,
    Variant("MLP", REMOVED): 0.0,
    Variant("MLP", FROZEN): -0.2,
    Variant("embedding", FROZEN): -0.04,
    Variant("other <gizmo>", FROZEN): 0.0,
    Variant("embedding", ONLY): -0.7,
}


def effect(part, method, value, error=0.1, p=1e-6) -> Effect:
    return Effect(part, method, value, error, 8, p)


@pytest.fixture(scope="module")
def report() -> Report:
    table = judge.judge(*cells_of(SHIFTS), 0.2, "best_constant")
    effects = (
        effect("block_1/attn", "mean ablation", 3.0),
        effect("block_1/attn", "patching", -1.0),
        effect("block_1/attn/head_0", "mean ablation", 2.5),
        effect("block_0/mlp", "mean ablation", 0.01, p=0.7),
        effect("block_0/attn/head_1", "mean ablation", -0.5),
    )
    inside = Inside(
        score=4.0,
        half_width=0.2,
        corrupted=-1.0,
        corrupted_half_width=0.2,
        unit="logit of right - wrong",
        samples=8,
        effects=effects,
        layers=(LayerFacts(0, (0.1, 0.1), (0.4, 0.1), (1.2, 0.3)),),
        kernels={"block_0/attn/query/kernel": KernelFacts(3.0, 12.0, 16, 0.4)},
        left_out={"direct": "the norms have no scale"},
    )
    curves = {variant.name: [(10, 2.0), (20, 1.0)] for variant in SHIFTS}
    maps = {"block_1/attn/head_0": np.full((2, 3, 3), 1 / 3)}
    return Report(
        "Sort & <count>",
        table,
        curves | {"whole": [(10, 1.5), (20, 0.1)]},
        inside=inside,
        maps=maps,
        tokens=(("the", "<cat>", "sat"), ("a", "dog", "ran")),
        theory=("Rank: fine.",),
        costs={"trainings": 24.0, "seconds": 130.0},
        settings={"parameters": 1000, "steps": 20, "layers": 2, "rates": (1e-3,), "command": "x"},
    )


def test_a_report_comes_back_from_a_process_of_a_pool(report):
    again = pickle.loads(pickle.dumps(report))
    assert str(again) == str(report) and again.to_html() == report.to_html()


def test_an_interpreter_shows_a_report_as_print_does(report):
    assert repr(report) == str(report) and "Content(" not in repr(report)


def test_the_page_is_one_small_file_with_every_decided_sentence(report):
    page = report.to_html()
    assert " ± " not in page and "\u00a0±\u00a0" in page  # a number and its error share a line
    page = page.replace("\u00a0", " ")
    assert len(page.encode()) < 1e6
    assert not re.search(r"https?:|<script|<link rel=.stylesheet|@import|src=", page)
    for text in report.sentences:
        assert html.escape(text) in page
    assert "<gizmo>" not in page and "<cat>" not in page and "Sort &amp; &lt;count&gt;" in page
    for svg in re.findall(r"<svg .*?</svg>", page, re.S):
        assert ET.fromstring(svg) is not None, svg
    for name, ids in (("network", 4), ("effects", 2), ("prompts", 2)):
        assert len(re.findall(rf'<input type="radio" name="{name}"', page)) == ids
    assert "Not measured: direct" in page and "Rank: fine." in page
    assert page.count("<h1>") == 1
    # A browser runs no script in it, whatever a name contains.
    assert "default-src 'none'" in page and "script-src" not in page
    # Both kinds of sentences have their heading, and the trivial predictor is called guessing.
    training, changed = (
        page.index("Trained with one part changed"),
        page.index("Changed after training"),
    )
    assert training < page.index("Without attention the network is worse") < changed
    assert changed < page.index("Attention of block 1, replaced")
    assert "guessing (best constant) 20" in page
    assert "mean logit of right - wrong 4 on 8 prompts" in page


def test_the_page_of_a_published_model_begins_with_its_effects(report):
    page = Report("model", inside=report.inside, maps=report.maps, tokens=report.tokens).to_html()
    assert page.index("Attention of block 1, replaced") < page.index('name="effects"')
    assert page.index('name="effects"') < page.index("<h2>")
    for text in ("works against the answer", 'class="first model"', ">head 0</th>"):
        assert page.count(text) == 1, text


def test_the_drawing_shows_losses_that_were_decided_only(report):
    boxes = {box.part: box for box in drawing.draw(report.training, layers=2).boxes}
    assert boxes["attention"].lines[1] == "removed: −76 %"
    assert boxes["attention"].lost == pytest.approx(0.76, abs=0.01)
    assert boxes["MLP"].lines[1] == "removed: no worse" and boxes["MLP"].lost == 0
    # Removal is open, the frozen part was decided.
    assert boxes["queries and keys"].lines[1] == "frozen: no worse"
    assert boxes["embedding"].lines[1] == "frozen: open" and boxes["embedding"].state == judge.OPEN
    inner, outer = boxes["queries and keys"], boxes["attention"]
    assert outer.x < inner.x and inner.x + inner.width < outer.x + outer.width
    assert outer.y < inner.y and inner.y + inner.height < outer.y + outer.height


def test_the_picture_is_the_drawing_with_its_own_colours_and_the_sentences(report, tmp_path):
    picture = report.plot(tmp_path / "anatomy.svg")
    assert (tmp_path / "anatomy.svg").read_text() == picture
    root = ET.fromstring(picture)
    name = "{http://www.w3.org/2000/svg}"
    classes = [mark.get("class", "") for mark in root.iter(f"{name}rect")]
    boxes = drawing.draw(report.training, layers=2).boxes
    assert sum(text.startswith("box ") for text in classes) == len(boxes)
    texts = [text.text for text in root.iter(f"{name}text")]
    assert texts[0] == "Anatomy of Sort & <count>"
    assert any(text.startswith("Without attention the network is worse") for text in texts)
    # Nothing is outside of the picture, which needs no style sheet of a page.
    width, height = (float(size) for size in root.get("viewBox").split()[2:])
    assert all(
        float(mark.get("y", 0)) + float(mark.get("height", 0)) + drawing.HEADING_HEIGHT <= height
        for mark in root.find(f"{name}g")
    )
    assert width > drawing.WIDTH and "--lost" in root.find(f"{name}style").text
    # Its style sheet does not reach into the notebook that shows it.
    assert "<style" not in report._repr_html_() and "data:image/svg+xml" in report._repr_html_()
    with pytest.raises(UserError, match=r"anatomy\.svg, got .*x\.png"):
        report.plot(tmp_path / "x.png")
    with pytest.raises(UserError, match="no"):
        Report("model").plot()


def test_sentences_about_components_state_decided_effects(report):
    texts = [text for text, _ in report.effect_sentences]
    assert texts[0].startswith("Attention of block 1, replaced by its mean, lowers the logit")
    assert texts[0].endswith("; patching has the other sign: -1.00 ± 0.10.")
    assert any(text.startswith("Head 1 of block 0, replaced by its mean, raises") for text in texts)
    assert not any("MLP of block 0" in text for text in texts)
    nats = dataclasses.replace(report.inside, unit="log probability (nats)")
    text, _ = components.sentences(nats, report.effects)[0]
    assert "lowers the log probability of the right answer by 3.00 ± 0.10 nats" in text
    single = [effect("block_0/mlp", "patching", 3.0, math.nan, math.nan)]
    assert [row.is_decided for row in components.decide(single)] == [False]
    # The comparisons of training count in the correction.
    weak = [effect("block_0/mlp", "patching", 3.0, 1.0, 0.02)]
    assert components.decide(weak)[0].is_decided
    assert not components.decide(weak, [0.9] * 20)[0].is_decided


def test_files_have_all_comparisons(report, tmp_path):
    files = report.save(tmp_path)
    assert [file.name for file in files] == [
        "anatomy.html",
        "anatomy.json",
        "anatomy.csv",
        "anatomy.svg",
    ]
    record = json.loads((tmp_path / "anatomy.json").read_text())
    assert len(record["table"]) == len(SHIFTS) and len(record["effects"]) == 5
    assert record["verdicts"]["MLP"] == "can go"
    rows = [*csv.DictReader(io.StringIO(report.to_csv()))]
    assert rows[0]["part"] == "attention" and rows[0]["outcome"] == "worse"
    assert "If the MLP stays, it must be trained: " in str(report)
    assert "best_constant" not in report._repr_html_() and "<gizmo>" not in report._repr_html_()
