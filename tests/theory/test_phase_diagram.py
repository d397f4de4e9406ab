"""The NumPy phase diagrams agree with the theory in jax, and their commands need no jax."""

import subprocess
import sys

import numpy as np
import pytest

from jaxformer.core.errors import UserError
from theory import phase_map
from theory.signal import Block, critical_alpha, phase_diagram, propagate
from theory.signal.phase_diagram import GridOverlaps

SIGMAS = (0.2, 0.2, 4e-4)
BETA, ALPHA = np.array([0.0, 0.3, 1.2, 2.5]), np.array([0.0, 0.4, 1.0, 3.0])


@pytest.mark.parametrize(
    "overlaps, activation",
    [
        ("exact", "relu"),
        pytest.param("limit", "gelu", marks=pytest.mark.slow),
        pytest.param("heuristic", "tanh", marks=pytest.mark.slow),
    ],
)
def test_a_diagram_agrees_with_propagate(overlaps, activation):
    block = Block(BETA[:, None], ALPHA[None], 1.0, *SIGMAS, activation)
    expected = np.asarray(propagate(0.0, block, 60, 128, overlaps)[-1])
    grid = GridOverlaps(128, overlaps)
    np.testing.assert_allclose(phase_diagram.final_cosine(block, 60, grid), expected, atol=1e-5)
    # Eq. 15 jumps at beta_c: above it the collapsed region has several edges.
    beta = BETA[: 3 if overlaps == "heuristic" else 4]
    block = Block(beta, 0.0, 1.0, *SIGMAS, activation)
    expected = np.asarray(critical_alpha(beta, block, 60, 128, 0.01, overlaps))
    result = phase_diagram.critical_alpha(block, 60, 0.01, grid)
    np.testing.assert_allclose(result, expected, rtol=1e-4)


def test_alpha_c_can_be_infinite_or_zero():
    """Without a residual of the MLP no alpha helps; one layer never collapses."""
    overlaps = GridOverlaps(64)
    no_mlp_residual = Block(np.array([0.02]), 0.0, 0.0, *SIGMAS)
    assert np.isinf(phase_diagram.critical_alpha(no_mlp_residual, 60, 0.01, overlaps)).all()
    block = Block(np.array([0.5, 2.0]), 0.0, 1.0, *SIGMAS)
    assert (phase_diagram.critical_alpha(block, 1, 0.01, overlaps) == 0).all()


@pytest.mark.parametrize("T", [512, pytest.param(10**8, marks=pytest.mark.slow)])
def test_one_layer_of_attention(T):
    beta, rho = np.linspace(0, 8, 9)[:, None], np.linspace(0, 1, 7)[None]
    y_q, y_p = GridOverlaps(T)(beta, rho)
    result = phase_map.cosine_from_overlaps(rho, y_q, y_p)
    np.testing.assert_allclose(
        result, phase_map.attention_cosine(beta, rho, T), rtol=1e-5, atol=1e-7
    )
    y_q, y_p = GridOverlaps(T, "limit")(beta, rho)
    result = phase_map.cosine_from_overlaps(rho, y_q, y_p)
    np.testing.assert_allclose(result, phase_map.attention_cosine(beta, rho), atol=1e-12)


def test_names_are_checked():
    with pytest.raises(UserError, match=r"unknown overlaps 'exac'\. Did you mean 'exact'"):
        GridOverlaps(64, "exac")
    with pytest.raises(UserError, match="unknown activation 'tan'"):
        phase_diagram.final_cosine(Block(1.0, 1.0, 1.0, *SIGMAS, "tan"), 1, GridOverlaps(64))


@pytest.mark.parametrize(("top", "shown"), [(4.0, "1"), (0.4, "0.2")])
def test_the_headline_of_a_map_names_the_beta_of_its_number(top, shown):
    beta = np.linspace(0, top, 201)
    cosine = np.stack([beta, 0 * beta], 1)  # a cosine that is beta
    result = phase_map._headline(64, beta, cosine)
    assert f"64 orthogonal tokens at $\\beta={shown}$ only reach cosine {shown}" in result


def test_the_commands_need_no_jax(tmp_path):
    program = (
        "import sys; from theory import phase_map, trainability\n"
        "for main in (phase_map.main, trainability.main):\n"
        "    main(['--points=5', '--length=64', f'--out={sys.argv[1]}/{main.__module__}.png'])\n"
        "assert not {'jax', 'scipy', 'flax'} & set(sys.modules)"
    )
    arguments = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(arguments, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert len([*tmp_path.glob("*.npz")]) == 2
