r"""Trains chosen parts of a published model on a text and freezes all others.

    python experiments/run.py --config=configs/text/finetune.py:source=FOLDER,free=block_9/mlp

source  a published model, as `jaxformer.load` reads it: a folder with config.json and safetensors,
        a GGUF file, "package:NAME" of an installed package with weights, or a name on the hub.
        The default, an empty source, is a random tiny model that needs no file
free    a pattern of the modules or parameters to train, such as block_9/mlp or
        "block_(28|29)/mlp" (in quotes)
label   how it is trained: train, or an adapter such as lora(8) on the kernels in these modules
tokens  the prepared text: a path or a name in runs/data

scale  sizes                                time                 expected result
tiny   10 steps of 4 x 32 tokens            20 CPU seconds       none: a test run
small  100 steps of 4 x 128 tokens          10 CPU minutes       the loss of the text falls
paper  2,000 steps of 32 x 512 tokens       an hour on a GPU     not yet run

Prepare the text with the tokenizer of the model:

    python experiments/prepare.py --dataset text:FILE --tokenizer FOLDER --out TOKENS

Frozen parameters do not change at all and have neither gradients nor optimizer state. An adapter
wants a higher rate: add --config.optim.learning_rate=1e-3. The logits are computed for a few
positions at a time, so a large vocabulary needs little memory. `jaxformer.load(WORKDIR)` returns
the trained model. The time of the small scale is that of a model with 135 million parameters.
These runs are in no paper.
"""

from configs import common
from configs.arguments import FreeText

SECONDS = {"tiny": 20, "small": 600, "paper": 3600}


def get_config(arg: str = ""):
    arguments = common.parse(
        arg,
        source=FreeText(("",)),
        free=FreeText((r"block_1/mlp",)),
        label=FreeText(("train",)),
        tokens=FreeText(("",)),
        scale=common.SCALES,
    )
    config = common.training("text/finetune", arguments)
    config.task = common.prepared_text("next_token", arguments["tokens"], window=128, batch_of=0)
    config.task.vocab = 0  # vocabulary of the model if larger than the tokenizer's; 0: the same
    config.model = dict(name="loaded", source=arguments["source"])
    below = "/(.*/)?kernel" if arguments["label"].startswith("lora") else "(/.*)?"
    config.partition = ((f"({arguments['free']}){below}", arguments["label"]), (".*", "frozen"))
    config.data.update(test_size=64, validation_size=64)
    config.optim.update(learning_rate=(1e-4,), warmup=10)
    # There is one member. "map" would need a second copy of its parameters, "vmap" does not.
    config.train.update(batch_size=4, steps=100, eval_every=50, loss_chunk=128, members="vmap")
    if arguments["scale"] == "tiny":
        config.task.window = 32
        config.optim.update(learning_rate=(1e-2,), warmup=2)
        config.train.update(steps=10, log_every=5, eval_every=5)
    elif arguments["scale"] == "paper":
        config.task.window = 512
        config.optim.warmup = 100
        config.train.update(batch_size=32, steps=2_000, eval_every=200, loss_chunk=2048)
    return config
