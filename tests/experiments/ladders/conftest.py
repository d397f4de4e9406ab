"""One plan for all tests of ladders."""

import pytest

from experiments.ladders import plan
from tests.experiments.ladders.small import LADDER


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A plan of one ladder and its file."""
    made = plan.make("test-1", [LADDER])
    file = tmp_path_factory.mktemp("ladders") / "PLAN.json"
    plan.write(made, file)
    return made, file
