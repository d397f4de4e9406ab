"""A laboratory for one question: what does each part of a transformer do?

model, params, config = jaxformer.load("runs/my_run")
"""

from pathlib import Path
from typing import Any


def load(workdir: str | Path, member: int | None = None) -> tuple[Any, dict[str, Any], Any]:
    """(model, params, config) of a run, from its newest checkpoint.

    `member` counts the population (learning rates slowest, then seeds); by default it is the first
    seed of the learning rate that the run chose.
    """
    # Imported here, so that `import jaxformer.paths` stays light.
    import ml_collections

    from jaxformer import build, paths
    from jaxformer.checkpoint import Checkpoints
    from jaxformer.errors import UserError
    from jaxformer.partition import Partition
    from jaxformer.records import Workdir

    folder = Workdir(workdir)
    held = folder.read("config.json")
    config = ml_collections.ConfigDict(held["config"])
    model = build.model(config, build.task(config))
    with Checkpoints(folder / "ckpt") as checkpoints:
        found = checkpoints.restore()
    if found is None:
        raise UserError(f"{folder.path} has no checkpoint yet.")
    flat = found.arrays

    members = flat["learning_rate"].shape[0]
    if member is None:
        finished = (folder / "result.json").exists()
        chosen = [m["chosen"] for m in folder.read("result.json")["members"]] if finished else [1]
        member = chosen.index(True) if True in chosen else 0
    if not 0 <= member < members:
        raise UserError(f"the run has members 0 to {members - 1}, got {member}.")

    def half(name: str) -> dict[str, Any]:
        start = f"{name}/"
        cut = {p[len(start) :]: leaf[member] for p, leaf in flat.items() if p.startswith(start)}
        return paths.unflatten(cut)

    return model, Partition.merge(half("trainable"), half("frozen")), config
