"""The confirmations that the result pages show: VERDICTS.json and the rows not yet run."""

from collections.abc import Sequence
from pathlib import Path

from experiments.confirmation import judgement, plan
from experiments.ledger.confirmed import NOT_YET_RUN, ORDER, Confirmed
from experiments.ledger.ledger import Row
from jaxformer.core.errors import UserError


def read(folder: Path) -> dict[tuple[str, str], Confirmed]:
    """Returns the confirmation of each planned row by (paper, item), reversed ones first.

    Raises UserError if the plan or the verdicts were edited, or belong to different plans.

    Args:
      folder: the folder of PLAN.json and VERDICTS.json. Without a plan the result is empty, and
        without verdicts all rows are not yet run.
    """
    if not (folder / "PLAN.json").exists():
        return {}
    planned, verdicts = plan.read(folder / "PLAN.json"), folder / "VERDICTS.json"
    plan_hash, judged = judgement.read(verdicts)
    if judged and plan_hash != planned.hash:
        raise UserError(
            f"{verdicts} belongs to another plan; `jaxformer confirm judge` writes it again."
        )
    waiting = [
        Confirmed(
            row.paper,
            row.item,
            outcome=NOT_YET_RUN,
            exploratory=row.verdict,
            verdict="",
            seeds=row.seeds,
            primary="",
            primary_verdict="",
            primary_q=None,
            rules={},
        )
        for row in planned.rows
    ]
    rows = {(row.paper, row.item): row for row in (*waiting, *judged)}
    return dict(sorted(rows.items(), key=lambda pair: ORDER.index(pair[1].outcome)))


def with_confirmations(rows: Sequence[Row], folder: Path) -> list[Row]:
    """Returns the rows with their confirmations of a folder (see `read`)."""
    confirmations = read(folder)
    return [
        row._replace(confirmed=confirmations.get((row.paper.key, row.item.name))) for row in rows
    ]
