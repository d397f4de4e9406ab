"""The site: its tables agree with the code, its ledgers with RESULTS.md, and it builds."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest

from experiments.cli import console
from experiments.papers import PAPERS
from jaxformer import build
from tests.docs.blocks import ROOT


def script(name):
    """Imports a module of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tables():
    return script("generate").pages()


@pytest.fixture(scope="module")
def site(published_rows):
    module = script("site_pages")
    judged = {(row.paper.key, row.item.name): row for row in published_rows}
    module.site_rows.rows = lambda: judged  # the site would judge all records again
    module.site_rows.rows_by_hash.cache_clear()
    return module


def test_the_tables_are_what_the_code_says(tables):
    for name, text in tables.items():
        told = "python docs/generate.py writes it again"
        assert (ROOT / "docs/reference" / name).read_text() == text, f"{name} is old: {told}"


def test_the_help_of_the_programs_is_what_they_print():
    made = script("generate").program_help()
    assert console.HELP_FILE.read_text() == made, "python docs/generate.py writes it again"


def test_the_tables_have_every_name(tables):
    assert all(f"\n## {task}\n" in tables["tasks.md"] for task in build.TASKS)
    assert all(f"\n## {model}\n" in tables["models.md"] for model in build.MODELS)
    assert "| `rate` | `0.15` |" in tables["tasks.md"]  # its own, and those of what it inherits
    assert "| `n_symbols` | `32` | N, the number of symbols; they are" in tables["tasks.md"]
    assert "`variant=standard\\|frozen_qk\\|" in tables["configs.md"]
    assert "| `--budget` |  | 90s, 30m, 2h: starts only runs that end" in tables["commands.md"]
    assert "## advise" in tables["commands.md"] and "`--solve`" in tables["commands.md"]


def test_every_paper_has_a_page_and_a_results_page_on_the_site(site):
    contents = site.contents()
    for key in PAPERS:
        below = site.complete(f"papers/{key}", "")
        assert f"\n/papers/{key}\n" in contents and f"\n/results/{key}\n" in below
        assert f"](../results/{key}.md)" in (ROOT / f"docs/papers/{key}.md").read_text()


def test_the_first_page_has_the_findings_and_leads_to_the_papers(site):
    made = site.complete("index", (ROOT / "docs/index.md").read_text())
    assert made.count("\n### ") == 5 and made.count("\n![") == 5
    install, python, cards = (
        made.index(x) for x in ("pip install", "import jaxformer", "{contain")
    )
    assert install < python < cards
    assert "](results/mixit.md#table-2-retrieval)): **" in made and "](docs/" not in made
    below = "\n".join(site.complete(name, "") for name in site.BELOW)
    listed = [
        line[1:] for line in f"{made}\n{below}".splitlines() if re.fullmatch(r"/[\w/]+", line)
    ]
    assert len(listed) == len({*listed})
    pages = {
        str(f.relative_to(ROOT / "docs").with_suffix("")) for f in (ROOT / "docs").rglob("*.md")
    }
    notebooks = {f"notebooks/{name}" for name in site.NOTEBOOKS}
    assert pages - {"index"} == {*listed} - {"api"} - notebooks
    assert sum(map(len, site.CONTENTS.values())) <= 25
    assert made.count("{container} card\n") == len(site.CARDS) and "explore/collapse.md" in made


def test_explorers_and_figures_have_pages(site):
    """Checks also that each recorded figure has a thumbnail, a page, its command and its config."""
    page = site.complete("explore/collapse", (ROOT / "docs/explore/collapse.md").read_text())
    assert 'id="phase-map"' in page and '"dots":{"layers"' in page and "permalink" in page
    assert 'id="order-data"' in site.complete("explore/paths", "<!-- explorer: order -->")
    made = {name: context["body"] for name, context, _ in site.site_figures.pages(None)}
    drawn = (file.stem for file in (ROOT / "results").rglob("*.png"))
    hashes = [name.rpartition("-")[2] for name in drawn]
    gallery = site.complete("gallery", "<!-- gallery -->")
    assert sorted(name.rpartition("-")[2] for name in made) == sorted(hashes)
    assert all(f'href="{name}.html"' in gallery for name in made)
    assert all("jaxformer run " in body for body in made.values())
    assert "figures/mixit-sde" in site.complete("papers/random_attention", "<!-- figures -->")


