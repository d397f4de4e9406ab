"""Numbers of a ledger row for the sentences and charts of the findings."""

from experiments.ledger.ledger import Row
from experiments.ledger.record_numbers import record_number
from experiments.ledger.statistics import Number


def number(row: Row, cell: str, metric: str) -> Number:
    """Returns a metric of a cell with its error; raises KeyError if it was not measured."""
    record = row.records[cell]
    value = record.metrics[metric]
    if value["mean"] is None:
        raise KeyError(metric)
    return record_number(value, record.members, metric)


def baseline(row: Row, cell: str, name: str) -> float:
    """Returns a baseline of a cell: a trivial predictor's score or a theory's number."""
    value = row.records[cell].baselines[name]
    if value is None:
        raise KeyError(name)
    return value


def patient(variant: str) -> str:
    """Returns the cell in which a variant has four times the steps of its config."""
    return f"{variant}, steps x 4"


def longest(row: Row, variant: str) -> str:
    """Returns the cell of a variant that was trained longest."""
    return patient(variant) if patient(variant) in row.records else variant
