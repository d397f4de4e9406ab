"""Configs for the recipe `recall`: noisy in-context recall.

In noisy recall a trigger is followed by the answer or, with probability alpha, by a noise token. F1
and F2 are the feed-forward layers of the two layers.
"""

from ml_collections import ConfigDict

from configs.common import training

PROTOCOLS = ("quick", "plateau")


def recall(
    name: str, arguments: dict[str, str], layers: tuple[str, ...] = ("mlp", "mlp")
) -> ConfigDict:
    """Returns a complete config of noisy in-context recall at a scale.

    protocol=plateau, in configs that have this argument, trains at the paper's rate until no metric
    changes; protocol=quick stops when the effect shows. The comments in jaxformer/tasks/recall.py
    and jaxformer/models/recall.py explain the fields of the task and of the model.

    Args:
      name: The name of the config.
      arguments: Its arguments: scale, and protocol in some configs.
      layers: The kinds of F1 and F2: mlp, linear or none.
    """
    config = training(name, arguments)
    config.recipe = "recall"
    config.n_seeds = 5
    config.task = dict(
        name="recall",
        n_symbols=32,
        context=64,
        alpha=0.5,
        triggers=" ",
        drawn_triggers=0,
        noise="",
        exclude_triggers=False,
        scored="repeats",
        statistics="text",
        text="",
        max_scored=0,
    )
    config.data.update(test_size=512, validation_size=256)
    config.model = dict(
        name="recall",
        width=128,
        feed_forward=layers,
        mlp_multiplier=4,
        factored_values=True,
        factored_keys=False,
        scale_scores=True,
        positions="random",
        embed_std=1.0,
        causal=True,
        tie_output=False,
        parallel=False,
        dtype="float32",
        param_dtype="float32",
    )
    config.partition = (("(embed|unembed|positions)/.*", "frozen"), (".*", "train"))
    config.optim.update(learning_rate=(0.1,), schedule="constant", warmup=0, clip=0.0)
    config.optim.labels = dict(
        train=dict(name="sgd", momentum=0.9, weight_decay=1e-4, multiplier=1.0)
    )
    config.train.update(batch_size=64, steps=300, eval_every=100)
    config.recall = dict(
        probe_every=20,  # steps between two measurements on clean and on noisy data
        early=20,  # first steps on each kind of data; every second one is probed
        pretrain_steps=0,  # steps on clean data (alpha = 0) before the noisy ones
        truncate=("block_1/mlp/in",),  # matrices that are cut to a lower rank after training
        fractions=(0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0),  # of the rank; 0: without the matrix
        # Fractions at which the model with the last matrix of `truncate` cut is also probed during
        # training.
        followed=(),
    )
    if arguments["scale"] == "tiny":
        config.n_seeds = 1
        config.task.context = 16
        config.data.update(test_size=64, validation_size=64)
        config.model.width = 32
        config.train.update(batch_size=16, steps=20, eval_every=10)
        config.recall.update(probe_every=10, early=10)
    elif arguments["scale"] == "paper":
        config.task.update(n_symbols=65, context=256)
        config.model.width = 256
        config.optim.learning_rate = (0.03,)
        config.train.update(batch_size=512, steps=2000)
    if arguments.get("protocol") == "plateau" and arguments["scale"] != "tiny":
        config.optim.learning_rate = (0.03,)
        config.train.update(steps=4000, eval_every=500)
        config.recall.update(probe_every=100)
        if arguments["scale"] == "small":
            config.model.width = 64
    return config
