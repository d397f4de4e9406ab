"""An optimizer of one's own is known again by what it is made of, in whichever process."""

import os
import subprocess
import sys

import jax
import numpy as np
import optax
import pytest

from jaxformer.training.own import Own

MADE = """
import optax
def made(b1=0.9, decay=0.1, peak=0.5):
    return optax.chain(
        optax.scale_by_adam(b1=b1),
        optax.add_decayed_weights(decay, mask=lambda params: params),
        optax.scale_by_schedule(lambda step: peak * step),
    )
"""
exec(MADE)  # the same words for this process and for another one
made = globals()["made"]


def test_another_process_finds_the_same_word():
    words = f"{MADE}\nfrom jaxformer.training.own import Own\nprint(repr(Own(made())))"
    other = subprocess.run(
        [sys.executable, "-c", words], capture_output=True, text=True, check=True, env=os.environ
    )
    assert other.stdout.strip() == repr(Own(made())) == repr(Own(made()))
    assert repr(Own(made())).startswith("chain:")


@pytest.mark.parametrize("changes", [dict(b1=0.8), dict(decay=0.2), dict(peak=0.6)])
def test_other_settings_are_another_word(changes):
    assert repr(Own(made(**changes))) != repr(Own(made()))


def test_numbers_in_a_function_arrays_and_objects_count():
    def word(function):
        return repr(Own(optax.stateless(function)))

    def by(scale):
        return lambda updates, params: jax.tree.map(lambda u: u * scale, updates)

    assert word(lambda u, p: 2 * u) != word(lambda u, p: 3 * u)
    assert word(by(np.ones(3))) == word(by(np.ones(3))) != word(by(np.zeros(3)))
    every = [optax.MultiSteps(optax.adam(1.0), n).gradient_transformation() for n in (2, 2, 3)]
    two, again, three = (repr(Own(one)) for one in every)
    assert two == again != three
