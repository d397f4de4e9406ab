"""Settings of the site, which `make docs` builds into build/docs. Its pages load nothing remote."""

# ruff: noqa: E402
import os
import re
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import docstrings
import site_figures
import site_pages
from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

from jaxformer import __version__

project = "jaxformer"
author = "The jaxformer authors"
release = __version__
html_title = f"jaxformer {release}"
html_theme = "furo"
html_show_copyright = False
html_copy_source = False
exclude_patterns = ["Thumbs.db"]
notebooks = "myst_nb" if site_pages.HAS_NOTEBOOKS else "myst_parser"
if not site_pages.HAS_NOTEBOOKS:
    print("the site has no notebooks: pip install -e '.[docs]' installs myst-nb")
extensions = [notebooks, "sphinx.ext.autodoc"]
nb_execution_mode = "off"  # the notebooks contain their outputs
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
html_math_renderer = "mathml"
html_static_path = ["_static", "../experiments/site/charts.css"]
html_css_files = ["site.css", "charts.css"]
html_js_files = ["accessible.js"]
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", "")
smartquotes_action = "qe"  # quotes and ellipses, but no dashes: a flag keeps its two dashes
highlight_language = "default"  # the language of code blocks that name none
# A code block of adding.md may begin in one language and end in another.
suppress_warnings = ["misc.highlighting_failure"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
add_module_names = False


def math(writer, node: nodes.math) -> None:
    """Writes a formula within a line as MathML; Sphinx calls it."""
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def math_block(writer, node: nodes.math_block) -> None:
    """Writes a formula in a paragraph of its own as MathML; Sphinx calls it."""
    writer.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>\n')
    raise nodes.SkipNode


def complete(app, name: str, source: list[str]) -> None:
    """Completes the text of a page in place; Sphinx calls it for each page that it reads."""
    source[0] = site_pages.complete(name, source[0])


def add_preview(app, page: str, template: str, context: dict, doctree) -> None:
    """Adds the title and the picture that other sites show for a link to the page."""
    picture = app.env.metadata.get(page, {}).get("preview")
    picture = f"_static/{picture}" if picture else _first_picture(app, doctree)
    relative = context["pathto"](picture, resource=True)
    title = re.sub("<[^>]+>", "", context.get("title", project))
    tags = {"og:title": title, "og:site_name": project, "og:type": "article"}
    if doctree is not None:
        address = f"{html_baseurl.rstrip('/')}/{picture}" if html_baseurl else relative
        tags |= {"og:image": address, "twitter:card": "summary_large_image"}
    lines = [f'<meta property="{name}" content="{escape(value)}">' for name, value in tags.items()]
    context["metatags"] = context.get("metatags", "") + "\n".join(lines)


def _first_picture(app, doctree) -> str:
    images = doctree.findall(nodes.image) if doctree else ()
    files = (app.builder.images.get(image["uri"]) for image in images)
    # No other site previews an SVG.
    shown = (file for file in files if file and not file.endswith(".svg"))
    return next((f"_images/{file}" for file in shown), "_static/explore_collapse.png")


def setup(app):
    app.connect("html-collect-pages", site_figures.pages)
    app.connect("html-page-context", add_preview)
    app.connect("build-finished", site_figures.write_pictures)
    app.add_html_math_renderer("mathml", (math, None), (math_block, None))
    app.connect("source-read", complete)
    app.connect("autodoc-process-docstring", docstrings.convert)
