"""An SVG of matplotlib in half of its characters or fewer, so that a page can hold many.

Every style is said once, places have one digit, a line goes by steps and without the points that no
eye misses, neighbours that look the same are one, and nothing is named that nobody refers to.
"""

import re
from collections.abc import Callable
from html import unescape

import numpy as np

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
DEFINED = re.compile(r'<defs><path id="(\w+)"[^>]*/></defs>')
# Ticks of an axis, the label behind each, and the next tick.
_LABEL = r"<text\b[^>]*>(?:[^<]|</?tspan\b[^>]*>)*</text>"
TICKS = re.compile(
    r'((?:<use xlink:href="#(\w+)"[^>]*/>)+)'
    rf'((?:{_LABEL}|<g transform="[^"]*">{_LABEL}</g>)+)(<use xlink:href="#\2"[^>]*/>)'
)
CLIP = re.compile(r'(<[^>]*) clip-path="url\(#(\w+)\)"([^>]*>)')
BAR = re.compile(r"M ?(\S+) (\S+?) ?L ?(\S+) (\S+) ?")
CIRCLE = re.compile(r"M 0 ([\d.]+) ?(?:C[^A-Za-z]*)+z ?")  # of this radius
PATH = re.compile(r' d="([^"]*)"')
AWAY = 1.0  # tenths of a point that a line may move: a sixth of its width
LONG = 12  # points of a line that is worth it
POINT = re.compile(r"([ML]) ?(-?[\d.]+) (-?[\d.]+) ?([zZ]?) ?")


def shortened(text: str) -> str:
    text = FONT.sub("", METADATA.sub("", text))
    text = TAG.sub(lambda m: NUMBER.sub(_short, m[0]), " ".join(text.split()))
    text = TURNED.sub("", text.replace(" L ", "L").replace("> <", "><"))
    text = _without_bare_groups(_names_that_are_used(text))
    text = _marks_that_say_it_once(_lines_joined(_letters_joined(text)))
    text = _without_unused_marks(_marks_drawn(_ticks_before_labels(text)))
    text = PATH.sub(lambda m: f' d="{in_steps(m[1])}"', text)
    styles = dict.fromkeys(re.findall(r' style="([^"]*)"', text))
    rules = "".join(f".s{k}{{{_rule(style)}}}" for k, style in enumerate(styles))
    kinds = {style: f"s{k}" for k, style in enumerate(styles)}
    text = re.sub(r' style="([^"]*)"', lambda m: f' class="{kinds[m[1]]}"', text)
    clips = dict.fromkeys(name for _, name, _ in CLIP.findall(text))
    rules += "".join(f".{name}{{clip-path:url(#{name})}}" for name in clips)
    text = CLIP.sub(_clipped, text).replace("xlink:href", "href")
    text = text.replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "")
    return text.replace("</style>", f"text{{font-family:{FAMILY}}}{rules}</style>", 1)


def _short(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}".removesuffix(".0")


def _letters_joined(text: str) -> str:
    """Letters of one height and look as one word with a place for each of them."""

    def one(run: list[re.Match[str]]) -> str:
        places, letters = (" ".join(m[1] for m in run), "".join(m[3] for m in run))
        return f'<tspan x="{places}"{run[0][2]}>{letters}</tspan>'

    def look(m: re.Match[str]) -> str | None:
        return m[2] if len(m[1].split()) == len(unescape(m[3])) else None

    return _runs(text, LETTERS, one, look)


def _lines_joined(text: str) -> str:
    """Lines of one look as one path: the error bars of a curve."""

    def one(run: list[re.Match[str]]) -> str:
        return f'<path d="{" ".join(m[1].strip() for m in run)}"{run[0][2]}/>'

    return _runs(text, LINES, one, lambda m: m[2])


def _runs(
    text: str,
    pattern: re.Pattern[str],
    one: Callable[[list[re.Match[str]]], str],
    look: Callable[[re.Match[str]], str | None],
) -> str:
    """The text with each run of neighbours of one look, which is not None, written by `one`."""
    runs: list[list[re.Match[str]]] = []
    for match in pattern.finditer(text):
        before, own = runs[-1][-1] if runs else None, look(match)
        beside = before if before and before.end() == match.start() else None
        if beside and own is not None and look(beside) == own:
            runs[-1].append(match)
        else:
            runs.append([match])
    parts, end = [], 0
    for run in runs:
        parts += [text[end : run[0].start()], one(run)]
        end = run[-1].end()
    return "".join([*parts, text[end:]])


def in_steps(path: str) -> str:
    """A path of straight lines, each point by its step from the one before: "m1 2 .5-1h2v.3"."""
    if POINT.sub("", path).strip():  # it has curves
        return path
    parts, before, begin, said = [], (0, 0), (0, 0), ""
    found = [
        (letter, (round(10 * float(x)), round(10 * float(y))), close)  # in tenths: they add up
        for letter, x, y, close in POINT.findall(path)
    ]
    for letter, place, close in _seen(found):
        step = (_tenths(place[0] - before[0]), _tenths(place[1] - before[1]))
        begin = place if letter == "M" else begin
        asked = "m" if letter == "M" else "v" if step[0] == "0" else "h" if step[1] == "0" else "l"
        numbers = {"v": step[1:], "h": step[:1]}.get(asked, step)
        words = "".join(n if n.startswith("-") else f" {n}" for n in numbers)
        # Lines follow a move and each other without a letter.
        parts.append((words if asked == "l" and said in "ml" else asked + words.lstrip()) + close)
        before, said = (begin, "z") if close else (place, asked)
    return re.sub(r"(?<=\.\d) (?=\.)", "", "".join(parts))  # ".1 .2" is ".1.2"


