"""A choice between several contents of the page, made with radio buttons and without scripts."""

from collections.abc import Mapping
from html import escape


def views(name: str, contents: Mapping[str, str]) -> str:
    """Returns buttons and their contents; the first is shown.

    Args:
      name: the name of the choice, unique in the page.
      contents: {label: HTML}.
    """
    if len(contents) == 1:
        return next(iter(contents.values()))
    buttons, bodies, rules = [], [], []
    for i, (label, html) in enumerate(contents.items()):
        key = f"{name}-{i}"
        checked = " checked" if i == 0 else ""
        buttons.append(
            f'<input type="radio" name="{name}" id="{key}"{checked}>'
            f'<label for="{key}">{escape(label)}</label>'
        )
        bodies.append(f'<div class="view {key}">{html}</div>')
        rules.append(f"#{key}:checked ~ .{key}")
    style = f"<style>{', '.join(rules)} {{ display: block; }}</style>"
    return f'{style}<div class="views">{"".join(buttons)}{"".join(bodies)}</div>'
