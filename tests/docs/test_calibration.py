"""The sentences about calibration in docs/verdicts.md follow from both sets of records."""

import importlib.util

import numpy as np
import pytest

from tests.docs.blocks import ROOT

TEXT = " ".join((ROOT / "docs/verdicts.md").read_text().split())


@pytest.fixture(scope="module")
def found():
    spec = importlib.util.spec_from_file_location("calibration", ROOT / "docs/calibration.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.measured()


def test_the_page_says_how_far_fresh_distances_are_from_first_ones(found):
    low, median, high = np.quantile(found.after / found.before, (0.25, 0.5, 0.75))
    quartiles = f"{low:.2f} and {high:.2f}".replace("0.", ".", 1)
    said = (
        f"ratio of {len(found.before)} decided rules is {median:.2f}, its quartiles are {quartiles}"
    )
    assert said in TEXT


def test_the_page_says_how_large_differences_are_in_units_of_their_errors(found):
    size = np.abs(found.z)
    median = f"{np.median(size):.2f}".removeprefix("0")
    assert f"The differences of {len(size)} numbers" in TEXT
    assert f"the median of |z| is {median}, as for a normal" in TEXT
    assert f"{100 * (size > 2).mean():.0f} % lie above 2" in TEXT
