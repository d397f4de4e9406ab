"""The results page of a paper: one table first, everything else folded below."""

import re

from experiments.cli.flags import ROOT
from experiments.ladders import shown
from experiments.ledger.ledger import ledger
from experiments.papers import PAPERS
from experiments.papers.ladders import LADDERS
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


def test_rules_and_checks_are_folded(rows):
    page = paper_page(made_up.PAPER, rows, [], {})
    assert page.count("<details>") == page.count("</details>") > len(rows) / 2
    outside = re.sub(r"<details>.*?</details>", "", page, flags=re.S)
    assert "| rule |" in page and "| rule |" not in outside


def test_a_ladder_stands_in_the_row_that_it_follows(rows):
    trends = {("made_up", "Table 1"): [Trend("n: stays below 0.05", "2 of 4 sizes")]}
    (cells, *_) = table_rows(paper_page(made_up.PAPER, rows, [], trends))
    assert cells["with size"] == "[n: stays below 0.05](../ladders.md): 2 of 4 sizes"


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
