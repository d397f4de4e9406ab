"""Gathers what a study found: the comparisons, the look inside, the moments of its training."""

import dataclasses
import math
from collections.abc import Callable, Sequence

from jaxformer.core.errors import UserError
from jaxformer.studies.anatomy import examination, parts, specimens
from jaxformer.studies.anatomy.during import Snapshot
from jaxformer.studies.anatomy.during import during as during_training
from jaxformer.studies.anatomy.report import Report
from jaxformer.studies.anatomy.study import Study

SNAPSHOTS = 40  # of a training, from which --during takes some


def report_of(study: Study, theory_lines: Sequence[str] = ()) -> Report:
    """Returns the report of the members that were trained so far."""
    table, subject = study.table(), study.subject
    curves = {}
    for variant in (parts.WHOLE_NETWORK, *study.variants):
        member = study.store.get(variant, 0, study.rate(variant))
        if member is not None:
            curves[variant.name] = member.curve
    members = study.store.members.values()
    return Report(
        subject.name,
        table,
        curves,
        theory=theory_lines,
        costs={
            "trainings": len(members),
            "seconds": math.fsum(member.seconds for member in members),
        },
        settings={
            "layers": getattr(subject.network.model.spec, "layers", 1),
            "metric": study.metric,
            "steps": subject.network.steps,
            "rates": subject.rates,
            "parameters": subject.parameters(),
            "baselines": study.baselines,
        },
    )


def with_look_inside(report: Report, study: Study, write_line: Callable[[str], None]) -> Report:
    """Adds the effects of the network's components, if they are measurable."""
    try:
        return examination.with_inside(report, specimens.of_study(study), write_line)
    except UserError as error:
        write_line(f"note: the trained network was not examined: {error}")
        return report


def with_moments(report: Report, study: Study, n: int, write_line: Callable[[str], None]) -> Report:
    """Adds the parts of the whole network at n steps of its training, which runs once more."""
    try:
        pairs = specimens.of_study(study).pairs
        snapshots = (Snapshot(*values) for values in study.snapshots(SNAPSHOTS))
        moments = during_training(snapshots, study.subject.network.model, pairs, n)
    except UserError as error:
        write_line(f"note: the network in training was not examined: {error}")
        return report
    return dataclasses.replace(report, during=moments)
