"""Checks that a figure can be drawn from its arrays alone."""

import functools
import sys

from experiments.run import main

COMPUTES = ("theory", "jaxformer.models", "jaxformer.tasks", "jaxformer.training")
COMPUTES_NOTHING = ("jaxformer.training.loggers",)  # parses flags of run.py


def measured_then_drawn(options, workdir, monkeypatch) -> None:
    """Runs a figure, then draws it again from its arrays and compares the bytes."""
    assert main([*options, f"--workdir={workdir}"]) == 0
    figure = workdir / "figure.png"
    first = figure.read_bytes()
    assert first.startswith(b"\x89PNG")
    figure.unlink()
    with monkeypatch.context() as patch:
        forbid(patch)
        assert main([*options, f"--workdir={workdir}", "--draw"]) == 0
    assert figure.read_bytes() == first


def forbid(patch) -> None:
    """Replaces every function that computes by one that raises, in all modules that import it."""

    packages = ("theory", "jaxformer", "experiments")
    for module in [m for name, m in sys.modules.items() if name.split(".")[0] in packages]:
        for name, value in list(vars(module).items()):
            home = getattr(value, "__module__", None) or ""
            # A package's __getattr__ only imports, and a check computes nothing.
            is_function = callable(value) and not isinstance(value, type)
            if name.startswith(("__", "check_")):
                continue
            if home.startswith(COMPUTES_NOTHING):
                continue
            if is_function and (home.startswith(COMPUTES) or name.startswith("measure_")):
                patch.setattr(module, name, _raises(value))


def _raises(function):
    @functools.wraps(function)
    def computes(*args, **kwargs):
        raise AssertionError("a drawing computes")

    return computes
