"""The opening of the page, its filters, and --only."""

import dataclasses
import json
import re

import pytest

from experiments import report
from experiments.cli.flags import ROOT
from experiments.ledger import read
from experiments.ledger.choose import select_rows
from experiments.ledger.ledger import ledger
from experiments.ledger.record import Record
from experiments.ledger.rules import NOT_HELD, above, of
from experiments.papers import PAPERS
from experiments.papers.sentences import FINDINGS, collapse
from experiments.site import markdown, opening
from experiments.site.finding_charts import CHARTS
from experiments.site.html import page
from experiments.site.overview import kind, overview
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import write_json
from tests.experiments import made_up

COLLAPSE = ("two_failure_modes", "Figure 1f")


def test_each_paper_has_a_sentence_with_its_verdict_and_its_evidence(real_rows):
    shown = opening.of_rows(real_rows)
    assert [one.paper.key for one in shown] == [*PAPERS] == [one.paper for one in FINDINGS]
    for one in shown:
        row = next(r for r in real_rows if (r.paper, r.item.name) == (one.paper, one.item))
        assert len(one.sentence) > 80 and one.verdict == row.verdict and row.records
        assert re.search(r"scale (small|paper)", one.made) and "rules held" in one.made
        text = "".join(opening.opening([one]))
        assert f'href="#{one.anchor}"' in text and row.verdict in text


def test_the_page_and_the_readme_have_the_same_findings(published_rows):
    """The opening follows the first verdict below each heading of README.md."""
    text = (ROOT / "README.md").read_text()
    text = text[text.index("## Five findings") : text.index("## Run an experiment")]
    told = [markdown.VERDICT.search(part) for part in text.split("\n### ")[1:]]
    shown = opening.of_rows(published_rows)
    assert [(m[3], m[2], m[6]) for m in told] == [(o.paper.key, o.item, o.verdict) for o in shown]


def test_the_numbers_of_a_sentence_occur_in_the_records(real_rows):
    for one in FINDINGS:
        row = next(r for r in real_rows if (r.paper.key, r.item.name) == (one.paper, one.item))
        values = [v["mean"] for r in row.records.values() for v in r.metrics.values()]
        values += [v for r in row.records.values() for v in r.baselines.values()]
        known = {f"{scale * v:.{n}f}" for v in values if v is not None for scale in (1, 100)
                 for n in range(5)} | {f"{v:.4g}" for v in values if v is not None}  # fmt: skip
        for number in re.findall(
            r"(?<![± \d.])-?\d+\.\d+|-?\d+\.\d+(?= ±)", one.sentence(row.records)
        ):
            assert number in known, (one.paper, number)


def test_a_sentence_names_the_collapsed_networks_that_learn(real_rows):
    (row,) = (row for row in real_rows if (row.paper.key, row.item.name) == COLLAPSE)
    text = " In the paper collapsed networks fail to train; ours in rank collapse learn something."
    assert collapse(row.records).endswith(text)
    failed = [finding.text for finding in row.findings if finding.verdict == NOT_HELD]
    assert "rank collapse learns no more than frequencies" in failed
    assert "entropy collapse learns no more than frequencies" not in failed
    record = row.records["rank_collapse"]
    loss = {"loss": record.metrics["loss"] | {"mean": record.baselines["unigram_loss"]}}
    at_chance = dataclasses.replace(record, metrics=record.metrics | loss, members=[])
    assert text not in collapse(row.records | {"rank_collapse": at_chance})


def test_a_sentence_whose_run_is_missing_is_not_shown():
    text = "".join(opening.opening(opening.of_rows(ledger(PAPERS, []))))
    assert text.count("There is no run yet.") == len(PAPERS) and "<svg" not in text
    assert "what it claims</a></p>" in text and "evidence" not in text  # and no dot behind it


def test_a_card_links_to_the_figure_of_its_section(real_rows):
    shown = opening.of_rows(real_rows)
    text = "".join(opening.opening(shown, {shown[1].anchor}))
    assert text.count("its figure</a>") == 1 and f'href="#{shown[1].anchor}-drawn"' in text
    assert 'class="peek"' not in text  # it has a chart of its own; one without gets a copy
    bare = [one._replace(chart="") for one in shown]
    assert "".join(opening.opening(bare, {shown[1].anchor})).count('class="peek"') == 1


def test_a_card_shows_the_numbers_of_its_sentence(real_rows):
    for one, card in zip(FINDINGS, opening.of_rows(real_rows), strict=True):
        row = next(r for r in real_rows if (r.paper.key, r.item.name) == (one.paper, one.item))
        drawn = CHARTS[one.paper](row.records)
        assert card.chart.count("<circle") == len(drawn.dots) > 2
        assert card.chart.count("line s1") == len(drawn.dots) * bool(drawn.theory)
        assert card.chart.count("line level") == len(drawn.dots) * bool(drawn.level)
        assert ("standard errors" in card.chart) == (one.item != "Theorem 2.1")  # one sample each
        assert "nan" not in card.chart
        assert all(len(dot.label) <= 20 for dot in drawn.dots), "a longer name is cut at the left"
        values = {f"{scale * dot.measured:.3g}" for dot in drawn.dots for scale in (1, 100)}
        text = one.sentence(row.records)
        shown = [f"{float(n):.3g}" for n in re.findall(r"-?\d+\.\d+(?= ±)", text)]
        assert sum(n in values for n in shown) >= min(len(shown), 2), one.paper


