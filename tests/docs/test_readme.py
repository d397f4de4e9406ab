"""The findings in README.md and docs/findings.md agree with the ledger and the records."""

import json
import re

from experiments.ledger import headline
from experiments.ledger.ledger import ledger
from experiments.ledger.record import Record
from experiments.papers import PAPERS
from experiments.site import markdown, results_pages
from tests.docs.blocks import ROOT
from tests.test_docs_numbers import NUMBER, between, is_one_of, numbers_of

TEXT = (ROOT / "README.md").read_text()
DETAILS = (ROOT / "docs/findings.md").read_text()
CARDS = TEXT[TEXT.index("## Five findings") : TEXT.index("## Run an experiment")]
FINDINGS = DETAILS[DETAILS.index("## Findings") : DETAILS.index("## The table of variants")]
PLAIN = re.compile(r"(?<![\w.,/])(\d*\.\d+|\d+(?= %))(?![\w/])( %)?")  # 3.35, .98, 37 %


def test_every_finding_has_a_picture_a_verdict_and_a_command():
    cards, details = (text.split("\n### ")[1:] for text in (CARDS, FINDINGS))
    titles = [[finding.partition("\n")[0] for finding in findings] for findings in (cards, details)]
    assert titles[0] == titles[1] and len(cards) == 5
    for finding in cards + details:
        assert len(re.findall(r"^!\[[^\]]+\]\([\w/.-]+\.png\)$", finding, re.M)) == 1
        assert markdown.VERDICT.search(finding)
    assert all("`jaxformer run " in finding for finding in details)


def test_the_readme_is_short_and_begins_with_a_command():
    assert len(TEXT.encode()) <= 12_000 and len(TEXT.split()) <= 1200
    assert len(TEXT[: TEXT.index("make demo")].split()) <= 120
    assert TEXT.count("\n![") == 5


def test_the_readme_names_the_commands_that_a_newcomer_needs():
    for goal in ("demo", "test"):
        assert f"make {goal}" in TEXT
        assert f"\n{goal}:" in (ROOT / "Makefile").read_text()


def test_the_clone_url_of_pyproject_is_shown():
    assert "Clone this repository" in markdown.clone_line('[tool.jaxformer]\nclone_url = ""')
    line = markdown.clone_line('[tool.jaxformer]\nclone_url = "https://x.example/j"')
    assert line == "`git clone https://x.example/j`, then run:"


def test_a_verdict_is_that_of_its_row():
    """The test of the report compares the result pages with the records."""
    matches = markdown.VERDICT.findall(TEXT + DETAILS)
    assert len(matches) >= 5
    for _, name, paper, _, _, verdict in matches:
        page = (ROOT / f"docs/results/{paper}.md").read_text()
        section = page.partition(f"\n## {name}\n")[2]
        assert re.match(rf"\*\*{verdict}\*\*(?: \([^()]*\))?\. Claim", section.lstrip())


def test_a_verdict_that_changes_is_written_again():
    made = markdown.readme(TEXT, ledger(PAPERS, []))
    assert {verdict for *_, verdict in markdown.VERDICT.findall(made)} == {"not run"}
    assert markdown.VERDICT.sub("", made).count("**") == markdown.VERDICT.sub("", TEXT).count("**")


def test_the_verdict_of_fresh_seeds_comes_first(published_rows):
    """Figure 3 held with eight new seeds, and could not be told from the first three."""
    row_of = {(row.paper.key, row.item.name): row for row in published_rows}
    for text in (TEXT, DETAILS):
        for match in markdown.VERDICT.finditer(text):
            row = row_of[match[3], match[2]]
            assert match[0].endswith(f"**{headline.verdict(row)}** ({headline.note(row)})")
    assert "**held** (8 new seeds; first runs: cannot tell yet)." in CARDS
    assert re.search(r"\d+ more have been explored only\.", TEXT)


def test_verdicts_without_a_confirmation_lose_their_note():
    rows = ledger(PAPERS, [])
    made = markdown.readme(TEXT, rows)
    assert "new seeds" not in markdown.VERDICT.sub("", made) and "new seeds" not in made


def said_and_known(rows, fresh, with_ladders=True):
    """Returns (its sentences, the records of the linked rows, these rows) for each finding."""
    for finding in CARDS.split("\n### ")[1:] + FINDINGS.split("\n### ")[1:]:
        places = {(paper, anchor) for _, _, paper, anchor, *_ in markdown.VERDICT.findall(finding)}
        about = [row for row in rows if (row.paper.key, results_pages.anchor(row)) in places]
        assert len(about) == len(places)
        records = [record for row in about for record in row.records.values()]
        records += [
            record
            for row in about
            for record in fresh.get((row.paper.key, row.item.name), {}).values()
        ]
        records += ladder_records(finding) if with_ladders else []
        text = re.sub(r"!?\[[^\]]*\]\([^)]*\)|`[^`]*`", "", finding)
        yield text, records, about


def ladder_records(finding):
    """Returns the records of the ladders to which a finding links."""
    plan = json.loads((ROOT / "ladders/PLAN.json").read_text())
    found = []
    for name in re.findall(r"ladders\.md#([\w-]+)\)", finding):
        for runs_of_cell in plan["rungs"][name]:
            for run in (run for runs in runs_of_cell.values() for run in runs):
                file = ROOT / f"ladders/records/{run}.json"
                if file.exists():
                    found.append(Record.from_json(json.loads(file.read_text()), where=file.name))
    return found


def numbers_in(tree):
    """Returns every number of a config, also those in lists."""
    if isinstance(tree, dict):
        tree = [*tree.values()]
    if isinstance(tree, list | tuple):
        return [number for part in tree for number in numbers_in(part)]
    return [float(tree)] if isinstance(tree, int | float) else []


def lost(text, records, about):
    """Returns the numbers of a text that no record, config or paper has."""
    metrics = numbers_of(records)
    missing = [
        f"{mean} ± {error}{percent}"
        for mean, error, percent in NUMBER.findall(text)
        if not is_one_of(metrics, mean, error, 100.0 if percent else 1.0)
    ]
    plain = [v["mean"] for v in metrics if v["mean"] is not None]
    plain += [value for record in records for value in record.baselines.values()]
    plain += [float(value) for record in records for value in numbers_in(record.config)]
    cells = [cell for row in about for cell in row.item.cells.values()]
    plain += [cell.published for cell in cells if cell.published is not None]
    plain += [float(number) for row in about for number, _ in PLAIN.findall(row.item.claim)]
    for number, percent in PLAIN.findall(NUMBER.sub("", text)):
        low, high = between(number, 100.0 if percent else 1.0)
        if not any(low <= abs(value) <= high for value in plain):
            missing.append(number + percent)
    return missing


def test_the_numbers_of_a_finding_are_those_of_its_rows(real_rows, fresh_records):
    result = [*said_and_known(real_rows, fresh_records)]
    text = " ".join(text for text, *_ in result)
    assert len(NUMBER.findall(text)) >= 8 and len(PLAIN.findall(NUMBER.sub("", text))) >= 5
    missing = [(text[:30], told) for text, *known in result if (told := lost(text, *known))]
    assert not missing


def test_a_number_of_an_older_run_is_found_out(real_rows, fresh_records):
    for text, *known in said_and_known(real_rows, fresh_records, with_ladders=False):
        for older in (".504 ± .018", "62 ± 3 %", "61.7 %", "7.41"):
            assert lost(older, *known), f"{older} would pass for one of {text[:30]}"
