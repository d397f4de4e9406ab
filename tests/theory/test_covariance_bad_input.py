"""Wrong arguments of the covariance SDE and of its networks are one-line errors."""

import jax
import numpy as np
import pytest

from jaxformer.core.errors import UserError
from theory import covariance_sde as cs

BAD = {
    "symmetric": {"phi0": [[1.0, 0.5], [0.0, 1.0]]},
    "smallest eigenvalue -0.5": {"phi0": [[1.0, 1.5], [1.5, 1.0]]},
    "finite": {"phi0": [[1.0, np.nan], [np.nan, 1.0]]},
    "at least 2 tokens": {"phi0": [[1.0]]},
    "tau must be": {"tau": -0.1},
    "tau must": {"tau": np.inf},
    "steps must be": {"steps": 0},
    "paths must be": {"paths": 0},
    "times must be in": {"times": [0.5, 2.0]},
    "increasing": {"times": [0.5, 0.2]},
    "unknown mixing scale": {"mixing": cs.Mixing(scale="spread")},
    "needs the width": {"mixing": cs.Mixing(scale=0.1)},
    "the scale of mixing must be": {"mixing": cs.Mixing(scale=-0.1), "width": 8},
}


def test_bad_input_of_predict():
    failures = {}
    for message, changed in BAD.items():
        arguments = {"phi0": np.eye(2), "tau": 1.0, "paths": 2, "steps": 2} | changed
        try:
            cs.predict(jax.random.key(0), **arguments)
            failures[message] = "no error"
        except UserError as error:
            if message not in str(error):
                failures[message] = str(error)
    assert not failures


def test_bad_input_of_measure():
    bad = {
        "width must be": {"width": 1},
        "multiple of the heads": {"mixing": cs.Mixing(heads=3)},
        "depth must be": {"depth": -1},
        "a network needs a width of at least m = 3": {"network": cs.Network(), "width": 2},
        "a decoder needs a width of at least m = 3": {"network": cs.Decoder(), "width": 2},
        "layers must be increasing": {"layers": [2, 9]},
        "unknown mixing scale": {"mixing": cs.Mixing(scale="thoery")},
        "the scale of mixing must be": {"mixing": cs.Mixing(scale=-0.1)},
        r"use Mixing\(causal=True": {"network": cs.Decoder()},
    }
    for message, change in bad.items():
        with pytest.raises(UserError, match=message):
            arguments = {"phi0": np.eye(3), "width": 10, "depth": 2, "samples": 2} | change
            cs.measure(jax.random.key(0), **arguments)
    with pytest.raises(UserError, match="multiple of the heads"):
        cs.one_step_covariance(np.eye(3), 10, cs.Mixing(heads=3))
    with pytest.raises(UserError, match="heads must be a whole number of at least 1"):
        cs.Mixing(heads=0)
