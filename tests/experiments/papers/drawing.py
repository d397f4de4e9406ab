"""A run of a figure, drawn again where everything that measures raises."""

import functools
import sys

from experiments.run import main

COMPUTES = ("theory", "jaxformer.models", "jaxformer.tasks", "jaxformer.training")


def measured_then_drawn(words, workdir, monkeypatch) -> None:
    """The figure of a finished run has the same bytes when it is drawn from its file alone."""
    assert main([*words, f"--workdir={workdir}"]) == 0
    figure = workdir / "figure.png"
    first = figure.read_bytes()
    assert first.startswith(b"\x89PNG")
    figure.unlink()
    with monkeypatch.context() as patch:
        forbid(patch)
        assert main([*words, f"--workdir={workdir}", "--draw"]) == 0
    assert figure.read_bytes() == first


def forbid(patch) -> None:
    """Every function of the rooms that compute raises, under every name it was imported by."""

    rooms = ("theory", "jaxformer", "experiments")
    for module in [m for name, m in sys.modules.items() if name.split(".")[0] in rooms]:
        for name, value in list(vars(module).items()):
            home = getattr(value, "__module__", None) or ""
            # A package's __getattr__ only imports; what it hands out raises where it is defined.
            # A check only looks at numbers.
            is_function = callable(value) and not isinstance(value, type)
            if name.startswith(("__", "check_")):
                continue
            if is_function and (home.startswith(COMPUTES) or name.startswith("measure_")):
                patch.setattr(module, name, _raises(value))


def _raises(function):
    @functools.wraps(function)
    def computes(*args, **kwargs):
        raise AssertionError("a drawing computes")

    return computes
