"""An SVG of matplotlib in half of its characters or fewer, so that a page can hold many.

Every style is said once, places have one digit, a line goes by steps, neighbours that look the same
are one, and nothing is named that nobody refers to.
"""

import re
from html import unescape

TAG = re.compile(r"<[^>]*>")
NUMBER = re.compile(r"-?\d+\.\d{2,}(?:e-?\d+)?")
# What matplotlib says of itself, and the definitions of glyphs and marks that nobody names.
METADATA = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->|<\?xml.*?\?>|<!DOCTYPE.*?>", re.DOTALL)
FONT = re.compile(r"font-family: [^;\"]*;? ?")
FAMILY = "DejaVu Sans,Verdana,sans-serif"  # the second is as wide as the first
TURNED = re.compile(r' transform="rotate\(-?0 [^"]*"')
# The letters of a formula, and lines that enclose nothing.
LETTERS = re.compile(r'<tspan x="([^"]*)"([^>]*)>([^<]+)</tspan>')
LINES = re.compile(r'<path d="([^"]*)"((?:(?!opacity)[^>])*fill: none(?:(?!opacity)[^>])*)/>')
# A mark, and its copies along a curve: the caps of bars, dots.
MARK = re.compile(r'<path id="(\w+)" d="([^"]*)"(?: style="([^"]*)")?/>')
COPY = re.compile(r'<use xlink:href="#(\w+)" x="([^"]*)" y="([^"]*)"(?: style="([^"]*)")?/>')
PATH = re.compile(r' d="([^"]*)"')
POINT = re.compile(r"([ML]) ?(-?[\d.]+) (-?[\d.]+) ?(z?) ?")


def shortened(text: str) -> str:
    text = FONT.sub("", METADATA.sub("", text))
    text = TAG.sub(lambda m: NUMBER.sub(_short, m[0]), " ".join(text.split()))
    text = TURNED.sub("", text.replace(" L ", "L").replace("> <", "><"))
    text = _without_bare_groups(_names_that_are_used(text))
    text = _marks_that_say_it_once(_lines_joined(_letters_joined(text)))
    text = PATH.sub(lambda m: f' d="{_in_steps(m[1])}"', text)
    styles = dict.fromkeys(re.findall(r' style="([^"]*)"', text))
    rules = "".join(f".s{k}{{{style.replace(': ', ':')}}}" for k, style in enumerate(styles))
    kinds = {style: f"s{k}" for k, style in enumerate(styles)}
    text = re.sub(r' style="([^"]*)"', lambda m: f' class="{kinds[m[1]]}"', text)
    text = text.replace("xlink:href", "href")
    return text.replace("</style>", f"text{{font-family:{FAMILY}}}{rules}</style>", 1)


def _short(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}".removesuffix(".0")


def _letters_joined(text: str) -> str:
    """Letters of one height and look as one word with a place for each of them."""

    def one(run: list[re.Match[str]]) -> str:
        places, letters = (" ".join(m[1] for m in run), "".join(m[3] for m in run))
        return f'<tspan x="{places}"{run[0][2]}>{letters}</tspan>'

    return _runs(text, LETTERS, one, lambda m: len(m[1].split()) == len(unescape(m[3])))


def _lines_joined(text: str) -> str:
    """Lines of one look as one path: the error bars of a curve."""

    def one(run: list[re.Match[str]]) -> str:
        return f'<path d="{" ".join(m[1].strip() for m in run)}"{run[0][2]}/>'

    return _runs(text, LINES, one, lambda m: True)


def _runs(text: str, pattern: re.Pattern[str], one, fits) -> str:
    """The text with each run of neighbours, alike in their second group, written by `one`."""
    runs: list[list[re.Match[str]]] = []
    for match in pattern.finditer(text):
        before = runs[-1][-1] if runs else None
        alike = before and before.end() == match.start() and before[2] == match[2]
        if alike and fits(before) and fits(match):
            runs[-1].append(match)
        else:
            runs.append([match])
    parts, end = [], 0
    for run in runs:
        parts += [text[end : run[0].start()], one(run)]
        end = run[-1].end()
    return "".join([*parts, text[end:]])


def _in_steps(path: str) -> str:
    """A path of straight lines, each point by its step from the one before: "M1 2l.5-1 2 .3"."""
    if POINT.sub("", path).strip():  # it has curves
        return path
    parts, before, open_line = [], (0, 0), False
    for letter, x, y, close in POINT.findall(path):
        place = (round(10 * float(x)), round(10 * float(y)))  # in tenths, which add up exactly
        moves = letter == "M"
        step = place if moves else (place[0] - before[0], place[1] - before[1])
        numbers = "".join(n if n.startswith("-") else f" {n}" for n in map(_tenths, step))
        start = "M" if moves else "" if open_line else "l"
        parts.append(start + (numbers.lstrip() if start else numbers) + close)
        before, open_line = place, not moves and not close
    return re.sub(r"(?<=\.\d) (?=\.)", "", "".join(parts))  # ".1 .2" is ".1.2"


def _tenths(value: int) -> str:
    text = f"{abs(value) / 10:g}"
    text = text.removeprefix("0") or "0"
    return f"-{text}" if value < 0 else text


def _names_that_are_used(text: str) -> str:
    used = dict.fromkeys(re.findall(r"[\"(]#(\w+)", text))
    names = {name: f"i{k}" for k, name in enumerate(used)}
    text = re.sub(r' id="([^"]+)"', lambda m: f' id="{names.get(m[1])}"' * (m[1] in names), text)
    return re.sub(r"#(\w+)(?=[\")])", lambda m: f"#{names.get(m[1], m[1])}", text)


def _marks_that_say_it_once(text: str) -> str:
    """A mark whose copies all look the same says how; copies look as it does."""
    looks: dict[str, set[str]] = {}
    for name, _, _, look in COPY.findall(text):
        looks.setdefault(name, set()).add(look)
    one = {name: of.pop() for name, of in looks.items() if len(of) == 1}

    def mark(m: re.Match[str]) -> str:
        if m[1] not in one:
            return m[0]
        look = _properties(one[m[1]]) | _properties(m[3] or "")  # its own come first
        style = "; ".join(f"{name}: {value}" for name, value in look.items())
        return f'<path id="{m[1]}" d="{m[2]}" style="{style}"/>'

    def copy(m: re.Match[str]) -> str:
        return f'<use xlink:href="#{m[1]}" x="{m[2]}" y="{m[3]}"/>' if m[1] in one else m[0]

    return COPY.sub(copy, MARK.sub(mark, text))


def _properties(style: str) -> dict[str, str]:
    pairs = (part.partition(":") for part in style.split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}


def _without_bare_groups(text: str) -> str:
    """The same without groups that say nothing."""
    parts, is_bare = [], []
    for part in re.split(r"(</?g\b[^>]*>)", re.sub(r"<g\b[^>]*/>", "", text)):
        if part.startswith("<g"):
            is_bare.append(part == "<g>")
            parts += [] if is_bare[-1] else [part]
        elif part != "</g>" or not is_bare.pop():
            parts.append(part)
    return "".join(parts)
