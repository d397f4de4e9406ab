"""The page: it needs nothing else, every link lands, every number comes out of a record."""

import base64
import copy
import csv
import io
import json
import os
import re
import shutil
import subprocess
from html import escape
from html.parser import HTMLParser

import pytest
from PIL import Image

from experiments import report
from experiments.ledger import read, summary, tables
from experiments.ledger.item import CHANCE, LATE, SMALLER
from experiments.ledger.ledger import ledger
from experiments.ledger.record import Record
from experiments.ledger.rules import HELD, NOT_HELD, OPEN, SHOWN
from experiments.page import markdown
from experiments.page.html import page
from experiments.page.section import section
from experiments.papers import PAPERS
from experiments.shared import describe, flags
from jaxformer.records import dumps, write_json
from tests.experiments import made_up

VOID = {"meta", "link", "br", "img", "circle", "path"}
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


MARKUP = """x"'><script>alert(1)</script><img src=//x.y/z onerror=alert(2)>[a](javascript:b)"""


class Reader(HTMLParser):
    """Elements of a page; notes a tag that is closed out of order."""

    def __init__(self, text: str):
        super().__init__()
        self.elements, self.stack, self.wrong, self.texts = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.texts.append((tag, dict(attributes), []))
        if tag not in VOID:
            self.stack.append((tag, len(self.texts) - 1))

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if not self.stack or self.stack.pop()[0] != tag:
            self.wrong.append(f"</{tag}> at line {self.getpos()[0]}")

    def handle_data(self, data):
        for _, place in self.stack:
            self.texts[place][2].append(data)

    def of(self, name: str) -> list[str]:
        return [a[name] for _, a in self.elements if name in a]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A results folder of made-up records."""
    folder = tmp_path_factory.mktemp("made_up") / "results"
    folder.mkdir()
    for name, record in made_up.RECORDS.items():
        made_up.write(folder, name, record)
    (folder / "figure.png").write_bytes(made_up.png())
    (folder / "figure.csv").write_text("array,indices,value\nks,0,0.03\n")
    return folder


@pytest.fixture(scope="module")
def rows(results):
    return ledger({"made_up": made_up.PAPER}, read.load(results)[0])


@pytest.fixture(scope="module", params=["made up", "real"])
def text(request, results):
    papers = PAPERS if request.param == "real" else {"made_up": made_up.PAPER}
    records, problems = read.load(flags.ROOT / "results" if request.param == "real" else results)
    return page(ledger(papers, records), records, problems, "A title")


def test_undecided_says_how_to_decide(rows):
    (row,) = (row for row in rows if row.verdict == OPEN)
    more = "reproduce.py --paper made_up --only 'Table 7' --scale small --seeds 4"
    assert escape(more) in section(row, {})
    assert all("--seeds" not in section(r, {}) for r in rows if r is not row)


def test_every_verdict_is_there(rows):
    assert {row.verdict for row in rows} == set(SHOWN)


def test_what_a_reader_must_know_stands_beside_the_verdict(rows):
    (row,) = (row for row in rows if row.item.name == "Table 4")
    assert row.verdict == HELD and row.flags == (CHANCE, SMALLER, LATE)
    assert row.checks[0].verdict == HELD
    text = section(row, {})
    for words in (*row.flags, "Beside the claim: C is below A half? Yes", "Table &lt;40&gt; too"):
        assert words in text, words
    assert "the published number is chance level" in markdown.results(rows, [], [])


def test_a_paper_leads_with_what_stands_and_what_falls(rows):
    lead = summary.lead(rows, "made_up")
    assert lead.startswith("Held: Table 1; Table 4;") and "Not implemented: Table 6." in lead
    assert "Did not hold: Table 2; Table 3; Figure 2, the paths." in lead
    decided = sum(f.verdict in (HELD, NOT_HELD) for row in rows for f in row.findings)
    assert decided == 8 and summary.luck(rows).startswith("8 rules are decided")
    assert "Held: Table 1" in markdown.results(rows, [], [])


def test_the_page_is_whole_and_needs_nothing_else(text):
    read = Reader(text)
    assert read.wrong == [] and read.stack == []
    ids = read.of("id")
    assert len(ids) == len(set(ids))
    for link in read.of("href"):
        assert link.startswith(("#", "data:")), link
        assert not link.startswith("#") or link[1:] in ids, link
    tags = {tag for tag, _ in read.elements}
    assert "script" not in tags and "url(" not in text and "@import" not in text
    for tag, attributes in read.elements:
        if tag == "img":
            kind, data = attributes["src"].split(",")
            assert attributes["alt"] and kind == "data:image/png;base64"
            Image.open(io.BytesIO(base64.b64decode(data))).load()
        assert tag != "svg" or attributes["aria-label"]
    assert len(text) < 15e6


def test_every_row_of_the_ledger_links_to_a_section_with_its_verdict(text, rows):
    read = Reader(text)
    table = text[
        text.index('class="ledger"') : text.index("</table>", text.index('class="ledger"'))
    ]
    linked = re.findall(r'<tr class="row"><td><a href="#([^"]+)"', table)
    sections = [a["id"] for tag, a in read.elements if tag == "section" and "id" in a]
    assert linked == sections and len(linked) in (
        len(rows),
        sum(len(p.items) for p in PAPERS.values()),
    )


def test_every_number_comes_out_of_a_record_with_a_commit(text, results):
    read, checked = Reader(text), 0
    items = [item for p in (*PAPERS.values(), made_up.PAPER) for item in p.items]
    sides = [side for item in items for rule in item.rules.values() for side in rule.sides]
    constants = [side.value for side in sides if not side.cell]
    marked = []
    for _, attributes, words in read.texts:
        places = attributes.get("data-record", attributes.get("data-records"))
        if places is None:
            continue
        records = [json.loads((flags.ROOT / place).read_text()) for place in places.split()]
        assert all(len(record["environment"]["commit"]) == 40 for record in records)
        known = [m["mean"] for record in records for m in record["metrics"].values()]
        if "data-records" in attributes:
            known += constants + [v for record in records for v in record["baselines"].values()]
        marked.append("".join(words))
        for part in marked[-1].split(" against "):
            shown = NUMBER.match(part)
            assert shown, part
            assert f"{float(shown[0]):.4g}" in [f"{v:.4g}" for v in known if v is not None], part
            checked += 1
    assert checked > 10 or not text.count("data-record")
    # An error bar stands in no other element than those.
    body = "".join("".join(words) for tag, _, words in read.texts if tag == "body")
    assert body.count(" ± ") - body.count("mean ± ") == sum(w.count(" ± ") for w in marked)


def test_texts_are_escaped(results, rows):
    text = page(rows, *read.load(results), "A title")
    assert "<b>bold" not in text and "&lt;tags&gt;" in text


def test_a_figure_shows_its_command_and_record_and_stands_once(results, rows):
    text = page(rows, *read.load(results), "A title")
    section = text[text.index('<section class="item" id="made-up-figure-2-the-paths"') :]
    section = section[: section.index("</section>")]
    assert "<img alt=" in section and "configs/mixit/sde_paths.py:scale=small" in section
    assert "figure.json" in section and made_up.COMMIT[:7] in section and "download=" in section
    # Of tables 1 to 4 two panels each, of table 2 the published numbers too, of the sweep one.
    assert text.count("<svg") == 2 * 4 + 1 + 1
    assert 'href="#made-up-table-1">Table 1</a>' in text


def test_a_verdict_is_of_its_own_number_and_says_whether_the_rule_holds(rows):
    (row,) = [row for row in rows if row.item.name.startswith("Figure 2")]
    assert [(line.metric, line.verdict) for line in tables.lines(row)] == [
        ("ks_50%/tau=1", "held"),
        ("rate", "did not hold"),
    ]
    assert [holds for _, holds, _ in tables.said(row)] == ["Yes", "No"]


def test_tiny_runs_count_only_where_asked_for_and_last():
    paper = {"made_up": made_up.PAPER._replace(items=made_up.PAPER.items[:1])}
    tiny = made_up.record(made_up.A, 0.5)
    config = flags.plain(flags.load_config(f"{made_up.A.config},scale=tiny"))
    tiny = Record.from_json(tiny | {"config": config, "scale": "tiny"})
    small = Record.from_json(made_up.RECORDS["a"])
    assert ledger(paper, [tiny])[0].verdict == "not run"
    assert ledger(paper, [tiny], also=("tiny",))[0].verdict == "did not hold"
    both = ledger(paper, [tiny, small], also=("tiny",))
    assert both[0].verdict == "held"


def test_tables_as_csv_and_latex(rows, tmp_path):
    report.write_tables(tmp_path, rows)
    names = {file.name for file in tmp_path.iterdir()}
    assert {"made-up-table-1.csv", "made-up-table-1.tex", "made-up-table-1-figure-1.csv"} <= names
    head, line = (tmp_path / "made-up-table-1.csv").read_text().splitlines()
    found = dict(zip(head.split(","), line.split(","), strict=True))
    assert found["measured"] == "0.97" and found["published"] == "0.5"
    assert found["verdict"] == "held" and found["commit"] == made_up.COMMIT[:7]
    latex = (tmp_path / "made-up-figure-2-the-paths.tex").read_text()
    assert r"ks\_50\%/tau=1 & - & 0.0333 $\pm$ 0.001 & 2" in latex
    body = [line for line in latex.splitlines() if line.endswith(r"\\")]
    assert {line.count("&") for line in body} == {7}
    assert tables.latex("a\\b{c}~^#$ρ") == (
        r"a\textbackslash{}b\{c\}\textasciitilde{}\textasciicircum{}\#\$$\rho$"
    )


def test_pdflatex_prints_the_tables(rows, tmp_path):
    if not shutil.which("pdflatex"):
        pytest.skip("there is no pdflatex on this machine")
    report.write_tables(tmp_path, [*rows, *ledger(PAPERS, [])])
    names = sorted(file.name for file in tmp_path.glob("*.tex"))
    body = "".join(f"\\input{{{name}}}\n\n" for name in names)
    text = f"\\documentclass{{article}}\\begin{{document}}\n{body}\\end{{document}}\n"
    (tmp_path / "all.tex").write_text(text)
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-draftmode", "all.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stdout[-800:]


def test_a_stale_record_decides_nothing_and_is_named_everywhere(tmp_path):
    write_json(tmp_path / "a.json", made_up.RECORDS["a"] | {"config_hash": "0" * 12})
    write_json(tmp_path / "gone.json", made_up.RECORDS["b"] | {"config_file": "configs/gone.py"})
    records, problems = read.load(tmp_path)
    rows = ledger({"made_up": made_up.PAPER}, records)
    assert {row.verdict for row in rows if row.item.cells} == {"not run"}
    text = page(rows, records, problems, "A title")
    assert "(stale)" in text and "Stale, so it decides nothing: A: its config" in text
    assert "no config file &#x27;configs/gone.py&#x27;" in text
    assert "its config has changed" in text[text.index('id="unusable"') :]


@pytest.mark.parametrize(
    "change, words",
    [
        ({"metrics": {"accuracy": 0.5}}, "its 'metrics' are damaged"),
        ({"seeds": "0, 1"}, "'seeds' should be a list"),
        ({"schema": 99}, "schema 99"),
    ],
)
def test_a_record_that_cannot_be_used_is_named_and_the_page_stands(tmp_path, change, words):
    write_json(tmp_path / "a.json", made_up.RECORDS["a"] | change)
    write_json(tmp_path / "figure.json", made_up.RECORDS["figure"])
    (tmp_path / "figure.png").write_bytes(made_up.png()[:-20])
    records, problems = read.load(tmp_path)
    assert len(records) == 1 and words in problems[0] and "figure is damaged" in problems[1]
    rows = ledger({"made_up": made_up.PAPER}, records)
    assert "a.json" in page(rows, records, problems, "A title")


def test_whatever_stands_in_a_record_the_page_stands(tmp_path):
    """Each field of a record in turn is junk or gone: the record is named, or shown without it."""
    for field in made_up.RECORDS["a"]:
        for junk in (None, "junk", [None], {"a": {}}):
            record = made_up.RECORDS["a"] | {field: junk}
            (tmp_path / "a.json").write_text(json.dumps(record))
            records, problems = read.load(tmp_path)
            rows = ledger({"made_up": made_up.PAPER}, records)
            text = page(rows, records, problems, "A title")
            assert len(records) + len(problems) == 1 and "a.json" in text, (field, junk)
            markdown.results(rows, records, problems)


def test_a_number_that_is_not_finite_gives_no_verdict(tmp_path):
    changed = {"metrics": {"accuracy": {"mean": None, "sem": None, "n": 2}}}
    write_json(tmp_path / "a.json", made_up.RECORDS["a"] | changed)
    records, problems = read.load(tmp_path)
    (row, *_) = rows = ledger({"made_up": made_up.PAPER}, records)
    assert row.verdict == "not run" and "not finite" in row.problems[0]
    assert "not finite" in page(rows, records, problems, "A title")


def test_finished_runs_make_a_page_of_their_own(finished, tmp_path, capsys):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/result.json").write_text("{")
    file = tmp_path / "page.html"
    words = [f"--page={file}", f"--runs={finished}", f"--runs={tmp_path}", "--only-runs"]
    assert report.main(words) == 0
    text = file.read_text()
    assert "All numbers are of scale tiny" in text and "variant=frozen_qk,scale=tiny" in text
    assert "broken" in text[text.index('id="unusable"') :] and Reader(text).wrong == []
    assert "damaged" in capsys.readouterr().err


def test_without_any_record_the_page_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("experiments.report.ROOT", tmp_path)
    assert report.main([f"--page={tmp_path / 'new/page.html'}"]) == 0
    text = (tmp_path / "new/page.html").read_text()
    assert "no record: nothing was run yet" in text and Reader(text).wrong == []
    assert "0 of" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, told",
    [
        (["--pag=x"], "Did you mean '--page'?"),
        (["--page"], "--page needs a value."),
        (["--check=yes"], "--check takes no value, got 'yes'"),
        (["--page=x.html", "--runs=nowhere"], "no such folder"),
        (["--runs=nowhere"], "give --page=FILE"),
        (["--page=x.html", "--only-runs"], "--only-runs needs"),
        (["--page=x.html", "--check"], "give it alone"),
        (["--page=/proc/none/x.html"], "cannot write"),
        (["--page=/tmp"], "cannot write"),
    ],
)
def test_a_wrong_word_is_one_line(words, told, capsys):
    assert report.main(words) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1


PROBE = """<script>addEventListener("load", () => {
  const links = [...document.querySelectorAll('a[href^="#"]')];
  const lost = links.filter(a => {
    const there = document.getElementById(a.hash.slice(1));
    return !there || there.getBoundingClientRect().height === 0;
  });
  const broken = [...document.images].filter(i => !i.complete || i.naturalWidth === 0);
  const wide = document.documentElement.scrollWidth - innerWidth;
  parent.document.title = JSON.stringify({links: links.length, lost: lost.length,
    images: document.images.length, broken: broken.length, wide});
})</script>"""


@pytest.mark.parametrize("drawn", ["in the ledger", "beside it"])
def test_chromium_opens_the_page(results, rows, tmp_path, drawn):
    names = ("chromium", "chromium-browser", "google-chrome", "chrome", "chrome-headless-shell")
    browser = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if not browser:
        pytest.skip("there is no Chromium on this machine")
    file = tmp_path / "page.html"
    if drawn == "beside it":
        rows = [row for row in rows if "figure" not in row.item.name.lower()]
    text = page(rows, *read.load(results), "A title")
    file.write_text(text.replace("</body>", PROBE + "</body>"))
    phone = tmp_path / "phone.html"
    phone.write_text('<title></title><iframe src="page.html" width="400" height="800"></iframe>')
    words = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'home'}"]
    words += ["--allow-file-access-from-files", "--enable-logging=stderr"]
    words += ["--dump-dom", f"file://{phone}"]
    done = subprocess.run([browser, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    found = json.loads(re.search(r"<title>({.*?})</title>", done.stdout)[1])
    assert found["links"] >= len(rows) and found["images"] == 1
    assert found["lost"] == found["broken"] == 0 and found["wide"] <= 0


def strings(value, path=()):
    """Where the words of a record stand: (path, is it a name)."""
    if isinstance(value, str):
        yield path, False
    inside = enumerate(value) if isinstance(value, list) else ()
    for name, entry in value.items() if isinstance(value, dict) else inside:
        if isinstance(name, str):
            yield (*path, name), True
        yield from strings(entry, (*path, name))


def changed(value, path, is_name):
    """The record with MARKUP as, or in, the word at a path."""
    value = copy.deepcopy(value)
    *parents, last = path
    inside = value
    for name in parents:
        inside = inside[name]
    if is_name:
        inside[f"{last}{MARKUP}"] = inside.pop(last)
    else:
        inside[last] = f"{inside[last]}{MARKUP}" if last != "commit" else MARKUP
    return value


def test_no_word_of_a_record_is_markup(tmp_path):
    """Every string and every name of a record, found by walking it, in one page."""
    count = 0
    for name in ("a", "figure"):
        held = json.loads(dumps(made_up.RECORDS[name]))
        for i, (path, is_name) in enumerate(strings(held)):
            write_json(tmp_path / f"{name}{i}.json", changed(held, path, is_name))
            count += 1
    (tmp_path / f"<script>{'b' * 9}.json").write_text("{}")
    assert count > 100
    records, problems = read.load(tmp_path)
    rows = ledger({"made_up": made_up.PAPER}, records)
    assert len(records) > 40 and len(problems) > 20  # some words are shown, some are refused
    found = Reader(page(rows, records, problems, "A title"))
    assert found.wrong == [] and {tag for tag, _ in found.elements} & {"script", "iframe"} == set()
    assert not [name for _, held in found.elements for name in held if name.startswith("on")]
    for name in ("src", "href", "srcset", "action", "poster"):
        assert all(link.startswith(("#", "data:")) for link in found.of(name))
    text = markdown.results(rows, records, problems)
    outside = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    assert "alert(1)" in outside and "<script" not in outside and "<img" not in outside
    assert "](javascript" not in outside


def test_no_cell_of_a_table_is_a_formula():
    rows = [["=1+1", "@SUM(A1)", "+a", "-b", "\t=1", "-0.5", "-inf", "-", "1e-3", "+2", "a=b"]]
    cells = next(csv.reader(io.StringIO(describe.csv_text(rows))))
    assert cells[:5] == ["'=1+1", "'@SUM(A1)", "'+a", "'-b", "'\t=1"]
    assert cells[5:] == rows[0][5:]
