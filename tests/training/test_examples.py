"""The examples in the docstrings of training run as they stand."""

import inspect
import re
import textwrap

import numpy as np
import pytest

import jaxformer
from jaxformer import training
from jaxformer.core import optim, paths


def example(docstring):
    """Returns the code of a docstring, from its first import to the end of the indented block."""
    lines = inspect.cleandoc(docstring).splitlines()
    first = next(i for i, line in enumerate(lines) if re.match(" +import ", line))
    indent = len(lines[first]) - len(lines[first].lstrip())
    block = []
    for line in lines[first:]:
        if line.strip() and not line.startswith(" " * indent):
            break
        block.append(line)
    return textwrap.dedent("\n".join(block))


@pytest.mark.slow  # two programs to compile
def test_the_plain_loop_trains_as_the_engine_does(capsys):
    names = {}
    exec(example(training.__doc__), names)
    assert len(capsys.readouterr().out.splitlines()) >= 2
    run = jaxformer.train(
        names["task"],
        names["model"],
        names["rules"],
        data=names["data"],
        steps=20,
        warmup=5,
        batch_size=8,
        seeds=2,
        learning_rate=[1e-2, 1e-3],
        optimizer=optim.AdamW(),
        members="vmap",
        progress=False,
    )
    assert names["metrics"]["loss"].shape == (4,)
    trained = paths.flatten(run.trained.state.trainable)
    for path, leaf in paths.flatten(names["state"].trainable).items():
        np.testing.assert_allclose(leaf, trained[path], rtol=1e-4, atol=1e-5, err_msg=path)


@pytest.mark.slow  # the lines of the README call the same function
def test_the_example_of_train_runs(capsys):
    names = {}
    exec(example(jaxformer.train.__doc__), names)
    assert names["run"].result.metrics["accuracy"].n == 2
