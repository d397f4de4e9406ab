"""What happens around the steps of a run: rows, validation, checkpoints, progress, the result."""

import json
import math
import sys
import time
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jaxformer.core.errors import UserError
from jaxformer.core.partition import FROZEN, Partition
from jaxformer.core.settings import TrainSettings
from jaxformer.io.atomic_files import dumps
from jaxformer.io.checkpoint_writer import Checkpoints
from jaxformer.io.run_folder import Workdir
from jaxformer.runtime.loggers import Listener
from jaxformer.runtime.processes import agree, is_writer, largest
from jaxformer.runtime.progress import Interrupt, Progress, Stopwatch
from jaxformer.tasks.task import Batch, Scores
from jaxformer.training import signal
from jaxformer.training.alarm import alarms
from jaxformer.training.loop import Hook
from jaxformer.training.metrics import Mean, means_of_members
from jaxformer.training.population import over_chosen
from jaxformer.training.result import Result, result_of
from jaxformer.training.setup import Setup
from jaxformer.training.step import TrainState, make_evaluate
from jaxformer.training.throughput import Throughput

SAVE_SECONDS = 60
EVALUATE_BATCH = 250  # examples at once, so that a large test set fits
MOST_LOGITS = 2**28  # and of a large vocabulary fewer


@dataclass(eq=False)
class Session:
    """The hooks of one run. `setup` is that of the phase which is trained now."""

    setup: Setup
    settings: TrainSettings
    workdir: Workdir
    checkpoints: Checkpoints | None
    stopwatch: Stopwatch
    interrupt: Interrupt
    progress: Progress

    def __post_init__(self):
        self.evaluate = evaluation(self.setup)
        self.heldout = jax.device_get(self.setup.data.heldout())
        self.validated = [row for row in self.workdir.rows() if "validation" in row]
        self.window: list[dict[str, np.ndarray]] = []
        self.saved = time.monotonic()  # when the last checkpoint was
        self.asked = 0  # the signal that ended the steps
        self.kept: int | None = None  # its step, once the run has ended
        self.loss, self.note = math.nan, ""  # what the progress line says
        self.speed = Throughput(self.setup, self.heldout.test.inputs.shape[1])
        self.watch = None
        if self.settings.signal:
            tokens, members = self.heldout.validation.inputs, self.setup.members.members
            whole = NamedSharding(self.setup.mesh, PartitionSpec())
            self.watch = signal.Watch(self.setup.model, tokens, members, whole)

    def hooks(self) -> list[Hook]:
        every = self.settings.eval_every
        return [
            *([Hook(every, self.validate)] if every else []),
            Hook(math.ceil(self.settings.steps / 10), self.save),
            Hook(0, self.after_dispatch),
        ]

    def looks(self) -> list[Hook]:
        """Also before the first step: train.signal at every evaluation, and the listeners."""
        mine = [Hook(self.settings.eval_every, self.look, at_start=True)] if self.watch else []
        return [*mine, *(_heard(one, self.settings.steps) for one in self.workdir.loggers)]

    def look(self, state: TrainState, step: int) -> None:
        """A row of the signal by layer; a line for each range that a layer has left."""
        assert self.watch
        row = self.watch.row(Partition.merge(state.trainable, state.frozen))
        self.workdir.append([{"step": step, "signal": row}])
        for words in self.watch.warnings(row) if is_writer() else []:
            if self.progress.line:
                self.progress.line.clear()
            print(f"warning: step {step}: {words}", file=sys.stderr)

    def record(self, first: int, metrics: dict[str, np.ndarray]) -> None:
        """One row for every `log_every` steps: the means since the row before."""
        rows = []
        for i in range(len(metrics["loss"])):
            self.window.append({name: values[i] for name, values in metrics.items()})
            step = first + i + 1
            if step % self.settings.log_every == 0 or step == self.settings.steps:
                names = self.window[0]
                means = {n: np.mean([w[n] for w in self.window], axis=0) for n in names}
                rows.append({"step": step, **means})
                self.window = []
        self.workdir.append(rows)
        self.loss = float(np.fmin.reduce(metrics["loss"][-1]))  # nan only if all are

    def timed(self, steps: int, seconds: float, waited: float) -> None:
        """Hears of every dispatch."""
        self.speed.hear(steps, seconds, waited)

    def validate(self, state: TrainState, step: int) -> bool:
        scores = self.score(state, self.heldout.validation)
        means = {name: [m[name].mean for m in scores] for name in scores[0]}
        row = json.loads(dumps({"step": step, "validation": means}))
        self.validated.append(row)
        self.workdir.append([row])
        score = self.setup.task.chosen_by
        best = max(means[score]) if score == "accuracy" else np.fmin.reduce(means[score])
        self.note = f"validation {score} {best:.3f}"
        return self.is_finished(step)

    def save(self, state: TrainState, step: int) -> None:
        # Between rows there is a part of a window that a checkpoint does not hold.
        # The end by a target may lie there too; then no row is written any more.
        between = self.window and not self.is_finished(step)
        if self.checkpoints and not between and not _all_diverged(state):
            note = {"rules": self.setup.partition.rules, "seconds": self.stopwatch.seconds()}
            self.checkpoints.save(step, state, note | {"rows": self.workdir.rows_fingerprint()})
            self.saved = time.monotonic()

    def after_dispatch(self, state: TrainState, step: int) -> bool:
        """Shows where we are, saves when it is time, stops when asked."""
        asked = largest(self.interrupt.signal)  # of whichever process was asked
        stop = bool(asked) and not self.window
        self.asked = asked if stop else 0
        late = bool(agree(int(time.monotonic() - self.saved > SAVE_SECONDS)))
        if stop or late or self.is_finished(step):
            self.save(state, step)
        rows = self.settings.throughput
        if rows and (self.speed.is_due() or step == self.settings.steps):
            self.workdir.append([{"step": step, "throughput": self.speed.numbers()}])
        self.progress.show(step, self.note, loss=self.loss)
        return stop or _all_diverged(state)

    def has_reached(self, step: int) -> bool:
        """Did the validation of this step reach the target (as the rows say)?"""
        rows = [row for row in self.validated if row["step"] == step]
        return bool(rows) and self.setup.members.reached(
            _numbers(rows[-1]["validation"]["accuracy"]), self.settings.target
        )

    def is_finished(self, step: int) -> bool:
        return step >= self.settings.steps or self.has_reached(step)

    def close(self, state: TrainState) -> None:
        """Waits until all is saved, and says why the steps end here."""
        if self.checkpoints:
            self.checkpoints.wait()
            self.kept = self.checkpoints.newest_saved()
        step = int(state.step)
        reason = "finished" if step >= self.settings.steps else "stopped"
        if self.has_reached(step):
            reason = f"reached {self.settings.target:g} in validation"
        self.progress.close("diverged" if _all_diverged(state) else reason)

    def ended(self, state: TrainState) -> int:
        """0: the run is finished; else the exit code of one that goes on later.

        A run of which every member diverged ends with an error, its last good state kept.
        """
        step, folder = int(state.step), self.checkpoints and self.checkpoints.folder
        if _all_diverged(state):
            kept = f" the last good state is step {self.kept} in {folder}." if self.kept else ""
            raise UserError(
                f"the loss was not finite at step {np.asarray(state.diverged_at).max()};{kept} "
                "Try a lower learning rate (optim.learning_rate)."
            )
        if self.is_finished(step):
            return 0
        if folder:
            kept = f"step {self.kept} is saved" if self.kept else "nothing is saved yet"
            print(f"stopped; {kept}, the same command goes on.")
        else:
            steps = self.settings.steps
            print(f"stopped at step {step} of {steps}; with a workdir it could go on later.")
        return 128 + self.asked

    def score(self, state: TrainState, batch: Batch) -> list[dict[str, Mean]]:
        """Per member, the mean of each score over a set."""
        return self._means(self.evaluate(state.trainable, state.frozen, batch))

    def _means(self, scores: dict[str, Scores], part=None) -> list[dict[str, Mean]]:
        return means_of_members(scores, self.setup.task.means_of_batches, part)

    def test_scores(self, state: TrainState) -> list[dict[str, Mean]]:
        """Per member, the test scores: of all, of what training lacks, of each group."""
        setup, test = self.setup, self.heldout.test
        scores = self.evaluate(state.trainable, state.frozen, test)
        found, keys = self._means(scores), setup.members.data_keys()
        if setup.data.unseen(keys[0], test) is not None:
            part = np.asarray(jax.vmap(lambda key: setup.data.unseen(key, test))(keys))
            if not part.all():
                for mine, more in zip(found, self._means(scores, part), strict=True):
                    mine |= {f"{name}_unseen": value for name, value in more.items() if value.n}
        grouped = {name: scores[name] for name in setup.task.grouped if name in scores}
        for group, of_group in setup.task.groups(test).items():
            part = np.broadcast_to(np.asarray(of_group), (len(found), len(of_group)))
            for mine, more in zip(found, self._means(grouped, part), strict=True):
                mine |= {f"{name}/{group}": value for name, value in more.items() if value.n}
        return found

    def chosen(self, state: TrainState) -> list[bool]:
        """Which members have the rate that is best in validation; before that, the first rate."""
        members, score = self.setup.members, self.setup.task.chosen_by
        if not self.validated:
            return [rate == members.rates[0] for _, rate in members.members]
        found = self.validated[-1]["validation"][score]
        # Of a loss the lowest is the best; null is never good.
        final = _numbers([-v if v is not None and score == "loss" else v for v in found])
        lost = np.asarray(state.diverged_at) >= 0
        return members.choose(np.where(lost, -math.inf, final).tolist())

    def result(self, state: TrainState, share: float) -> Result:
        """What the run found; `share` of the parameters was trained on average."""
        setup, counts, metrics = self.setup, self.setup.counts(), self.test_scores(state)
        trainable = sum(n for label, n in counts.items() if label != FROZEN)
        for mine, probed in zip(metrics, self._probed(), strict=True):
            means = {name: value.mean for name, value in mine.items()}
            derived = setup.task.summary(means, trainable) | {"trained_share": share} | probed
            derived |= self.speed.numbers() if self.settings.throughput else {}
            n = mine["accuracy"].n
            mine |= {name: Mean(value, math.nan, n) for name, value in derived.items()}
        chosen = self.chosen(state)
        baselines = setup.task.baselines(jax.device_get(self.heldout.test))
        members = [
            self._member(i, state) | {"chosen": chosen[i], "metrics": metrics[i]}
            for i in range(len(metrics))
        ]
        raised = alarms(members, baselines)
        print(*raised, sep="\n", end="\n" if raised else "", flush=True)
        return result_of(
            self.workdir,
            seeds=setup.members.seeds,
            steps=int(state.step),
            metrics=over_chosen(metrics, chosen),
            members=members,
            baselines=baselines,
            parameters=counts,
            seconds=self.stopwatch.seconds(),
            alarms=raised or None,
            performance=self.speed.performance(),
        )

    def _probed(self) -> list[dict[str, float]]:
        """Per member, each probe in the first row and in the last; the same of the signal."""
        written = self.workdir.rows()
        rows = [row for row in written if "loss" in row]
        ends = {f"{name}_start": rows[0][name] for name in self.settings.probes}
        ends |= {f"{name}_end": rows[-1][name] for name in self.settings.probes}
        members = range(len(self.setup.members.members))
        probed = [{n: float(np.asarray(ends[n], float)[i]) for n in ends} for i in members]
        seen = [row["signal"] for row in written if "signal" in row]
        for ending, row in zip(("start", "end"), (seen[0], seen[-1])) if seen else ():
            for mine, worst in zip(probed, signal.summary(row, ending), strict=True):
                mine |= worst
        return probed

    def _member(self, i: int, state: TrainState) -> dict[str, Any]:
        seed, rate = self.setup.members.members[i]
        diverged = int(state.diverged_at[i])
        rows = [(row["step"], row["validation"]) for row in self.validated]
        hits = (n for n, row in rows if _numbers(row["accuracy"])[i] >= self.settings.target)
        # Accuracy, and what a learning rate is chosen by where that is another score.
        names = dict.fromkeys(("accuracy", self.setup.task.chosen_by))
        return {
            "seed": seed,
            "learning_rate": rate,
            "chosen_by": self.setup.task.chosen_by,
            **{f"validation_{name}": rows[-1][1][name][i] if rows else None for name in names},
            "reached_at": next(hits, None),
            "diverged_at": diverged if diverged >= 0 else None,
        }


def evaluation(setup: Setup) -> Any:
    """evaluate(trainable, frozen, batch) -> per-example Scores of all members, on every device."""
    task, at_once = setup.task, EVALUATE_BATCH
    if not setup.loss_chunk:  # else the logits are never held whole
        at_once = max(min(at_once, MOST_LOGITS // max(task.n_scored * task.answers, 1)), 1)
    return make_evaluate(setup.apply, task, at_once, setup.mesh)


def _heard(one: Listener, steps: int) -> Hook:
    """The hook of a listener, which is left alone until the end when it waits for no step."""
    return Hook(lambda step: one.after(step) or steps, one.at, at_start=True)


def _all_diverged(state: TrainState) -> bool:
    return bool((np.asarray(state.diverged_at) >= 0).all())


def _numbers(values) -> list[float]:
    """null, which JSON has for a number that is not finite, counts as never good."""
    return [-math.inf if value is None else value for value in values]
