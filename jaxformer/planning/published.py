"""Published models by their config.json alone: shapes without weights."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError
from jaxformer.models.pretrained.config_json import describe
from jaxformer.models.pretrained.network import Pretrained
from jaxformer.tasks.task import Batch, Task

DTYPES = {"bfloat16": jnp.bfloat16, "float16": jnp.float16, "float32": jnp.float32}


@dataclass(frozen=True)
class TokenTask(Task):
    """A stand-in for text of a given length, for plans without data. All its tokens are 0."""

    length: int = 0  # tokens of an example
    vocab_size: int = 0  # 0: the vocabulary of the published model

    @property
    def n_scored(self) -> int:
        return self.length

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        zeros_T = jnp.zeros(self.length, jnp.int32)
        return Batch(zeros_T, zeros_T, jnp.ones(self.length))

    def baselines(self, batch: Batch) -> dict[str, float]:
        return {}


def shapes_only(task: Task, config: str | Path | Mapping[str, Any]) -> tuple[Task, Pretrained]:
    """Returns the task with the model's vocabulary, and a published network without weights.

    Args:
      task: a `TokenTask`, or a task for this model.
      config: the file config.json, its folder, or its content.
    """
    file, content = "config.json", cast(Any, config)
    if not isinstance(config, Mapping):
        path = Path(config)
        path = path / "config.json" if path.is_dir() else path
        try:
            file, content = str(path), json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise UserError(f"{path} is not the config.json of a model: {error}.") from None
    spec = describe(content, file)
    dtype_name = str(content.get("torch_dtype") or content.get("dtype"))
    dtype = DTYPES.get(dtype_name, jnp.float32)
    spec = replace(spec, dtype=dtype, param_dtype=dtype)
    if isinstance(task, TokenTask) and not task.vocab_size:
        task = replace(task, vocab_size=spec.vocab_size)
    return task, Pretrained(spec)
