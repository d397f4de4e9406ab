"""Numbers, sizes and durations as text for people."""

import math

MAX_DECIMALS = 6  # an error that needs more decimals is written with an exponent


def byte_size(n: int | None) -> str:
    """Returns a number of bytes as "1.2 GiB", "3.4 MiB", "5.6 KiB" or "10 bytes"."""
    if n is None:
        return "an unknown amount"
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if n >= unit:
            return f"{n / unit:,.1f} {name}"
    return f"{n} bytes"


def duration(seconds: float) -> str:
    """Returns seconds as "3 s", "2 min 5 s" or "1 h 20 min"."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


def counted(n: int, noun: str) -> str:
    """Returns "1 run" or "2 runs" for the noun "run"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def number(value: float | None) -> str:
    """Returns a number with four significant digits, and "-" for None."""
    return "-" if value is None else f"{value:.4g}"


def with_error(mean: float | None, error: float | None) -> str:
    """Returns a mean and its error as "0.933 ± 0.047".

    The error has two significant digits, and the mean as many decimals. An error that is None or
    not finite is left out.
    """
    if mean is None or error is None or not math.isfinite(error):
        return number(mean)
    # An error of 0 has no significant digits: -1 selects the other format.
    decimals = 1 - math.floor(math.log10(error)) if error > 0 else -1
    if not 0 <= decimals <= MAX_DECIMALS:
        return f"{mean:.4g} ± {error:.2g}"
    return f"{mean:.{decimals}f} ± {error:.{decimals}f}"
