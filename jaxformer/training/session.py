"""What happens around the steps of a run: rows, validation, checkpoints, progress, the result."""

import json
import math
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jaxformer.errors import UserError
from jaxformer.partition import FROZEN
from jaxformer.processes import agree, any_process
from jaxformer.records import dumps, environment
from jaxformer.tasks.task import Batch
from jaxformer.training import population as populations
from jaxformer.training import progress
from jaxformer.training.loop import Hook
from jaxformer.training.metrics import Mean, weighted_mean
from jaxformer.training.setup import Setup, trained_share
from jaxformer.training.step import TrainState, make_evaluate

SAVE_SECONDS = 60
EVALUATE_BATCH = 250  # examples at once, so that a large test set fits


class Session:
    """The hooks of one run: rows, validation, checkpoints, progress."""

    def __init__(self, config, built: Setup, workdir, checkpoints, interrupt, clock):
        self.config, self.built, self.workdir = config, built, workdir
        self.checkpoints, self.interrupt, self.clock = checkpoints, interrupt, clock
        whole = NamedSharding(built.mesh, PartitionSpec())
        self.evaluate = make_evaluate(built.apply, built.task, EVALUATE_BATCH, whole)
        self.heldout = jax.device_get(built.source.heldout())
        self.validated = [row for row in workdir.rows() if "validation" in row]
        self.window: list[dict[str, np.ndarray]] = []
        self.last = ""

    def hooks(self, start: int) -> list[Hook]:
        train = self.config.train
        self.progress = progress.Progress(train.steps, start)
        self.saved = progress.Timer()
        return [
            Hook(train.eval_every, self.validate),
            Hook(math.ceil(train.steps / 10), self.save),
            Hook(0, self.look_around),
        ]

    def record(self, first: int, metrics: dict[str, np.ndarray]) -> None:
        """One row for every `log_every` steps: the means since the row before."""
        rows, every = [], self.config.train.log_every
        for i in range(len(metrics["loss"])):
            self.window.append({name: values[i] for name, values in metrics.items()})
            step = first + i + 1
            if step % every == 0 or step == self.config.train.steps:
                names = self.window[0]
                means = {n: np.mean([w[n] for w in self.window], axis=0) for n in names}
                rows.append({"step": step, **means})
                self.window = []
        self.workdir.append(rows)
        self.loss = float(np.nanmin(metrics["loss"][-1]))

    def validate(self, state: TrainState, step: int) -> bool:
        scores = self.score(state, self.heldout.validation)
        means = {name: [m[name].mean for m in scores] for name in scores[0]}
        row = json.loads(dumps({"step": step, "validation": means}))
        self.validated.append(row)
        self.workdir.append([row])
        self.last = f"validation accuracy {max(means['accuracy']):.3f}"
        return self.finished(step)

    def save(self, state: TrainState, step: int) -> None:
        # Between rows there is a part of a window that a checkpoint does not hold.
        if not self.window and not (np.asarray(state.diverged_at) >= 0).all():
            note = {"rules": self.built.partition.rules, "seconds": self.clock.seconds()}
            self.checkpoints.save(step, state, note)
            self.saved = progress.Timer()

    def look_around(self, state: TrainState, step: int) -> bool:
        """After each dispatch: show where we are, save when it is time, stop when asked."""
        stop = any_process(bool(self.interrupt.signal)) and not self.window
        late = bool(agree(int(self.saved.seconds() > SAVE_SECONDS)))
        if stop or late or self.finished(step):
            self.save(state, step)
        self.progress.show(step, self.last, loss=self.loss)
        return stop or bool((np.asarray(state.diverged_at) >= 0).all())

    def finished(self, step: int) -> bool:
        """At the last step, or at one whose validation reached the target (as the rows say)."""
        if step >= self.config.train.steps:
            return True
        rows = [row for row in self.validated if row["step"] == step]
        target = self.config.train.target
        return bool(rows) and self.built.members.reached(
            _numbers(rows[-1]["validation"]["accuracy"]), target
        )

    def stopped(self, state: TrainState) -> int:
        """0 if the run is at its end, else the exit code of one that goes on later.

        A run of which every member diverged ends here, with its last good state kept.
        """
        diverged = np.asarray(state.diverged_at)
        if (diverged >= 0).all():
            raise UserError(
                f"the loss was not finite at step {diverged.max()}; the last good state is step "
                f"{self.checkpoints.latest() or 0} in {self.checkpoints.folder}. "
                "Try a lower --config.optim.learning_rate."
            )
        if self.finished(int(state.step)):
            return 0
        print(f"stopped; step {self.checkpoints.latest()} is saved, the same command goes on.")
        return 128 + self.interrupt.signal

    def score(self, state: TrainState, batch: Batch, unseen=None) -> list[dict[str, Mean]]:
        """Per member, the mean of each score over a set (or over its part `unseen`)."""
        scores = self.evaluate(state.trainable, state.frozen, batch)
        n = len(self.built.members.members)
        part = np.ones((n, batch.inputs.shape[0])) if unseen is None else np.asarray(unseen)
        return [
            {
                name: weighted_mean(np.asarray(s.value)[i], np.asarray(s.weight)[i] * part[i])
                for name, s in scores.items()
            }
            for i in range(n)
        ]

    def result(self, state: TrainState) -> dict[str, Any]:
        built, test = self.built, self.heldout.test
        counts = built.partition.count(built.shapes())
        trainable = sum(n for label, n in counts.items() if label != FROZEN)
        share = trained_share(self.config, int(state.step))
        metrics = self.score(state, test)
        if built.source.train_size:
            unseen = jax.vmap(lambda k: built.source.unseen(k, test))(built.members.data_keys())
            for mine, more in zip(metrics, self.score(state, test, unseen), strict=True):
                mine |= {f"{name}_unseen": value for name, value in more.items()}
        for mine in metrics:
            means = {name: value.mean for name, value in mine.items()}
            derived = built.task.summary(means, trainable) | {"trained_share": share}
            n = mine["accuracy"].n
            mine |= {name: Mean(value, math.nan, n) for name, value in derived.items()}
        validation = self.validated
        final = _numbers(validation[-1]["validation"]["accuracy"])
        diverged = [int(step) for step in state.diverged_at]
        chosen = built.members.choose(
            [-math.inf if d >= 0 else v for d, v in zip(diverged, final, strict=True)]
        )
        held = self.workdir.read("config.json")
        return {
            **{name: held[name] for name in ("config", "overrides", "config_hash")},
            "scale": self.config.arguments.scale,
            "seeds": built.members.seeds,
            "steps": int(state.step),
            "metrics": populations.over_chosen(metrics, chosen),
            "members": [
                {
                    "seed": seed,
                    "learning_rate": rate,
                    "chosen": chosen[i],
                    "metrics": metrics[i],
                    "validation_accuracy": final[i],
                    "reached_at": _first(validation, i, self.config.train.target),
                    "diverged_at": diverged[i] if diverged[i] >= 0 else None,
                }
                for i, (seed, rate) in enumerate(built.members.members)
            ],
            "baselines": built.task.baselines(jax.device_get(test)),
            "parameters": counts,
            "environment": environment(),
            "seconds": self.clock.seconds(),
        }


def _numbers(values) -> list[float]:
    """null, which JSON has for a number that is not finite, counts as never good."""
    return [-math.inf if value is None else value for value in values]


def _first(rows, member: int, target: float) -> int | None:
    """The first validated step at which a member reached the target."""
    hits = (r["step"] for r in rows if _numbers(r["validation"]["accuracy"])[member] >= target)
    return next(hits, None)
