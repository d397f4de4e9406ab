"""Generation from the command line with a model whose logits are not finite."""

import jax
import numpy as np

import jaxformer
from experiments.generate import main
from jaxformer.models.pretrained import save_folder, tiny


def test_logits_that_are_not_finite_end_the_text_and_fail(tmp_path, capsys):
    tiny.save("gpt2", tmp_path / "gpt2", tiny.TEXTS)
    model, params, config = jaxformer.load(tmp_path / "gpt2")
    broken = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), params)
    folder = save_folder(tmp_path / "broken", model, broken, config, tmp_path / "gpt2")
    assert main([str(folder), "--prompt=Madrid", "--tokens=3", "--samples=2"]) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1::2] == ["Madrid", "Madrid"]
    warning, error = printed.err.splitlines()
    assert warning.startswith(f"warning: parameters of {folder} are nan or infinite (block_0/")
    assert error == (
        "error: expected finite logits, got nan or infinity after 0 new tokens: 2 of 2 texts end "
        "there. Check the weights and the dtype of the parameters."
    )
