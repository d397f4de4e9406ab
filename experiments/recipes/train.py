"""Trains a population: every learning rate with every seed.

The learning rate is chosen by validation scores, and the scores on the test set are reported.

build -> train -> evaluate -> record
"""

from collections.abc import Callable

from experiments.cli import describe
from experiments.recipes import finish_run
from jaxformer import build
from jaxformer.io.run_folder import Workdir
from jaxformer.planning import prediction
from jaxformer.training.cost import memory
from jaxformer.training.phases import Phase
from jaxformer.training.result import Result
from jaxformer.training.run import Trained, train_phases

Finish = Callable[[Trained, Result], Result]


def run(config, workdir: Workdir, finish: Finish | None = None) -> int:
    """Trains the population of a config.

    Args:
        workdir: the folder of the run.
        finish: a function that extends the result before it is written.

    Returns:
        The exit code.
    """
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
    """Returns the name of the run in legends: its variant, or the name of its config."""
    return str(dict(config.arguments).get("variant", config.name))


def dry_run(
    config, measured: bool = False, phases_of: Callable[..., list[Phase]] = build.phases
) -> None:
    """Prints the parameters, FLOPs, memory and time of a run.

    Args:
        measured: whether time and memory are measured over a few steps.
        phases_of: a function that builds the phases of training.
    """
    phases = phases_of(config)
    setup = phases[0].setup
    describe.announce(setup)
    print(memory.check_memory(phases))
    prediction.print_prediction(phases, build.settings(config), measured)
