"""Subjects of `jaxformer anatomy` that are training configs, which only the command reads."""

from typing import Any

from experiments.cli import completion, flags
from experiments.cli.user_modules import own_packages_first
from jaxformer.core.errors import UserError, did_you_mean
from jaxformer.studies.anatomy import sources, subject
from jaxformer.studies.anatomy.subject import Subject
from jaxformer.tasks.task import Task


def of_task_text(text: str, scale: str = "tiny", **options: Any) -> Subject:
    """The subject of "package.module:Task", or of the task of a config, such as "retrieval".

    Args:
      text: the task
      scale: the scale of this config
      **options: arguments of `subject.of_task`; a config has its own network and training, so only
        steps and rates may be given with one
    """
    if ":" not in text:
        return _of_named_config(text, scale, options)
    with own_packages_first():
        return sources.of_task_text(text, **options)


def load_task(text: str) -> Task:
    """The task "package.module:Task" of a run, which its folder does not have."""
    with own_packages_first():
        return sources.load_task(text)


def of_config_text(text: str, **options: Any) -> Subject:
    """Returns the subject of a training config "NAME:ARGUMENTS"."""
    config = flags.load_config(completion.config_path(text))
    if config.recipe != "train":
        raise UserError(
            f"the report needs a training config; the recipe of {text} is {config.recipe!r}."
        )
    return _of_config(config, str(config.name).rpartition("/")[2], options)


def _of_named_config(name: str, scale: str, options: dict[str, Any]) -> Subject:
    files = flags.training_configs("standard")
    if name not in files:
        hint = did_you_mean(name, files)
        raise UserError(
            f"unknown task {name!r}.{hint} Give package.module:Task, file.py:Task, or one of "
            f"{', '.join(files)}."
        )
    config = flags.load_config(f"{files[name]}:variant=standard,scale={scale}")
    return _of_config(config, f"{name} {scale}", options)


def _of_config(config: Any, name: str, options: dict[str, Any]) -> Subject:
    options = {key: value for key, value in options.items() if value}  # those that were given
    if "steps" in options:
        config.train.steps = options.pop("steps")
        config.optim.warmup = min(config.optim.warmup, config.train.steps // 4)
    if "rates" in options:
        config.optim.learning_rate = tuple(options.pop("rates"))
    if options:
        raise UserError(f"a config sets {', '.join(options)} itself: leave it out.")
    return subject.of_config(config, name)
