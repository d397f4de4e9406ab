"""Numbers, sizes and durations as text."""

import math

from jaxformer.core.text_format import byte_size, duration, with_error


def test_the_error_decides_how_many_decimals_are_shown():
    cases = {
        (0.93271, 0.0474): "0.933 ± 0.047",
        (0.99984, 0.00086): "0.99984 ± 0.00086",
        (1.0, 0.0021): "1.0000 ± 0.0021",
        (0.6, 0.27): "0.60 ± 0.27",
        (22.134, 3.4): "22.1 ± 3.4",
        (1.0, 0.0): "1 ± 0",  # a zero error adds no digits
        (4567.8, 123.0): "4568 ± 1.2e+02",
        (1.0, 1e-9): "1 ± 1e-09",
        (0.35851, None): "0.3585",
        (0.5, math.nan): "0.5",
        (None, None): "-",
    }
    assert {case: with_error(*case) for case in cases} == cases


def test_sizes_have_a_binary_unit():
    sizes = {
        None: "an unknown amount",
        10: "10 bytes",
        2**10: "1.0 KiB",
        2**20: "1.0 MiB",
        3 * 2**40: "3,072.0 GiB",
    }
    assert {n: byte_size(n) for n in sizes} == sizes


def test_durations_have_at_most_two_units():
    durations = {3.4: "3 s", 125: "2 min 5 s", 4800: "1 h 20 min"}
    assert {seconds: duration(seconds) for seconds in durations} == durations
