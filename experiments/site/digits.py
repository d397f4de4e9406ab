"""Numbers with three digits, for texts whose reader wants the size of an effect.

The rules of a row print all digits beside them.
"""

import math
import re

NUMBER = r"(-?\d[\d.]*(?:e[+-]?\d+)?)"
WITH_ERROR = re.compile(rf"(?<![\w.]){NUMBER}(?: ± {NUMBER})?")
COMPARED = re.compile(rf"{WITH_ERROR.pattern} against {WITH_ERROR.pattern}$")
STRICT = re.compile("required (above|below)")
DIGITS = 3


def three_digits(text: str) -> str:
    """The text with its numbers rounded: "0.999978 ± 0.000052" becomes "1.000 ± <0.001".

    Two numbers of which one has to be above the other keep all digits if they would become equal,
    because "0.123 against 0.123, required above" tells nobody who is ahead.
    """
    short = WITH_ERROR.sub(_rounded, text)
    compared = [*WITH_ERROR.finditer(text)][:2]
    means = {found[1] for found in compared}
    is_tie = len({_rounded(found).split()[0] for found in compared}) < len(means)
    return text if is_tie and STRICT.search(text) else short


def _rounded(found: re.Match) -> str:
    value, error = float(found[1]), found[2]
    if not value or not math.isfinite(value):
        return found[0]
    # A share of 1 has as many decimals as one of .999.
    decimals = max(DIGITS - 1 - math.floor(math.log10(abs(value)) - 1e-9), 0)
    if error is None:  # a constant keeps the digits that it was written with
        is_short = len(found[1].lstrip("-0.").replace(".", "")) <= DIGITS
        return found[1] if is_short or decimals > 6 else f"{value:.{decimals}f}"
    if decimals > 6:
        return found[0]
    if float(error) > 0:  # no more digits than the error leaves
        decimals = min(decimals, max(1 - math.floor(math.log10(float(error))), 0))
    shown = f"{float(error):.{decimals}f}"
    if not float(shown) and float(error):
        shown = f"<{10**-decimals:.{decimals}f}"
    return f"{value:.{decimals}f} ± {shown}"
