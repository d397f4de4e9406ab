"""Made-up records and their rows."""

import pytest

from experiments.ledger import read
from experiments.ledger.ledger import ledger
from tests.experiments import made_up


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Returns a results folder of made-up records."""
    folder = tmp_path_factory.mktemp("made_up") / "results"
    folder.mkdir()
    for name, record in made_up.RECORDS.items():
        made_up.write(folder, name, record)
    (folder / "figure.png").write_bytes(made_up.png())
    (folder / "figure.csv").write_text("array,indices,value\nks,0,0.03\n")
    return folder


@pytest.fixture(scope="module")
def rows(results):
    return ledger({"made_up": made_up.PAPER}, read.load(results)[0])
