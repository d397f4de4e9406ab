"""The page is self-contained, its links have targets, and its numbers come from records."""

import base64
import functools
import io
import itertools
import json
import re
from html import escape
from urllib.parse import unquote

import pytest
from PIL import Image

from experiments import report
from experiments.cli import flags
from experiments.ledger import read, summary, tables
from experiments.ledger.item import CHANCE, LATE, SMALLER
from experiments.ledger.ledger import ledger
from experiments.ledger.record import Record
from experiments.ledger.rules import HELD, NOT_HELD, OPEN, SHOWN
from experiments.papers import PAPERS
from experiments.site import figures, paper_pages
from experiments.site.html import page
from experiments.site.section import section
from jaxformer.stats.differences import Number
from tests.experiments import made_up
from tests.experiments.site.reader import Reader

PIXEL = "data:image/webp;base64,UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA=="
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


@pytest.fixture(scope="module", params=["made up", "real"])
def text(request, results, real_records, real_rows):
    if request.param == "made up":
        records, problems = read.load(results)
        return page(ledger({"made_up": made_up.PAPER}, records), records, problems, "A title")
    with pytest.MonkeyPatch.context() as patch:  # drawing all figures takes a minute
        patch.setattr(figures, "image", lambda record: f'<img alt="of a run" src="{PIXEL}">')
        return page(real_rows, real_records, [], "A title", folder=flags.ROOT)


@pytest.fixture(scope="module")
def reader(text):
    """Returns the elements of the page."""
    return Reader(text)


def paper_page(rows):
    return paper_pages.paper_page(made_up.PAPER, rows, [], {})


def test_an_undecided_row_shows_what_would_decide_it(rows):
    (row,) = (row for row in rows if row.verdict == OPEN)
    more = tables.how_to_decide(row)
    assert re.match(r"\d+ new seeds would decide it with a probability of 90 %", more)
    assert escape(more) in section(row, {})
    assert all("new seeds" not in section(r, {}) for r in rows if r is not row)


def test_the_seeds_that_a_row_asks_for_would_decide_it(rows):
    (row,) = (row for row in rows if row.verdict == OPEN)
    ((text, rule),) = row.item.rules.items()

    def judged(seeds, sem):
        read = {True: Number(0.2471, sem, seeds), False: Number(0.24)}
        return rule.judge(text, lambda side: read[bool(side.cell)])

    def needed(sem=0.001, row=row, **changed):
        return tables.seeds_needed(row._replace(findings=[judged(2, sem)], **changed))

    n_seeds, _ = needed()
    assert judged(n_seeds, 0.001 * (2 / n_seeds) ** 0.5).verdict == NOT_HELD
    assert needed(sem=0.02) == (0, "it needs more than 64 seeds")
    assert needed(sem=float("nan")) == (4, "")
    assert needed(verdict=NOT_HELD) == (0, "")
    split = rule._replace(left=rule.left._replace(among=("C",)))
    assert needed(row=row._replace(item=row.item._replace(rules={text: split}))) == (0, "")


def test_every_verdict_is_there(rows):
    assert {row.verdict for row in rows} == set(SHOWN)


def test_flags_and_checks_are_shown_with_the_verdict(rows):
    (row,) = (row for row in rows if row.item.name == "Table 4")
    assert row.verdict == HELD and row.flags == (CHANCE, SMALLER, LATE)
    assert row.checks[0].verdict == HELD
    text = section(row, {})
    check = ("Additional check: <span", "C is below A half: <span")
    for fragment in (*row.flags, *check, "Table &lt;40&gt; too"):
        assert fragment in text, fragment
    assert "the published number is chance level" in paper_page(rows)


def test_a_paper_begins_with_its_rows_by_verdict(rows):
    lead = summary.lead(rows, "made_up")
    assert lead.startswith("Held: Table 1; Table 4;") and "Not implemented: Table 6." in lead
    assert "Did not hold: Table 2; Table 3; Figure 2, the paths." in lead
    decided = sum(f.verdict in (HELD, NOT_HELD) for row in rows for f in row.findings)
    assert decided == 8 and summary.decisions_after_correction(rows).startswith(
        "8 rules are decided"
    )
    assert "1 of them compare exact numbers" in summary.decisions_after_correction(rows)
    assert "Holm's method keeps 7 of 7 primary rules" in summary.decisions_after_correction(rows)
    assert summary.decisions_after_correction([]) == "No rule is decided yet."