def test_a_row_with_a_missing_run_shows_its_decided_rules(rows):
    item = made_up.PAPER.items[1]
    rules = {"A is right": above(of("A"), 0.9)} | item.rules
    records = [Record.from_json(made_up.RECORDS["a"])]
    paper = made_up.PAPER._replace(items=(item._replace(rules=rules),))
    text = "".join(overview(ledger({"made_up": paper}, records), {"made_up": paper}))
    ours = text[text.index("B wins.</td><td>") :]
    assert ours.startswith("B wins.</td><td>A is right: ") and "; 1 run to make</td>" in ours


def test_the_kind_of_an_item_is_in_its_name():
    names = ("Table 2, k-hop", "Figures 3 and 7", "Equation 10", "Lemma D.1", "Appendix C, x", "")
    assert [*map(kind, names)] == ["table", "figure", "equation", "theorem", "section", "section"]


def test_a_row_has_the_attributes_that_the_filters_read(rows):
    text = "".join(overview(rows, {"made_up": made_up.PAPER}))
    assert '<form id="filters" role="search" aria-label="Filter the ledger" hidden>' in text
    assert text.count('<tr class="row" data-verdict=') == len(rows)
    assert 'data-verdict="did not hold" data-kind="figure"' in text
    assert '<tbody data-paper="made_up">' in text and '<option value="made_up">' in text


def test_only_selects_rows_by_paper_by_name_and_by_the_beginning_of_names(rows):
    assert [row.item.name for row in select_rows(rows, "Table 1")] == ["Table 1"]
    assert [row.item.name for row in select_rows(rows, "figure 2")] == ["Figure 2, the paths"]
    assert [row.item.name for row in select_rows(rows, "Figure 2, the pa")] == [
        "Figure 2, the paths"
    ]
    assert len(select_rows(rows, "made_up")) == len(rows)
    for wrong, hint in (("Tabel 4", "'Table 4'"), ("made-up", "'made_up'"), ("Table", None)):
        if hint is None:
            assert len(select_rows(rows, wrong)) > 5
            continue
        with pytest.raises(UserError, match=f"Did you mean {hint}"):
            select_rows(rows, wrong)


def test_only_prints_an_item_with_its_verdict_and_its_record(real_rows, monkeypatch, capsys):
    monkeypatch.setattr(report, "load", lambda folder: ([], []))  # they are loaded already
    monkeypatch.setattr(report, "ledger", lambda papers, records, also: real_rows)
    assert report.main(["--only", "Table 2, retrieval"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Table 2, retrieval (mixit): ") and "claim: Frozen-QK" in out
    assert "rule: Frozen-QK reaches 95 %: held, " in out
    assert "record results/mixit/retrieval/" in out


DEMO = {
    "paper": "mixit",
    "item": "Table 2, retrieval",
    "sentence": "a <b> finding.",
    "made": "tiny",
}


def test_a_demo_opens_with_its_sentences_and_all_its_papers(results, tmp_path):
    records, problems = read.load(results)
    held = [DEMO | {"runs": ["c.json"]}, DEMO | {"paper": "associations", "runs": ["figure.json"]}]
    write_json(tmp_path / "s.json", held)
    shown = opening.of_file(tmp_path / "s.json", PAPERS, [], records)
    text = page([], records, problems, "A title", openings=shown)
    assert text.count("A &lt;b&gt; finding.") == 2
    for key in ("mixit", "associations"):
        assert f'id="paper-{key}"' in text and f'href="#paper-{key}"' in text
    ours = text[text.index('id="paper-associations"') : text.index('id="others"')]
    assert "figure.json" in ours and "sde_paths" in ours and "not judged" in text
    held[0] |= {"cells": ["run"], "full_run": "agrees with the full run: held"}
    write_json(tmp_path / "s.json", held)
    shown = opening.of_file(tmp_path / "s.json", PAPERS, [], records)
    assert "demo agrees with the full run: held" in "".join(opening.opening(shown))


@pytest.mark.parametrize(
    "held", ["{", "[1]", "{}x", '[{"paper": "mixti"}]', json.dumps([DEMO | {"runs": "all"}])]
)
def test_a_wrong_file_of_sentences_is_a_one_line_error(held, tmp_path, capsys):
    (tmp_path / "s.json").write_text(held)
    with pytest.raises(UserError, match="is not a file of demo sentences"):
        opening.of_file(tmp_path / "s.json", PAPERS, [], [])