def _seen(points: list[tuple[str, tuple[int, int], str]]) -> list[tuple[str, tuple[int, int], str]]:
    """The points of long lines without those that lie on the line between their neighbours."""
    begins = [k for k, (letter, _, _) in enumerate(points) if letter == "M"]
    kept: list[tuple[str, tuple[int, int], str]] = []
    for begin, end in zip(begins, [*begins[1:], len(points)], strict=True):
        line = points[begin:end]
        if len(line) >= LONG:
            stays = _corners(np.array([place for _, place, _ in line], float))
            line = [line[k] for k in np.flatnonzero(stays)]
        kept += line
    return kept


def _corners(places_Px2: np.ndarray) -> np.ndarray:
    """(P,): whether a point stays so that no other is further than AWAY from the line (the method
    of Douglas and Peucker)."""
    stays = np.zeros(len(places_Px2), bool)
    stays[[0, -1]] = True
    open_ones = [(0, len(places_Px2) - 1)]
    while open_ones:
        a, b = open_ones.pop()
        if b - a < 2:
            continue
        way, to = places_Px2[b] - places_Px2[a], places_Px2[a + 1 : b] - places_Px2[a]
        along = np.clip(to @ way / max(way @ way, 1e-9), 0, 1)
        gaps = np.linalg.norm(to - along[:, None] * way, axis=1)
        far = int(gaps.argmax())
        if gaps[far] > AWAY:
            middle = a + 1 + far
            stays[middle] = True
            open_ones += [(a, middle), (middle, b)]
    return stays


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
        return f'<path id="{m[1]}" d="{m[2]}" style="{_style(look)}"/>'

    def copy(m: re.Match[str]) -> str:
        return f'<use xlink:href="#{m[1]}" x="{m[2]}" y="{m[3]}"/>' if m[1] in one else m[0]

    return COPY.sub(copy, MARK.sub(mark, text))


def _marks_drawn(text: str) -> str:
    """Caps and dots along a curve as one path: a dot is a line of no length with round ends."""
    known = {name: (path, style) for name, path, style in MARK.findall(text)}

    def one(run: list[re.Match[str]]) -> str:
        path, style = known.get(run[0][1], ("", ""))
        drawn = _drawn(path, _properties(style)) if len(run) > 1 else None
        if drawn is None:
            return "".join(m[0] for m in run)
        (x0, y0, x1, y1), style = drawn
        places = [(float(m[2]), float(m[3])) for m in run]
        lines = (f"M {x + x0:.1f} {y + y0:.1f}L{x + x1:.1f} {y + y1:.1f} " for x, y in places)
        return f'<path d="{"".join(lines)}" style="{style}"/>'

    return _runs(text, COPY, one, lambda m: m[1] if m[1] in known and m[4] is None else None)


def _without_unused_marks(text: str) -> str:
    """A mark of which every copy is drawn needs no definition."""
    used = set(re.findall(r"#(\w+)", text))
    return DEFINED.sub(lambda m: m[0] if m[1] in used else "", text)


def _drawn(path: str, look: dict[str, str]) -> tuple[tuple[float, ...], str] | None:
    """A mark as a line and its style; None if it is no such mark."""
    if any("opacity" in name for name in look):  # where two lie over each other it would show
        return None
    if bar := BAR.fullmatch(path):
        return tuple(map(float, bar.groups())), _style(look)
    circle = CIRCLE.fullmatch(path)
    edge, fill = look.get("stroke", "none"), look.get("fill", "#000000")
    if not circle or edge not in ("none", fill):
        return None
    wide = 2 * float(circle[1]) + (0 if edge == "none" else float(look.get("stroke-width", 1)))
    dot = {"fill": "none", "stroke": fill, "stroke-width": f"{wide:g}", "stroke-linecap": "round"}
    return (0.0, 0.0, 0.0, 0.0), _style(dot)


def _ticks_before_labels(text: str) -> str:
    """All ticks of an axis, then its labels: neighbours can be drawn as one path."""
    before = ""
    while text != before:
        before, text = text, TICKS.sub(r"\1\4\3", text)
    return text


def _clipped(tag: re.Match[str]) -> str:
    """What is cut off at a frame says so by a class, named as the frame is."""
    words = tag[1] + tag[3]
    if ' class="' in words:
        return words.replace(' class="', f' class="{tag[2]} ', 1)
    return f'{tag[1]} class="{tag[2]}"{tag[3]}'


def _rule(style: str) -> str:
    """Declarations without a sign too many: "stroke:#000;fill:none"."""
    look = re.sub(r"#(\w)\1(\w)\2(\w)\3\b", r"#\1\2\3", style)
    return look.replace(": ", ":").replace("; ", ";").removesuffix(";")


def _style(look: dict[str, str]) -> str:
    return "; ".join(f"{name}: {value}" for name, value in look.items())


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
