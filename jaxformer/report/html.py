"""Pieces of HTML pages: the document, tables and choices. Arguments are HTML unless noted."""

import base64
import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape


def document(title: str, body: str, style: str, scripts: Sequence[str] = ()) -> str:
    """A page in one file, which loads nothing from elsewhere.

    Its content security policy allows the given scripts by their hashes and no address at all, so
    that the page also works offline and a name with markup could not run code. A page without
    scripts may style single elements (`style="..."`), which a page with scripts may not.

    Args:
      title: plain text
      body: the content of the body
      style: the style sheet
      scripts: JavaScript texts, which run at the end of the body in this order
    """
    styles = f"'sha256-{_sha256(style)}'" if scripts else "'unsafe-inline'"
    policy = f"default-src 'none'; img-src data:; style-src {styles}; "
    if scripts:
        allowed = " ".join(f"'sha256-{_sha256(text)}'" for text in scripts)
        policy += f"script-src {allowed}; "
    policy += "base-uri 'none'; form-action 'none'"
    ending = "".join(f"<script>{text}</script>\n" for text in scripts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(title)}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>{style}</style>\n</head>\n<body>\n{body}\n{ending}</body>\n</html>\n"
    )


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Collection[str] = (),
    kind: str = "",
) -> str:
    """A table whose first column names the rows.

    Args:
      heads: the headings of the columns
      rows: the cells, as many as there are headings
      right: the headings of columns with numbers, which are right-aligned
      kind: a class of the style sheet. With "cards" each row is a card on a narrow screen, whose
        labels come from `data-label`; with "cards cells" the style sheet has the labels.
    """
    has_css_labels = "cells" in kind
    sides = [' class="n"' if name in right and not has_css_labels else "" for name in heads]
    has_labels = "cards" in kind and not has_css_labels
    marks = [
        f'{side} data-label="{name}"' if has_labels else side
        for side, name in zip(sides, heads, strict=True)
    ]
    head = "".join(
        f'<th scope="col"{side}>{name}</th>' for side, name in zip(sides, heads, strict=True)
    )
    body = "".join(
        f'<tr><th scope="row">{first}</th>'
        + "".join(f"<td{mark}>{cell}</td>" for mark, cell in zip(marks[1:], cells, strict=True))
        + "</tr>"
        for first, *cells in rows
    )
    name = f' class="{kind}"' if kind else ""
    return f"<table{name}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def folded(head: str, body: str) -> str:
    """A collapsed block."""
    return f"<details><summary>{head}</summary>{body}</details>"


def views(name: str, contents: Mapping[str, str]) -> str:
    """A choice between contents, made with radio buttons and without scripts; the first is shown.

    The style sheet of the page hides `.view`.

    Args:
      name: the name of the choice, unique in the page.
      contents: {label: HTML}.
    """
    if len(contents) == 1:
        return next(iter(contents.values()))
    buttons, bodies, rules = [], [], []
    for i, (label, content) in enumerate(contents.items()):
        key = f"{name}-{i}"
        checked = " checked" if i == 0 else ""
        buttons.append(
            f'<input type="radio" name="{name}" id="{key}"{checked}>'
            f'<label for="{key}">{escape(label)}</label>'
        )
        bodies.append(f'<div class="view {key}">{content}</div>')
        rules.append(f"#{key}:checked ~ .{key}")
    style = f"<style>{', '.join(rules)} {{ display: block; }}</style>"
    return f'{style}<div class="views">{"".join(buttons)}{"".join(bodies)}</div>'


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
