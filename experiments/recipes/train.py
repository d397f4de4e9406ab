"""Trains a population (learning rates x seeds), chooses the rate on validation, reports the test.

build -> train -> evaluate -> record
"""

from collections.abc import Callable

from experiments.shared import describe, plots
from jaxformer import build
from jaxformer.processes import barrier, is_writer
from jaxformer.records import Workdir
from jaxformer.training import cost, curves
from jaxformer.training.result import Result
from jaxformer.training.run import Trained, train_phases

Finish = Callable[[Workdir, Result], Result]


def run(config, workdir: Workdir, finish: Finish | None = None) -> int:
    """`finish` adds to the result, when the last checkpoint is whole and before it is written."""
    phases = build.phases(config)
    trained = train_phases(phases, build.settings(config), workdir, announce=describe.announce)
    if code := trained.ended():
        return code
    result = trained.result()
    draw_curves(workdir, config.name, trained, result)
    if finish is not None:
        result = finish(workdir, result)
    write(workdir, result)
    return 0


def draw_curves(workdir: Workdir, name: str, trained: Trained, result: Result) -> None:
    chosen = {name: [member["chosen"] for member in result.members]}
    if is_writer():
        figure = curves.curves({name: trained.session.workdir.rows()}, result.baselines, chosen)
        plots.save(figure, workdir / "curves.png")


def write(workdir: Workdir, result: Result) -> None:
    """The last file of a run: with it, it is finished."""
    workdir.write("result.json", result.as_json())
    barrier()  # nobody reads the record before it is whole
    report(workdir)


report = describe.print_result


def dry_run(config) -> None:
    """Prints what a run would train, compute, hold and take."""
    setup = build.phases(config)[0].setup
    describe.announce(setup)
    cost.print_cost(setup, config.train.steps)
