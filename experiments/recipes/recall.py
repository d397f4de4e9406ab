"""Trains a recall model with probes, then truncates its matrices to locate the noise.

The task is noisy in-context recall (arXiv 2406.03068). A probe measures the model on clean and on
noisy data after a training step. The truncations show which matrices store the noise token.

build -> train (first on clean data, if configured) with probes -> truncations -> record

The fields of `config.recall`:
    probe_every     steps between two probes
    early           number of steps at the start that have a probe at every second step: once for
                    clean data, and again for noisy data
    pretrain_steps  steps on clean data (alpha = 0) before the noisy data
    truncate        regular expressions for the paths of the matrices to truncate
    fractions       fractions of the rank that truncated matrices keep
    followed        fractions at which truncated models are measured during training, too
"""

from itertools import pairwise
from pathlib import Path

from experiments.cli import describe
from experiments.papers.associations import recall_figures
from experiments.papers.associations.recall_callback import RecallCallback, without_noise
from experiments.recipes import finish_run, train
from jaxformer import build, surgery
from jaxformer.core.errors import UserError
from jaxformer.io.run_folder import Workdir
from jaxformer.training.cost import memory
from jaxformer.training.phases import Phase
from jaxformer.training.run import train_phases


def run(config, workdir: Workdir) -> int:
    phases = phases_of(config)
    memory.check_memory(phases)  # before the probes draw their held-out sets
    steps = probe_steps(config)
    callback = RecallCallback(phases[-1].setup, config.recall, steps)
    trained = train_phases(
        phases, build.settings(config), workdir, callbacks=[callback], announce=describe.announce
    )
    if code := trained.exit_code():
        return code
    result, arrays = callback.result_and_arrays(trained)
    finish_run.write_arrays(workdir, arrays)
    finish_run.write(workdir, result, redraw)
    return 0


def redraw(workdir: Workdir, name: str = "") -> Path:
    """Draws the figures of training, memories, removed layers and attention; returns the file."""

    def draw(config, arrays):
        figures = {
            "figure": figure(config, arrays),
            "memories": recall_figures.memories(build.task(config), arrays),
        }
        if layers := recall_figures.layers(arrays):
            figures["layers"] = layers
        if arrays["attention/follows"].any():  # all 0 if triggers vary between sequences
            figures["attention"] = recall_figures.attention(config.recall, arrays)
        return figures

    return finish_run.redraw(workdir, name, draw)


def figure(config, arrays, finding: str = "", caveat: str = ""):
    """Draws the figure of training; `recall_figures.training` documents the arguments."""
    return recall_figures.training(config.recall, config.task.alpha, arrays, finding, caveat)


def dry_run(config, measured: bool = False) -> None:
    train.dry_run(config, measured, phases_of)


def phases_of(config) -> list[Phase]:
    """Returns the phases of training, with `pretrain_steps` on clean data first."""
    check(config)
    clean_steps, begin, phases = config.recall.pretrain_steps, 0, []
    for end, setup in build.phases(config):
        if begin < clean_steps:
            data = without_noise(setup.data)
            phases.append(Phase(min(end, clean_steps), setup._replace(task=data.task, data=data)))
        if end > clean_steps:
            phases.append(Phase(end, setup))
        begin = end
    for pattern in config.recall.truncate:  # raises UserError if a pattern fits no matrix
        surgery.matrices(phases[-1].setup.shapes(), pattern)
    return phases


def check(config) -> None:
    settings, steps = config.recall, config.train.steps
    for fraction in (*settings.fractions, *settings.followed):
        surgery.check_fraction(fraction)
    if not settings.truncate or not settings.fractions:
        raise UserError("recall.truncate and recall.fractions must not be empty.")
    if not 0 <= settings.pretrain_steps < steps or settings.probe_every < 1:
        raise UserError(
            f"recall.pretrain_steps must be 0 to train.steps - 1 = {steps - 1} and "
            f"recall.probe_every at least 1, got {settings.pretrain_steps} and "
            f"{settings.probe_every}."
        )
    if settings.early < 0:
        raise UserError(f"recall.early must be at least 0, got {settings.early}.")


def probe_steps(config) -> list[int]:
    """Returns the steps with a probe.

    The steps on clean data and the steps on noisy data are treated alike. Every second of the first
    `early` steps has a probe, then every multiple of `probe_every`, and the last step.
    """
    settings, steps = config.recall, [0]
    boundaries = sorted({0, settings.pretrain_steps, config.train.steps})
    for begin, end in pairwise(boundaries):
        early_end = min(begin + settings.early, end)
        early, late = range(begin + 1, early_end + 1), range(early_end + 1, end + 1)
        steps += [step for step in early if step % 2 == 0 or step == early_end]
        steps += [step for step in late if step % settings.probe_every == 0 or step == end]
    return steps
