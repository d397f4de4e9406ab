"""Forecasts a training step of the language models of gpu_day.py on an accelerator that is absent.

    JAX_PLATFORMS=cpu python benchmarks/forecast.py gpt h100:1 fused=True
    JAX_PLATFORMS=cpu python benchmarks/forecast.py gpt h100:1 fused=True scan=True
    JAX_PLATFORMS=cpu python benchmarks/forecast.py papers h100:1 mixer=mixit dtype=bfloat16
    JAX_PLATFORMS=cpu python benchmarks/forecast.py papers h100:1 frozen=qk

A model is `gpt` (113M parameters without embeddings, bfloat16) or `papers` (that of the MixiT
papers, float32). Fields of the decoder, `batch`, `length` and `loss_chunk` can be changed. The
compilers are `pip install 'jaxformer[tpu,compile-cuda]'`; a program takes 10 to 20 CPU seconds.
"""

import ast
import sys
from typing import Any

import gpu_day
import jax.numpy as jnp

import jaxformer
from jaxformer.models.decoder import decoder
from jaxformer.planning.plan import Plan

MODELS = {"gpt": gpu_day.gpt, "papers": gpu_day.paper_lm}


def forecast(name: str, target: str, **changes: Any) -> Plan:
    """The plan of a training step of a model on a target.

    Args:
        name: a name of MODELS.
        target: such as "h100:1".
        changes: fields of the decoder, `batch`, `length`, `loss_chunk`, or frozen="qk".
    """
    sizes, length, vocab, batch, options = MODELS[name](False)
    options = {"dtype": "float32"} | options | changes
    rules = gpu_day.FROZEN_QK if options.pop("frozen", "") == "qk" else gpu_day.TRAIN_ALL
    batch, length = options.pop("batch", batch), options.pop("length", length)
    loss_chunk, dtype = options.pop("loss_chunk"), jnp.dtype(options.pop("dtype"))
    fields = sizes | {"vocab_size": vocab, "length": length, "dtype": dtype} | options
    return jaxformer.plan(
        gpu_day.random_tokens(length, vocab),
        decoder(**fields),
        rules,
        target=target,
        batch_size=batch,
        loss_chunk=loss_chunk,
        data=gpu_day.one_heldout_example(),
    )


def value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text  # a name such as "mixit"


if __name__ == "__main__":
    name, target, *given = sys.argv[1:]
    changes = {field: value(text) for field, text in (pair.split("=") for pair in given)}
    plan = forecast(name, target, **changes)
    print(plan)
    batch = changes.get("batch", MODELS[name](False)[3])
    print(f"{batch / plan.forecast_seconds:.0f} samples per second by forecast")
