"""Reader of the demo's sentences, which replace the findings at the top of its page.

FILE.json: [{"paper": key, "item": name, "sentence": text, "made": text, "runs": [folder, ..]}, ..]
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from experiments.ledger import tables, validate_record
from experiments.ledger.item import Paper
from experiments.ledger.ledger import Row
from experiments.ledger.record import Record
from experiments.site.opening import Opening, paper_id
from jaxformer.core.errors import UserError

FIELDS = {"paper": str, "item": str, "sentence": str, "made": str, "runs": list}


def read(
    file: Path, papers: Mapping[str, Paper], rows: Sequence[Row], records: Sequence[Record]
) -> list[Opening]:
    """Returns the cards of a file; each links to the section that shows its runs."""
    try:
        held = json.loads(validate_record.text(file))
        return [_opening(one, papers, rows, records) for one in held]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{file} is not a file of demo sentences: {error}.") from None


def _opening(
    held: Any, papers: Mapping[str, Paper], rows: Sequence[Row], records: Sequence[Record]
) -> Opening:
    for name, kind in FIELDS.items():
        if not isinstance(held[name], kind):
            raise ValueError(f"{name!r} should be a {kind.__name__}")
    paper, names = papers[held["paper"]], {str(name) for name in held["runs"]}
    runs = [record for record in records if PurePath(record.where).name in names]
    mine = [row for row in rows if row.paper.key == paper.key and row.item.name == held["item"]]
    judged = [row for row in mine if any(r in runs for r in row.records.values())]
    anchor = tables.name_of(judged[0]) if judged else paper_id(paper)
    verdict = judged[0].verdict if judged else ""
    where = tuple(record.where for record in runs)
    made = "; ".join(filter(None, [held["made"], *map(tables.decided, judged)]))
    return Opening(paper, held["sentence"], made, verdict, held["item"], anchor, where)
