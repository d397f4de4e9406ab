"""The results page of a paper: one table first, everything else folded below."""

import importlib
import re

from experiments.cli.flags import ROOT
from experiments.ladders import plan, runs
from experiments.ledger import tables
from experiments.ledger.ledger import ledger
from experiments.ledger.rules import DEFINITION
from experiments.papers import PAPERS
from experiments.papers.ladders import LADDERS
from experiments.site import ladders_shown as shown
from experiments.site import paper_pages
from experiments.site.paper_pages import Trend, paper_page
from tests.experiments import made_up

MOST_WORDS = 120  # before the table


def table_rows(page: str) -> list[dict[str, str]]:
    """The rows of the first table of a page, by the heads of their columns."""
    lines = page.split("\n\n| claim |")[1].split("\n\n")[0].splitlines()
    heads, _, *body = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in (f"| claim |{lines[0]}", *lines[1:])
    ]
    return [dict(zip(heads, cells, strict=True)) for cells in body]


def test_few_words_stand_before_the_table():
    for key, paper in PAPERS.items():
        page = paper_page(paper, ledger({key: paper}, []), [], {})
        before = page.split("| claim |")[0]
        assert len(re.findall(r"\w[\w'-]*", re.sub(r"\(\.\.[^)]*\)", "", before))) <= MOST_WORDS


def test_a_row_has_the_papers_number_ours_and_the_verdict(rows):
    page = paper_page(made_up.PAPER, rows, [], {})
    cells = {row["claim"].split("]")[0][1:]: row for row in table_rows(page)}
    assert cells["Table 1"]["verdict"].startswith("**held**")
    published = [row["paper"] for row in cells.values() if row["paper"] != "-"]
    assert published, "the made-up paper prints numbers"
    for name in cells:
        assert f"\n## {name}\n" in page
    assert "with size" not in cells["Table 1"], "a column of dashes is left out"


def test_a_number_of_all_examples_beside_a_rule_on_a_part_of_them_says_so(published_rows):
    rows = [row for row in published_rows if row.paper.key == "mixit"]
    page = paper_page(PAPERS["mixit"], rows, [], {})
    paper = {row["claim"].split("]")[0][1:]: row["paper"] for row in table_rows(page)}
    assert paper["Table 1, decimal addition"] == "1 against 0.9858"
    assert paper["Table 1, Dyck-1"] == "0.9617", "MixiT's, of which we judge longer training"
    assert paper["Table 2, retrieval"] == "0.9701 against 1 (all examples)"


def test_rules_and_checks_are_folded(rows):
    page = paper_page(made_up.PAPER, rows, [], {})
    assert page.count("<details>") == page.count("</details>") > len(rows) / 2
    outside = re.sub(r"<details>.*?</details>", "", page, flags=re.S)
    assert "| rule |" in page and "| rule |" not in outside


def test_a_page_begins_with_a_picture_and_says_how_to_disagree(rows):
    head, _ = paper_page(made_up.PAPER, rows, [], {}).split("| claim |")
    assert head.index("](../verdicts.md#if-you-disagree)") < head.index("\n![")
    assert "claims **" in head, "the number of claims by verdict"


def test_a_section_shows_the_decision_and_the_command_that_repeats_it(published_rows):
    """All else is folded, so that the longest page is readable on a phone."""
    for key, paper in PAPERS.items():
        of_paper = [row for row in published_rows if row.paper.key == key]
        sections = paper_page(paper, of_paper, [], {}).split("\n## ")[1:]
        visible = [re.sub(r"<details>.*?</details>", "", s, flags=re.S) for s in sections]
        assert "\n|" not in "".join(visible)
        words = [len(re.sub("<[^>]*>", "", text).split()) for text in visible]
        assert sum(words) / len(words) <= 85
        for text, row in zip(visible, sorted(of_paper, key=lambda row: row.verdict == DEFINITION)):
            assert (" --again</code>" in text) == (
                bool(row.records) and not tables.missing_commands(row)
            )


def test_the_site_draws_the_numbers_of_each_section(monkeypatch, published_rows):
    monkeypatch.syspath_prepend(ROOT / "docs")
    site_pages = importlib.import_module("site_pages")
    judged = {(row.paper.key, row.item.name): row for row in published_rows}
    monkeypatch.setattr(site_pages.site_rows, "rows", lambda: judged)
    text = (ROOT / "docs/results/random_attention.md").read_text()
    made = site_pages.complete("results/random_attention", text)
    assert made.count('<svg class="thumbnail"') == text.count("<!-- thumbnail: ") > 3
    assert "**held**" not in made and '<span class="verdict held">held</span>' in made


def test_a_ladder_stands_in_the_row_that_it_follows(rows):
    trends = {("made_up", "Table 1"): [Trend("size", "n: stays below 0.05", "2 of 4 sizes")]}
    (cells, *_) = table_rows(paper_page(made_up.PAPER, rows, [], trends))
    assert cells["with size"] == "[n: stays below 0.05](../ladders.md#size): 2 of 4 sizes"


def test_a_row_whose_ladder_is_complete_says_first_where_its_effect_goes(rows):
    trends = {
        ("made_up", "Table 1"): [Trend("size", "n: vanishes", "held", "With size: it vanishes.")]
    }
    page = paper_page(made_up.PAPER, rows, [], trends)
    assert "<!-- thumbnail: Table 1 -->\n\nWith size: it vanishes. A is right: " in page


def test_a_ladder_with_a_missing_size_says_nothing_about_size():
    folder = ROOT / "ladders"
    trends = [trend for trends in shown.trends(folder).values() for trend in trends]
    planned = plan.read(folder / "PLAN.json")
    judged = runs.judge_all(planned, LADDERS, folder / "records", folder / "runs")
    complete = {j.ladder.name for j in judged if j.is_complete and j.slope is not None}
    assert trends and all(bool(t.sentence) == (t.name in complete) for t in trends)
    assert any("the accuracy at width N minus that" in t.sentence for t in trends)


def test_every_ladder_follows_a_row_that_exists(tmp_path):
    assert shown.trends(tmp_path) == {}, "without a plan there is nothing to show"
    names = {(row.paper.key, row.item.name) for row in ledger(PAPERS, [])}
    followed = {tuple(ladder.row.split(": ", 1)) for ladder in LADDERS.values()}
    assert followed <= names


def test_every_paper_has_a_picture_and_notes():
    for paper in PAPERS.values():
        file, _ = paper_pages.PICTURES[paper.key]
        assert (ROOT / "docs/pictures" / file).exists()
        assert (ROOT / "docs" / f"{paper_pages.NOTES.get(paper.key, paper.key)}.md").exists()