def test_the_gallery_says_what_was_found_and_shows_one_thumbnail_of_equal_runs(site):
    gallery = site.complete("gallery", "<!-- gallery -->")
    captions = re.findall(r"<span>([^<]*)</span>", gallery)
    assert len(captions) == len(set(captions)) == gallery.count("<img")
    assert not [text for text in captions if "scale = " in text or "configs/" in text]
    assert gallery.count('class="verdict') >= 0.9 * len(captions)
    assert gallery.count('href="figures/') == len(site.site_figures.figures())


def test_a_table_of_statements_can_be_searched_and_begins_with_the_failures(site):
    made = {name: context["body"] for name, context, _ in site.site_figures.pages(None)}
    tables = [body for body in made.values() if 'class="statements"' in body]
    assert len(tables) == 2
    for body in tables:
        verdicts = re.findall(r'<td><span class="verdict [\w-]+">([\w, ]+)<', body)
        assert len(verdicts) > 50 and verdicts[0] == "fails" and verdicts[-1] == "holds"
        assert body.index("</table>") < body.index("<img")


def test_a_link_out_of_the_site_becomes_the_name_of_the_file(site):
    text = "[the code](../jaxformer/core/optim.py), [SDE](../sde.md), ![x](../../results/x.png)"
    made = site.complete("results/mixit", text.replace("../jax", "../../jax"))
    assert (
        made == "the code (`jaxformer/core/optim.py`), [SDE](../sde.md), ![x](../../results/x.png)"
    )


def headings(text):
    """Returns the anchors of the headings of a page, down to the third level."""
    matches = re.findall(
        r"^#{1,3} (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M
    )
    return {re.sub(r"[^\w\- ]", "", head.strip().lower()).replace(" ", "-") for head in matches}


def test_a_link_to_a_heading_leads_to_one_that_is_there(site):
    """Sphinx checks this, too, but few machines have it installed."""
    folder, places = ROOT / "docs", {}
    for file in sorted(folder.rglob("*.md")):
        name = str(file.relative_to(folder).with_suffix(""))
        places[file] = site.complete(name, file.read_text())
    links = [
        (file, link, (file.parent / link).resolve() if link else file, place)
        for file, text in places.items()
        for link, place in re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", text)
    ]
    assert len(links) >= 3
    lost = [
        f"{file.relative_to(folder)}: {link}#{place}"
        for file, link, target, place in links
        if place not in headings(places.get(target, ""))
    ]
    assert not lost


@pytest.mark.slow
def test_the_site_builds_and_needs_no_network(tmp_path):
    for name in ("furo", "myst_parser", "sphinx"):
        pytest.importorskip(name, reason="the extra [docs] is not installed")
    arguments = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    arguments += [str(ROOT / "docs"), str(tmp_path)]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(arguments, cwd=ROOT, env=environment, capture_output=True)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()[-4000:]
    for file in tmp_path.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|img|iframe)[^>]+src=\"(http[^\"]+)|<link[^>]+href=\"(http[^\"]+)",
            file.read_text(),
        )
        assert not loaded, f"{file.name} loads {loaded}"
    for file in tmp_path.rglob("*.css"):
        assert not re.search(r"url\([\"']?http|@import", file.read_text()), file.name
    assert "<math" in (tmp_path / "sde.html").read_text()
    api = (tmp_path / "api.html").read_text()
    for name in ("jaxformer.train", "jaxformer.capture.patch", "theory.rem.overlaps.self_overlap"):
        assert f'id="{name}"' in api, name
