"""Settings of a training run: sizes of data sets, optimizer schedule, devices, length.

A field with its default value is no part of a config's identity (`build.config_identity`). A run
trains a population; its members are the networks with each seed and each learning rate.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxformer.core.errors import UserError, check_choice, check_range, check_type, setting

# Larger values are typing errors. They are refused before memory is allocated.
MAX_SEED = 2**32 - 1
MAX_EXAMPLES = 2**31 - 1  # in a training set
MAX_HELDOUT_EXAMPLES = 10**7  # in a validation or test set, which is kept in memory
MAX_BATCH_SIZE = 10**6
MAX_STEPS = 2**31 - 1
MEMBER_MODES = ("map", "vmap")  # members of a population in sequence, or in parallel


@dataclass(frozen=True)
class DataSettings:
    """Sizes of the training and held-out sets, and the seed of the held-out sets.

    `split` applies to tasks whose examples are drawn. "redraw" draws the held-out sets first and
    removes them from training. A task with few possible examples then has few left for training.
    "hash" gives each set a share of all possible examples, so that all three have the same
    distribution.
    """

    seed: int = 12345  # of the held-out sets, which all members share
    train_size: int = 0  # examples of a finite training set; 0 draws new ones in each step
    test_size: int = 1000  # examples on which a run is scored at its end
    validation_size: int = 1000  # examples that choose the learning rate
    split: str = "redraw"  # how training and held-out examples are separated: redraw | hash
    test_share: float = 0.125  # of all possible examples, with split = "hash"
    validation_share: float = 0.0625  # of all possible examples, with split = "hash"

    def __post_init__(self):
        check_range(setting("data.seed"), self.seed, 0, MAX_SEED)
        check_range(setting("data.train_size"), self.train_size, 0, MAX_EXAMPLES)
        for name in ("test_share", "validation_share"):
            check_range(setting(f"data.{name}"), getattr(self, name), 0, 1)
        for name in ("test_size", "validation_size"):
            check_range(setting(f"data.{name}"), getattr(self, name), 1, MAX_HELDOUT_EXAMPLES)
        _check_whole("data", self, ("seed", "train_size", "test_size", "validation_size"))


@dataclass(frozen=True)
class OptimSettings:
    """Settings of the optimizer that all labels of the partition share."""

    learning_rate: tuple[float, ...] = (1e-3,)  # several are tried; validation chooses one
    schedule: str = "cosine"  # after the warm-up; or "linear", "constant"
    warmup: int = 50  # steps in which the rate rises to its peak
    clip: float = 1.0  # largest global norm of the trainable gradient; 0 turns clipping off
    labels: Mapping[str, Any] = field(default_factory=dict)  # {label: its optimizer}

    def __post_init__(self):
        check_range(setting("optim.warmup"), self.warmup, 0)
        check_range(setting("optim.clip"), self.clip, 0)


@dataclass(frozen=True)
class DeviceSettings:
    """Sizes of the mesh axes (`jaxformer.core.sharding`)."""

    data: int = 0  # parts of a batch; 0: as many as the batch and the remaining devices allow
    fsdp: int = 1  # parts of each parameter and of its optimizer state
    tensor: int = 1  # parts of attention heads and of hidden units
    members: int = 1  # parts of the population on separate devices; 0: as many as divide it


@dataclass(frozen=True)
class TrainSettings:
    """Length of a run, and intervals of logging and validation."""

    batch_size: int = 128  # examples in a step of a member
    steps: int = 1000  # of training
    log_every: int = 10  # steps between logged rows
    eval_every: int = 100  # steps between validations; 0: none, and no choice of a learning rate
    # "map" computes members in sequence, "vmap" in parallel. "vmap" is faster where one member does
    # not fill the device. It takes the memory of all members at once.
    members: str = "map"
    # Validation accuracy at which the run stops, if all seeds of a learning rate reach it; above 1:
    # never.
    target: float = 2.0
    # Validations without a new best score of any member after which a run stops; 0: never.
    patience: int = 0
    probes: tuple[str, ...] = ()  # names of numbers of the forward pass to log (training/probes.py)
    loss_chunk: int = 0  # positions whose logits are in memory at once; 0: all
    # Parts of a batch that are computed in sequence, to save memory. The gradient is that of the
    # whole batch.
    accumulate: int = 1
    throughput: bool = False  # log rows of tokens a second, FLOPs and time waiting for data
    # Log rows of each layer's cosine, keys and gradient (`training/signal.py`) at every validation.
    signal: bool = False

    def __post_init__(self):
        if isinstance(self.probes, str) or not all(isinstance(name, str) for name in self.probes):
            raise UserError(
                f"{setting('train.probes')} must be a sequence of names, got {self.probes!r}."
            )
        check_choice("mode of members", self.members, MEMBER_MODES)
        check_range(setting("train.target"), self.target, 0)
        check_range(setting("train.batch_size"), self.batch_size, 1, MAX_BATCH_SIZE)
        minima = dict(steps=0, log_every=1, eval_every=0, patience=0, loss_chunk=0, accumulate=1)
        for name, minimum in minima.items():
            check_range(setting(f"train.{name}"), getattr(self, name), minimum, MAX_STEPS)
        _check_whole("train", self, ("batch_size", *minima))
        if self.patience and not self.eval_every:
            raise UserError(
                f"{setting('train.patience')} counts validations: it needs "
                f"{setting('train.eval_every')} > 0."
            )
        if self.signal and not self.eval_every:
            raise UserError(
                f"{setting('train.signal')} is measured at every validation: it needs "
                f"{setting('train.eval_every')} > 0."
            )


def _check_whole(section: str, settings: Any, names: Iterable[str]) -> None:
    """Raises a UserError unless these fields are whole numbers."""
    for name in names:
        check_type(setting(f"{section}.{name}"), getattr(settings, name), int)
