"""Wrong arguments of signal propagation give one-line errors that name them."""

import json

import jax
import jax.numpy as jnp
import pytest

from tests.theory import config_json
from tests.theory.commands import run, wrong_errors
from theory import advise, rem
from theory.signal import Block, propagate

PAPER = dict(beta=1.0, alpha_sa=1.0, alpha_mlp=1.0, sigma_v2=0.2, sigma_w2=0.2, sigma_b2=0.0)


def after(rho0=0.0, depth=2, T=None, **changes):
    return propagate(rho0, Block(**PAPER | changes), depth, T)


def test_wrong_arguments_are_one_line_errors():
    cases = [
        (lambda: rem.self_overlap("x", 0.0, 64), "beta must be numbers, got 'x'"),
        (lambda: rem.self_overlap("1", 0.0, 64), "beta must be numbers, got '1'"),
        (lambda: rem.self_overlap(1.0, [0.1, "y"], 64), "rho must be numbers"),
        (lambda: rem.self_overlap(1.0, None, 64), "rho must be numbers, got None"),
        (lambda: rem.self_overlap(1.0, 0.0, "64"), "T must be numbers, got '64'"),
        (lambda: rem.self_overlap(1.0, 0.0, 1e300), r"T must be in \[2, 1e\+15\]"),
        (lambda: rem.self_overlap(1.0, 0.0, [64, 128]), "T must be one number"),
        (lambda: after(sigma_v2=1e200), r"sigma_v2 must be in \[0, 1e\+100\], got 1e\+200"),
        (lambda: after(alpha_sa=1e200), r"alpha_sa must be in \[0, 1e\+100\]"),
        (lambda: after(sigma_w2="0.2"), "sigma_w2 must be numbers"),
        (lambda: after(activation=jax.nn.softmax), "must act elementwise"),
        (lambda: after(activation=jnp.sum), "must act elementwise"),
        (lambda: after(depth=2.5), "depth must be a whole number"),
        (lambda: after(depth="3"), "depth must be a whole number"),
    ]
    assert wrong_errors(cases) == []


def test_large_numbers_that_are_allowed():
    assert jnp.isfinite(after(sigma_v2=1e100, alpha_sa=1e100, alpha_mlp=1e100)).all()
    assert float(after(activation=jnp.tanh)[-1]) == pytest.approx(
        float(after(activation="tanh")[-1])
    )


@pytest.mark.parametrize(
    "flags, phrases",
    [
        # A network of zeros is not trainable.
        (
            ["--init-std", "0"],
            ["regime            no signal", "increase the standard deviation of the weights"],
        ),
        # Token types are alike for all tokens, and rho0 is part of the answer.
        ([], ["judged            bert: post-norm", "rho0 = 0.3333"]),
    ],
)
def test_the_report_on_unusual_networks(tmp_path, capsys, flags, phrases):
    (tmp_path / "config.json").write_text(json.dumps(config_json.BERT))
    run(advise.main, [str(tmp_path / "config.json"), "--length", "64", *flags])
    shown = capsys.readouterr().out
    assert all(phrase in shown for phrase in phrases), shown