def test_the_page_is_well_formed_and_needs_no_other_file(text, reader):
    read = reader
    assert read.wrong == [] and read.stack == []
    ids = read.of("id")
    assert len(ids) == len(set(ids))
    for link in read.of("href"):
        if link.startswith("#"):
            assert link[1:] in ids, link
        elif not link.startswith(("data:", "https://arxiv.org/abs/")):
            assert (flags.ROOT / unquote(link)).exists(), link
    assert "url(" not in text and "@import" not in text
    for tag, attributes in read.elements:
        if tag == "img":
            kind, data = attributes["src"].split(",")
            assert attributes["alt"] and kind == "data:image/webp;base64"
            Image.open(io.BytesIO(base64.b64decode(data))).load()
        assert tag != "svg" or {"aria-label", "aria-hidden"} & attributes.keys()
    assert len(text) < 3e6


def test_without_scripts_only_controls_are_hidden(text, reader):
    """A page hides only the controls that need a script, until a script shows them."""
    controls = {"button", "form", "input", "select"}
    for tag, attributes in reader.elements:
        if tag in ("button", "form") or attributes.get("id") in ("phase", "order"):
            is_inside = attributes.get("type") == "reset" or attributes.get("class") == "controls"
            assert "hidden" in attributes or is_inside, attributes
        elif "hidden" in attributes:
            assert tag in controls, attributes
    assert ("noscript" in text) == ('id="phase"' in text)


def test_every_row_of_the_ledger_links_to_a_section_with_its_verdict(text, reader, rows):
    table = text[
        text.index('class="ledger"') : text.index("</table>", text.index('class="ledger"'))
    ]
    linked = re.findall(r'<tr class="row"[^>]*><td><a href="#([^"]+)"', table)
    items = [a for tag, a in reader.elements if tag == "section" and "id" in a]
    sections = [a["id"] for a in items if a["id"] not in ("findings", "phase", "order")]
    assert linked == sections and len(linked) in (
        len(rows),
        sum(len(p.items) for p in PAPERS.values()),
    )


def gaps(records):
    """Returns the difference of a metric of two records."""
    for one, other in itertools.permutations(records, 2):
        for name in one["metrics"].keys() & other["metrics"].keys():
            means = [record["metrics"][name]["mean"] for record in (one, other)]
            if None not in means:
                yield means[0] - means[1]


def over_all(records):
    """Returns the mean over the records, as over splits of the data."""
    for name in set.intersection(*(set(record["metrics"]) for record in records)):
        means = [record["metrics"][name]["mean"] for record in records]
        if None not in means:
            yield sum(means) / len(means)


def lost(record):
    """Returns the share of the seeds that diverged."""
    members = record["members"]
    return sum(m.get("diverged_at") is not None for m in members) / max(len(members), 1)


@functools.cache
def record_of(place):
    """Returns the record that a number names by its hash, or by its path."""
    if "/" in place:
        return json.loads((flags.ROOT / place).read_text())
    (file,) = (flags.ROOT / "results").rglob(f"*-{place}.json")
    return json.loads(file.read_text())


@functools.cache
def numbers_of(places, is_comparison):
    """Returns the numbers that an element may show, given the places of its records."""
    records = [record_of(place) for place in places.split()]
    assert all(len(record["environment"]["commit"]) == 40 for record in records)
    known = [m["mean"] for record in records for m in record["metrics"].values()]
    if is_comparison:
        items = [item for p in (*PAPERS.values(), made_up.PAPER) for item in p.items]
        rules = [rule for i in items for rule in (*i.rules.values(), *i.checks.values())]
        sides = [side for rule in rules for side in rule.sides]
        known += [side.value for side in sides if not side.cell]
        known += [v for record in records for v in record["baselines"].values()]
        shares = {side.times for side in sides if side.times != 1}
        known += [share * mean for share in shares for mean in known if mean is not None]
        known += [*gaps(records), *over_all(records), *map(lost, records)]
    return {value for value in known if value is not None}


@functools.cache
def spelled(places, is_comparison, decimals):
    """Returns the spellings of these numbers: four digits, or a number of decimals."""
    numbers = numbers_of(places, is_comparison)
    return {f"{v:.4g}" for v in numbers} | {f"{v:.{decimals}f}" for v in numbers}


def test_every_number_names_its_record_and_commit(text, reader, results):
    read, checked = reader, 0
    marked = []
    for _, attributes, fragment in read.texts:
        places = attributes.get("data-record", attributes.get("data-records"))
        if places is None:
            continue
        marked.append("".join(fragment))
        for part in marked[-1].split(" against "):
            shown = NUMBER.match(part)
            assert shown, part
            decimals = len(shown[0].partition(".")[2])
            assert shown[0] in spelled(places, "data-records" in attributes, decimals), part
            checked += 1
    assert checked > 10 or not text.count("data-record")
    assert not re.search(r'data-records?="results/[^"]*-[0-9a-f]{12}.json', text)
    # An error bar stands in no other element than those.
    body = "".join("".join(fragment) for tag, _, fragment in read.texts if tag == "body")
    sentences = ["".join(fragment) for _, a, fragment in read.texts if a.get("class") == "sentence"]
    shown = sum(w.count(" ± ") for w in (*marked, *sentences))
    assert body.count(" ± ") - body.count("mean ± ") == shown


