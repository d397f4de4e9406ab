"""The door of a training study: a task, its text or a run becomes a `Subject`."""

import ast
import dataclasses
import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxformer import build
from jaxformer.core import identity
from jaxformer.core.errors import UserError, did_you_mean, one_line
from jaxformer.io.run_folder import Workdir
from jaxformer.studies.anatomy import subject
from jaxformer.studies.anatomy.subject import Subject
from jaxformer.tasks.heldout import Drawn
from jaxformer.tasks.task import Batch, Task


def subject_of(source: Task | str | Path, model: Any = None, **options: Any) -> Subject:
    """The subject of a task, of "package.module:Task" or of the folder of a run.

    Args:
      source: the task, its text or the run
      model: the network of a task; None: a decoder
      **options: arguments of `subject.of_task`
    """
    if isinstance(source, Task):
        return subject.of_task(source, model, **options)
    if not Path(source).is_dir():
        return of_task_text(str(source), model, **options)
    if options or model is not None:
        names = ", ".join([*options, *["model"] * (model is not None)])
        raise UserError(f"a run sets {names} itself: leave it out.")
    return of_run(source)


def of_task_text(text: str, model: Any = None, name: str = "", **options: Any) -> Subject:
    """The subject of "package.module:Task" or "file.py:Task(size=8)"."""
    if ":" not in text:
        raise UserError(
            f"{text!r} is no task: give a Task, such as Retrieval(max_pairs=4, vocab=16), "
            '"package.module:Task", "file.py:Task" or the folder of a run. Only the command reads '
            f"configs: jaxformer anatomy --task={text}."
        )
    task = load_task(text)
    return subject.of_task(task, model, name=name or type(task).__name__, **options)


def of_run(folder: str | Path, task: Task | None = None) -> Subject:
    """The subject of a run's folder: its task, network and training.

    Args:
      folder: the folder of a run
      task: the task, if its class is not one of jaxformer's
    """
    content, config = _config_of_run(folder)
    name = Path(folder).name
    if config.recipe == "train":
        what = subject.of_config(config, name)
    else:
        what = subject.of_library_run(config, task, name)
    _check_same_task(folder, content, what.drawn)
    return dataclasses.replace(what, run=Path(folder))


def heldout_of_run(folder: str | Path, model: Any, task: Task | None = None) -> tuple[Task, Batch]:
    """The task of a run and its test set, for a look at the network without training it again.

    So the optimizer may be one of the user's, and parameters may be freed during training.

    Args:
      folder: the folder of a run
      model: the model of the run
      task: the task, if its class is not one of jaxformer's
    """
    content, config = _config_of_run(folder)
    subject.check_task_and_data(config, task, Path(folder).name)
    task = build.task(config) if task is None else task
    drawn = subject.drawn_for(task, model, build.source(config, task))
    _check_same_task(folder, content, drawn)
    return task, drawn.sets.test


def _config_of_run(folder: str | Path) -> tuple[dict[str, Any], Any]:
    """The content of a run's config.json, and its config."""
    import ml_collections

    content = Workdir(folder).read("config.json")
    stored = content["config"]
    # "library" is the recipe of runs that `jaxformer.train` made.
    if stored["recipe"] not in ("train", "library") or "model" not in stored:
        raise UserError(
            f"{folder} is a run of the recipe {stored['recipe']!r}; the report needs a run that "
            "trained a network on a task."
        )
    return content, ml_collections.ConfigDict(stored)


def _check_same_task(folder: str | Path, content: Mapping[str, Any], drawn: Drawn) -> None:
    """Raises if the task draws other examples than it did when the run began."""
    if (before := content.get("identity")) and (why := identity.difference(before, drawn.identity)):
        raise UserError(
            f"the task of {folder} does something else today ({why}): its code was edited after "
            "the run. The report would explain the old network on the new task."
        )


def load_task(text: str) -> Task:
    """Returns the task "package.module:Name", "file.py:Name" or "module:Name(size=8)".

    Name is a task, a class of tasks or a function that returns a task. A class and a function are
    called with the arguments in parentheses, which are literals.
    """
    module_name, _, expression = text.partition(":")
    name, arguments = _split_call(expression, text)
    module = _load_module(module_name)
    if not hasattr(module, name):
        hint = did_you_mean(name, [n for n in vars(module) if not n.startswith("_")])
        raise UserError(f"--task: {module_name} has no {name!r}.{hint}")
    value = getattr(module, name)
    if arguments or not isinstance(value, Task):
        try:
            value = value(**arguments)
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"--task: {expression} raises {type(error).__name__}: {one_line(error, 200)}"
            ) from None
    subject.check_task(value)
    return value


def _load_module(name: str) -> Any:
    if "" not in sys.path:
        sys.path.insert(0, "")  # a module in the current folder
    try:
        if not name.endswith(".py"):
            return importlib.import_module(name)
        file = Path(name)
        spec = importlib.util.spec_from_file_location(file.stem, file)
        if not file.is_file() or spec is None or spec.loader is None:
            raise UserError(f"--task: there is no file {name!r}.")
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(file.stem, module)
        spec.loader.exec_module(module)
        return module
    except UserError:
        raise
    except ModuleNotFoundError as error:
        if error.name and name.startswith(error.name):
            raise UserError(
                f"--task: no module {error.name!r} here; give package.module:Task or file.py:Task."
            ) from None
        raise UserError(f"--task: {name} imports {error.name}, which is not installed.") from None
    except Exception as error:
        raise UserError(
            f"--task: importing {name} raises {type(error).__name__}: {one_line(error, 200)}"
        ) from None


def _split_call(expression: str, text: str) -> tuple[str, dict[str, Any]]:
    """Returns the name and the keyword arguments of "Name" or "Name(size=8)"."""
    expected = f"--task must be package.module:Task or file.py:Task(size=8), got {text!r:.200}."
    try:
        node = ast.parse(expression, mode="eval").body
        if isinstance(node, ast.Name):
            return node.id, {}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
            values = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords}
            if None not in values:
                return node.func.id, values  # type: ignore[return-value]
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        pass
    raise UserError(expected)
