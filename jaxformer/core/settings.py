"""The numbers of a training run that belong to no noun: how long, on what data, on which devices.

A field that equals its default here is not part of what a config says (`records.said`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxformer.core.errors import UserError, check_choice, check_range

# What is larger is a slip of the hand: it is refused before anything is allocated.
SEEDS = 2**32 - 1
EXAMPLES = 2**31 - 1  # of a stream or a training set
HELD = 10**7  # held-out examples, which lie in memory
BATCH = 10**6
STEPS = 2**31 - 1
MEMBERS = ("map", "vmap")  # one after the other, or side by side


@dataclass(frozen=True)
class DataSettings:
    """Sizes of the sets, and the key of those that are common to all members.

    `split` of a task that is drawn: "redraw" keeps the held-out examples out of training, which
    empties that of short ones; "hash" gives a share of all possible examples to each set, so that
    all three have one law.
    """

    seed: int = 12345  # of the held-out sets
    train_size: int = 0  # examples of a finite training set; 0 draws fresh ones for ever
    test_size: int = 1000
    validation_size: int = 1000
    split: str = "redraw"
    test_share: float = 0.125  # of all possible examples, with split = "hash"
    validation_share: float = 0.0625

    def __post_init__(self):
        check_range("data.seed", self.seed, 0, SEEDS)
        check_range("data.train_size", self.train_size, 0, EXAMPLES)
        for name in ("test_share", "validation_share"):
            check_range(f"data.{name}", getattr(self, name), 0, 1)
        for name in ("test_size", "validation_size"):
            check_range(f"data.{name}", getattr(self, name), 1, HELD)


@dataclass(frozen=True)
class OptimSettings:
    """What all labels share; each label has an optimizer of its own."""

    learning_rate: tuple[float, ...] = (1e-3,)  # several are tried; validation chooses
    schedule: str = "cosine"
    warmup: int = 50
    clip: float = 1.0  # global norm over the trainable leaves; 0 is off
    labels: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        check_range("optim.warmup", self.warmup, 0)
        check_range("optim.clip", self.clip, 0)


@dataclass(frozen=True)
class DeviceSettings:
    """The mesh: data=0 takes the devices that the others leave, as many as divide the batch."""

    data: int = 0
    fsdp: int = 1
    tensor: int = 1
    members: int = 1  # parts of the population, each on devices of its own; 0: as many as divide it


@dataclass(frozen=True)
class TrainSettings:
    """How long a run is and how often it looks up."""

    batch_size: int = 128
    steps: int = 1000
    log_every: int = 10
    eval_every: int = 100  # 0: nothing is validated, and no learning rate chosen
    # Members one after the other in one program, or side by side ("vmap": faster where one member
    # does not fill the device, at n times the memory).
    members: str = "map"
    # Stop when all seeds of some learning rate reach it in validation; above 1: never.
    target: float = 2.0
    probes: tuple[str, ...] = ()  # numbers of the forward pass to log at every step
    loss_chunk: int = 0  # positions whose logits are held at once; 0: all
    accumulate: int = 1  # parts of a batch, one in memory at a time; the gradient is the whole's
    throughput: bool = False  # rows of tokens a second, FLOPs and time waiting for data
    signal: bool = False  # rows of each layer's cosine, keys and gradient at every evaluation

    def __post_init__(self):
        if not all(isinstance(name, str) for name in self.probes):
            raise UserError(f"train.probes must be names, got {self.probes}.")
        check_choice("way to compute members", self.members, MEMBERS)
        check_range("train.target", self.target, 0)
        check_range("train.batch_size", self.batch_size, 1, BATCH)
        for name, least in dict(
            steps=1, log_every=1, eval_every=0, loss_chunk=0, accumulate=1
        ).items():
            check_range(f"train.{name}", getattr(self, name), least, STEPS)
        if self.signal and not self.eval_every:
            raise UserError("train.signal looks at every evaluation: it needs train.eval_every.")
