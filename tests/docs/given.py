"""Names and small values that the blocks of a page use without defining them."""

from typing import Any


def two_paths() -> dict[str, Any]:
    """Returns a problem of attention paths: 6 training and 2 test examples, 2 x 2 heads, n = 8."""
    import jax
    import numpy as np

    rng = np.random.default_rng(0)
    xi, xi_test = rng.normal(size=(6, 4, 8)), rng.normal(size=(2, 4, 8))
    labels, labels_test = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0]), np.array([1.0, -1.0])
    names = {"xi": xi, "xi_test": xi_test, "labels": labels, "labels_test": labels_test}
    return names | {"key": jax.random.key(0), "np": np}


def two_tokens() -> dict[str, Any]:
    """Returns a covariance of two tokens and a key."""
    import jax
    import numpy as np

    return {"key": jax.random.key(0), "phi0": np.array([[1.0, 0.5], [0.5, 1.0]])}


def decoder() -> dict[str, Any]:
    """Returns an initialised decoder and four sequences."""
    import jax

    from jaxformer.models import decoder

    sizes = {"vocab_size": 11, "length": 8, "width": 16, "layers": 2, "heads": 2, "mlp_width": 32}
    model = decoder.decoder(**sizes)
    tokens = jax.random.randint(jax.random.key(0), (4, 8), 0, 11)
    params = model.init(jax.random.key(1), tokens)["params"]
    return {"model": model, "params": params, "tokens": tokens}


GIVEN = {
    "a problem with two layers of two heads": two_paths,
    "two tokens": two_tokens,
    "a decoder and tokens": decoder,
}
