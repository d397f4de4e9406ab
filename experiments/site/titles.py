"""What a chart shows, in a sentence computed from its numbers; the list of them is in its alt text.

Two numbers are told apart only where their ranges or error bars do not meet.
"""

from collections.abc import Sequence

from experiments.site.svg import Series

LEAST = 0.01  # a change by less than this part of the largest value is none


def at_the_end(metric: str, series: Sequence[Series]) -> str:
    """Where curves end: which are highest, which lowest, by their ranges over seeds."""
    series = sorted((s for s in series if s.y), key=lambda s: -s.y[-1])
    if not series:
        return ""
    first, last = series[0], series[-1]
    if len(series) == 1:
        return f"The {metric} of {first.label} ends at {first.y[-1]:.3f}."
    high = [s for s in series if s.high[-1] >= first.low[-1]]
    low = [s for s in series if s.low[-1] <= last.high[-1]]
    if first in low or last in high:
        return f"At the end the seeds of {_listed(series)} meet in {metric}, {_range(series)}."
    return (
        f"At the end the {metric} is highest for {_listed(high)} ({_range(high)}) and lowest for "
        f"{_listed(low)} ({_range(low)})."
    )


def along(metric: str, way: str, labels: Sequence[str], series: Sequence[Series]) -> str:
    """From the first place of an axis to the last: "Accuracy from 0 to 4 carries: a stays at 1"."""
    most = max(abs(v) for s in series for v in s.y)
    stay = [s for s in series if not _change(s, 0, -1, most)]
    told = []
    if stay:
        word = "stays" if len(stay) == 1 else "stay"
        ends = [s.y[i] for s in stay for i in (0, -1)]
        told.append(f"{_listed(stay)} {word} at {_between(ends, '.3g')}")
    for s in series:
        if s not in stay:
            word = "rises" if s.y[-1] > s.y[0] else "falls"
            told.append(f"{s.label} {word} from {s.y[0]:.3g} to {s.y[-1]:.3g}")
    for s in series:
        for word, at in (("lowest", s.y.index(min(s.y))), ("highest", s.y.index(max(s.y)))):
            if all(_change(s, at, end, most) for end in (0, -1)):
                place = labels[int(s.x[at])]
                told.append(f"{s.label} is {word} in between, {s.y[at]:.3g} at {place}")
    first, last = labels[0], labels[-1]  # of "carries", which are counted, or of "length", "N ="
    head = f"{first} to {last} {way}" if way.endswith("s") else f"{way} {first} to {last}"
    return f"{metric[:1].upper()}{metric[1:]} from {head}: {'; '.join(told)}."


def _change(s: Series, one: int, other: int, most: float) -> bool:
    """Whether two points of a line differ by more than two errors of their difference."""
    errors = [(s.high[i] - s.low[i]) / 2 for i in (one, other)]
    gap = abs(s.y[one] - s.y[other])
    return gap > max(2 * sum(e**2 for e in errors) ** 0.5, LEAST * most)


def _listed(series: Sequence[Series]) -> str:
    *names, last = [s.label for s in series]
    return f"{', '.join(names)} and {last}" if names else last


def _range(series: Sequence[Series]) -> str:
    return _between([s.y[-1] for s in series], ".3f")


def _between(values: Sequence[float], digits: str) -> str:
    ends = dict.fromkeys(f"{v:{digits}}" for v in (min(values), max(values)))
    return " to ".join(ends)
