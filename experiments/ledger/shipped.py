"""The verdicts that come with an installation, which has no records to judge.

`jaxformer report --write` makes verdicts.json from the records of a clone. A wheel contains it, so
that `jaxformer report --only="Figure 1f"` says in an empty folder what the pages say.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.ledger.ledger import Row
from jaxformer.core.errors import UserError

FILE = Path(__file__).parents[1] / "verdicts.json"
# {paper: {name of a row: its lines without records and commands}}
Lines = Mapping[str, Mapping[str, Sequence[str]]]


def as_text(lines: Lines) -> str:
    """The text of the file: a line for each line, so that a diff shows what changed."""
    return json.dumps(lines, indent=1, ensure_ascii=False) + "\n"


def read(file: Path = FILE) -> Lines:
    """The lines of all rows; raises UserError if the installation is damaged."""
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read; install jaxformer again: {error}") from None


def of_row(row: Row, lines: Lines) -> Sequence[str]:
    """The lines of a row; () for a row that the file does not have."""
    return lines.get(row.paper.key, {}).get(row.item.name, ())
