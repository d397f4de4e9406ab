"""Trains a population (learning rates x seeds), chooses the rate on validation, reports the test.

build -> train -> evaluate -> record
"""

from collections.abc import Callable

from experiments.cli import describe
from experiments.recipes import finish_run
from jaxformer import build
from jaxformer.io.run_folder import Workdir
from jaxformer.training import cost
from jaxformer.training.result import Result
from jaxformer.training.run import Trained, train_phases
from jaxformer.training.setup import Phase

Finish = Callable[[Trained, Result], Result]


def run(config, workdir: Workdir, finish: Finish | None = None) -> int:
    """`finish` adds to the result before it is written."""
    phases = build.phases(config)
    trained = train_phases(phases, build.settings(config), workdir, announce=describe.announce)
    if code := trained.exit_code():
        return code
    result = trained.result()
    finish_run.draw_curves(workdir, label(config), result)
    if finish is not None:
        result = finish(trained, result)
    finish_run.write(workdir, result)
    return 0


def label(config) -> str:
    """What a legend calls the run: its variant, or its config where there is none."""
    return str(dict(config.arguments).get("variant", config.name))


def dry_run(
    config, measured: bool = False, phases_of: Callable[..., list[Phase]] = build.phases
) -> None:
    """Prints what a run would train, compute, hold and take; `measured` by a few of its steps."""
    phases = phases_of(config)
    setup = phases[0].setup
    describe.announce(setup)
    print(cost.check_memory(phases))
    cost.print_plan(phases, build.settings(config), measured)