def test_texts_are_escaped(results, rows):
    text = page(rows, *read.load(results), "A title")
    assert "<b>bold" not in text and "&lt;tags&gt;" in text


def test_a_figure_is_drawn_once_with_its_command_and_record(results, rows):
    text = page(rows, *read.load(results), "A title")
    section = text[text.index('<section class="item" id="made-up-figure-2-the-paths"') :]
    section = section[: section.index("</section>")]
    assert "<img alt=" in section and "configs/mixit/sde_paths.py:scale=small" in section
    assert "figure.json" in section and made_up.COMMIT[:7] in section
    assert 'data-file="made-up-figure-2-the-paths-figure-1.csv"' in section
    # Of tables 1 to 4 two panels each, of table 2 the published numbers too, of the sweep one.
    assert text.count("<svg viewBox") == 2 * 4 + 1 + 1
    assert 'href="#made-up-table-1">Table 1</a>' in text


def test_each_number_has_the_verdict_of_its_rule(rows):
    (row,) = [row for row in rows if row.item.name.startswith("Figure 2")]
    assert [(line.metric, line.verdict) for line in tables.lines(row)] == [
        ("ks_50%/tau=1", "held"),
        ("rate", "did not hold"),
    ]
    assert [finding.verdict for finding, _ in tables.findings_with_sides(row)] == [HELD, NOT_HELD]


def test_tiny_runs_count_only_on_demand_and_after_all_others():
    paper = {"made_up": made_up.PAPER._replace(items=made_up.PAPER.items[:1])}
    tiny = made_up.record(made_up.A, 0.5)
    config = flags.to_dict(flags.load_config(f"{made_up.A.config},scale=tiny"))
    tiny = Record.from_json(tiny | {"config": config, "scale": "tiny"})
    small = Record.from_json(made_up.RECORDS["a"])
    assert ledger(paper, [tiny])[0].verdict == "not run"
    assert ledger(paper, [tiny], also=("tiny",))[0].verdict == "did not hold"
    both = ledger(paper, [tiny, small], also=("tiny",))
    assert both[0].verdict == "held"


def test_finished_runs_can_be_shown_without_the_records(finished, tmp_path, capsys):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/result.json").write_text("{")
    file = tmp_path / "page.html"
    arguments = [f"--page={file}", f"--runs={finished}", f"--runs={tmp_path}", "--only-runs"]
    assert report.main(arguments) == 0
    text = file.read_text()
    assert "All numbers are of scale tiny" in text and "variant=frozen_qk,scale=tiny" in text
    assert "broken" in text[text.index('id="unusable"') :] and Reader(text).wrong == []
    assert "damaged" in capsys.readouterr().err


def test_a_page_without_records_says_that_there_is_none(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("experiments.report.WORKSPACE", tmp_path)
    assert report.main([f"--page={tmp_path / 'new/page.html'}"]) == 0
    text = (tmp_path / "new/page.html").read_text()
    assert "There is no record yet" in text and Reader(text).wrong == []
    assert "0 of" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--pag=x"], "Did you mean '--page'?"),
        (["--page"], "--page needs a value."),
        (["--check=yes"], "--check takes no value, got 'yes'"),
        (["--page=x.html", "--runs=nowhere"], "no such folder"),
        (["--runs=nowhere"], "give --page=FILE or --tables=DIR"),
        (["--page=x.html", "--only-runs"], "--only-runs needs"),
        (["--page=x.html", "--check"], "give it alone"),
        (["--csv=x.csv", "--write"], "give it alone"),
        (["--page=/proc/none/x.html"], "cannot write"),
        (["--page=/tmp"], "cannot write"),
        (["--only=Table 2, retreival"], "Did you mean 'Table 2, retrieval'?"),
        (["--only=mixti"], "Did you mean 'mixit'?"),
        (["--only=Table 2", "--check"], "give it alone"),
        (["--opening=x.json"], "give --page=FILE too"),
        (["--only="], "give --only=NAME, --page=FILE"),
    ],
)
def test_wrong_arguments_are_one_line_errors(arguments, message, capsys):
    assert report.main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
