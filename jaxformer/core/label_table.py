"""The table of parameters and labels that a run prints before it trains."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jaxformer.core import alternatives, paths
from jaxformer.core.partition import Partition

NUMBER = re.compile(r"\d+")
HEADS = ("parameter", "shape", "size", "label")


def label_table(partition: Partition, params: Mapping[str, Any]) -> str:
    """Lists the parameters with their labels. Blocks that are alike share a line.

        parameter                    shape        size  label
        block_0..11/attn/key/kernel  768 x 768  589,824  frozen

    The size is that of one block. A last line counts the parameters of each label, and a warning
    names an alternative of a pattern that matches nothing, such as `gate` in ".*/(gate|in)/.*".

    Args:
        partition: the rules.
        params: a tree of arrays or of shapes.
    """
    flat, labels = paths.flatten(params), paths.flatten(partition.labels(params))
    groups: dict[tuple[str, str, str, str], list[int]] = {}  # line -> numbers of its blocks
    for path in sorted(flat, key=paths.by_number):
        shape = tuple(flat[path].shape)
        found = NUMBER.search(path)
        name = NUMBER.sub("{}", path, count=1) if found else path
        line = (name, " x ".join(map(str, shape)), f"{math.prod(shape):,}", labels[path])
        groups.setdefault(line, []).extend([int(found[0])] if found else [])
    rows = [HEADS, *((name.replace("{}", _spans(n)), *rest) for (name, *rest), n in groups.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        f"{name:<{widths[0]}}  {shape:<{widths[1]}}  {size:>{widths[2]}}  {label}"
        for name, shape, size, label in rows
    ]
    counts = ", ".join(f"{n:,} {label}" for label, n in sorted(partition.count(params).items()))
    lines.append(f"parameters: {counts}")
    for pattern, _ in partition.rules:
        lines += [
            f"warning: {word!r} in the pattern {pattern!r} matches no parameter"
            for word, *_ in alternatives.idle(pattern, flat)
        ]
    return "\n".join(lines)


def _spans(numbers: Sequence[int]) -> str:
    """Shortens 0, 1, 2, 5 to "0..2,5"."""
    spans: list[list[int]] = []
    for n in numbers:
        if spans and n == spans[-1][-1] + 1:
            spans[-1][1:] = [n]
        else:
            spans.append([n])
    return ",".join("..".join(map(str, span)) for span in spans)
