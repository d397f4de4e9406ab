"""The page in a browser: links, filters, buttons and sliders work."""

import pytest

from experiments import report
from experiments.ledger import read, tables
from experiments.site.html import page
from experiments.site.opening import Opening
from tests.experiments import made_up
from tests.experiments.site import browser

LINKS = """
  const links = all('a[href^="#"]');
  const lost = links.filter((a) => {
    const there = document.getElementById(a.hash.slice(1));
    return !there || there.getBoundingClientRect().height === 0;
  });
  const broken = [...document.images].filter((i) => !i.complete || i.naturalWidth === 0);
  const wide = document.documentElement.scrollWidth - innerWidth;
  return {links: links.length, lost: lost.length, images: document.images.length,
    broken: broken.length, wide};
"""
FILTERS = """
  const form = document.getElementById("filters");
  const shown = () => all("table.ledger tr.row").filter((row) => row.getClientRects().length);
  const names = () => shown().map((row) => row.querySelector("a").textContent.trim());
  const found = {hidden: form.hidden, all: names()};
  const box = all("input[name=verdict]").find((one) => one.value === "held");
  box.click();
  found.held = names();
  found.count = form.elements.count.value;
  box.click();
  form.elements.words.value = "mixit  LOSES";
  form.elements.words.dispatchEvent(new Event("input", {bubbles: true}));
  found.words = names();
  form.elements.words.value = "of no row";
  form.elements.words.dispatchEvent(new Event("input", {bubbles: true}));
  found.none = names();
  form.reset();
  await later();
  found.again = names();
  return found;
"""
BUTTONS = """
  const held = {};
  URL.createObjectURL = (blob) => { held.blob = blob; return "#"; };
  HTMLAnchorElement.prototype.click = function () { held.name = this.download; };
  let copied = null;
  navigator.clipboard.writeText = async (text) => { copied = text; };
  const pre = all("pre").find((one) => one.getClientRects().length) || all("pre")[0];
  pre.previousElementSibling.click();
  await later();
  const save = all("button.save").find((one) => one.dataset.file.endsWith(".csv"));
  save.click();
  while (!held.name) await later();
  return {copied, wanted: pre.textContent, label: pre.previousElementSibling.textContent,
    requested: save.dataset.file, name: held.name, text: await held.blob.text()};
"""
CARDS = """
  const flags = all(".flag"), marks = all("nav .mark");
  return {cards: all("ol.cards > li").length, links: all(".small .peek").length,
    drawn: all("li > .peek > :is(svg, img)").length, legends: all("ol.cards .legend").length,
    told: flags.every((flag) => flag.title) && marks.every((mark) => mark.title), n: flags.length};
"""
WHY = """
  const found = [];
  for (const why of all("details.why[data-rule]")) {
    const before = why.querySelectorAll("svg").length;
    for (const open of [true, false, true]) { why.open = open; await later(); }
    const [requested, , interval] = [...why.querySelectorAll("path")].map((path) =>
      path.getAttribute("d").match(/-?[\\d.]+/g).map(Number));
    found.push({before, drawn: why.querySelectorAll("svg").length, verdict: why.className,
      edges: [requested[0], requested[2]], interval: [interval[0], interval[2]],
      colour: getComputedStyle(why.querySelector("circle")).fill});
  }
  return {found};
"""
SLIDERS = """
  const found = {};
  for (const [id, field, told] of [["phase", "alpha", "phase-told"],
                                   ["order", "place", "order-told"]]) {
    document.getElementById(id).scrollIntoView();
    while (!document.getElementById(told).value) await later();
    const input = document.getElementById(id + "-controls").elements[field];
    found[id] = [input.min, input.max].map((value) => {
      input.value = value;
      input.dispatchEvent(new Event("input", {bubbles: true}));
      return document.getElementById(told).value;
    });
  }
  return found;
"""


@pytest.fixture(scope="module")
def made(results, rows):
    return page(rows, *read.load(results), "A title")


@pytest.mark.parametrize("drawn", ["in the ledger", "beside it"])
def test_links_have_targets_and_nothing_is_wider_than_the_window(results, rows, tmp_path, drawn):
    if drawn == "beside it":
        rows = [row for row in rows if "figure" not in row.item.name.lower()]
    text = page(rows, *read.load(results), "A title")
    result = browser.ask(text, LINKS, tmp_path, width=400)
    assert result["links"] >= len(rows) and result["images"] == 1
    assert result["lost"] == result["broken"] == 0 and result["wide"] <= 0


def test_the_filters_show_the_selected_rows(made, rows, tmp_path):
    result = browser.ask(made, FILTERS, tmp_path)
    held = [row.item.name for row in rows if row.verdict == "held"]
    assert not result["hidden"] and result["all"] == result["again"] == [r.item.name for r in rows]
    assert result["held"] == held and 0 < len(held) < len(rows)
    assert result["count"] == f"{len(held)} of {len(rows)} rows"
    assert result["words"] == ["Figure 1"] and result["none"] == []


def test_a_finding_shows_the_figure_of_its_section(results, rows, tmp_path):
    named = {row.item.name: row for row in rows}
    shown = [
        Opening(made_up.PAPER, "So it is.", "", "", name, tables.name_of(named[name]))
        for name in ("Table 2", "Figure 2, the paths", "Table 6")
    ]
    result = browser.ask(page(rows, *read.load(results), "A", openings=shown), CARDS, tmp_path)
    assert (result["cards"], result["links"], result["drawn"], result["legends"]) == (3, 2, 2, 1)
    assert result["told"] and result["n"] > 3


def test_the_buttons_copy_a_command_and_save_a_table(made, rows, tmp_path):
    result = browser.ask(made, BUTTONS, tmp_path)
    assert result["copied"] == result["wanted"] and result["label"] == "copied"
    assert result["name"] == result["requested"]
    assert result["text"] in {tables.as_csv(row) for row in rows}


def test_an_explanation_is_drawn_once_when_it_is_opened(made, tmp_path):
    """The interval of a rule that holds lies inside the required range, else outside."""
    result = browser.ask(made, WHY, tmp_path)["found"]
    assert {one["before"] for one in result} == {0} and {one["drawn"] for one in result} == {1}
    inside, outside = [], []
    for one in result:
        (low, high), (begin, end) = one["edges"], one["interval"]
        inside.append(one["verdict"] == "why held" and low <= begin <= end <= high)
        outside.append("did-not-hold" in one["verdict"] and (end <= low or begin >= high))
        assert "cannot" in one["verdict"] or inside[-1] or outside[-1], one
    assert any(inside) and any(outside)
    assert len({one["colour"] for one in result}) == len({one["verdict"] for one in result}) > 1


@pytest.mark.slow
def test_the_sliders_of_the_whole_page_move_its_sentences(tmp_path):
    assert report.main([f"--page={tmp_path / 'whole.html'}"]) == 0
    result = browser.ask((tmp_path / "whole.html").read_text(), SLIDERS, tmp_path)
    low, high = result["phase"]
    assert low.startswith("Collapsed") and high.startswith("Not collapsed")
    narrow, wide = result["order"]
    assert "the good path counts 18.60" in narrow and "the good path counts 1.06" in wide
