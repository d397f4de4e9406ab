"""The session of a run: its rows, validation, checkpoints, progress line and result."""

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, setting
from jaxformer.core.partition import FROZEN
from jaxformer.core.settings import TrainSettings
from jaxformer.data.protocols import HeldOut
from jaxformer.io.atomic_files import dumps
from jaxformer.io.checkpoint_writer import Checkpoints
from jaxformer.io.run_folder import Workdir
from jaxformer.runtime.processes import from_process_0, largest
from jaxformer.runtime.progress import Interrupt, Progress, Stopwatch
from jaxformer.tasks.heldout import Drawn
from jaxformer.tasks.task import Batch, Scores
from jaxformer.training import signal
from jaxformer.training.alarm import alarms
from jaxformer.training.callbacks import EVERY_DISPATCH, Callback, Dispatch, Every
from jaxformer.training.cost.throughput import Throughput
from jaxformer.training.metrics import Mean, means_of_members
from jaxformer.training.population import over_chosen
from jaxformer.training.result import Result, result_of
from jaxformer.training.setup import Setup
from jaxformer.training.step import TrainState

SAVE_SECONDS = 60
MOST_PADDED = 1.1  # of the smaller set's examples
CHECKPOINTS = 10  # a run of any length saves at least this many


def heldout_rows(heldout: HeldOut, devices: int) -> int:
    """The examples to which a held-out set is padded, so that one program scores both sets.

    It is 0, for no padding, if the sets differ by much, and where a set is split over devices.
    """
    sizes = sorted(len(batch.inputs) for batch in (heldout.validation, heldout.test))
    is_close = sizes[1] <= MOST_PADDED * sizes[0]
    return sizes[1] if is_close and devices == 1 else 0


def _with_rows(x: Any, n_rows: int) -> Any:
    """Repeats the last row of an array, up to this number of rows."""
    missing = max(n_rows - len(x), 0)
    if not missing:
        return x
    widths = [(0, missing)] + [(0, 0)] * (x.ndim - 1)
    return jnp.pad(x, widths, mode="edge")


@dataclass(eq=False)
class Session(Callback):
    """The state of a run on the host.

    As the last callback it writes the rows of each dispatch (a call of the compiled program, one or
    more steps), saves a checkpoint every SAVE_SECONDS and ends training after a signal.
    """

    setup: Setup  # of the current phase; each phase trains other parameters
    settings: TrainSettings
    workdir: Workdir
    checkpoints: Checkpoints | None
    stopwatch: Stopwatch
    interrupt: Interrupt
    progress: Progress
    drawn: Drawn

    def __post_init__(self):
        self.evaluate = self.setup.evaluation()
        self.heldout = self.drawn.sets
        rows = heldout_rows(self.heldout, self.setup.mesh.size)
        self.validation, self.test = (
            jax.tree.map(lambda x: _with_rows(x, rows), batch)
            for batch in (self.heldout.validation, self.heldout.test)
        )
        self.run_hash = self.workdir.run_hash(self.drawn.identity["examples"])
        self.validations = [row for row in self.workdir.rows() if "validation" in row]
        self.unwritten: list[dict[str, np.ndarray]] = []  # metrics of the steps since the last row
        self.saved_at = time.monotonic()
        self.ending_signal = 0  # number of the Unix signal that ended training
        self.saved_step: int | None = None  # step of the last checkpoint, once the run has ended
        self.loss, self.note = math.nan, ""  # for the progress line
        self.speed = Throughput(self.setup, self.heldout.test.inputs.shape[1])

    def callbacks(self) -> list[Callback]:
        """Returns the callbacks of every run, in the order in which they are called."""
        settings, callbacks = self.settings, []
        if settings.signal:
            callbacks.append(signal.SignalRows(settings.eval_every))
        if self.workdir.loggers is not None:
            callbacks.append(self.workdir.loggers)
        callbacks.append(self.speed)
        if settings.eval_every:
            callbacks.append(Every(settings.eval_every, self.validate))
        interval = max(math.ceil(settings.steps / CHECKPOINTS), 1)
        callbacks.append(Every(interval, self.save))
        return [*callbacks, self]

    def on_dispatch(self, dispatch: Dispatch) -> None:
        self.record(dispatch.first_step, dispatch.metrics)

    def next_step(self, step: int) -> int:
        return EVERY_DISPATCH

    def on_step(self, state: TrainState, step: int) -> bool:
        """Shows progress, saves when due, and returns whether training must stop."""
        signal_number = largest(self.interrupt.signal)  # a signal to one process stops all
        # A stop waits for the end of a row, because a checkpoint cannot store a part of one.
        stop = bool(signal_number) and not self.unwritten
        self.ending_signal = signal_number if stop else 0
        is_due = bool(from_process_0(int(time.monotonic() - self.saved_at > SAVE_SECONDS)))
        if stop or is_due or self.is_finished(step):
            self.save(state, step)
        if self.settings.throughput and (self.speed.is_due() or step == self.settings.steps):
            self.workdir.append_timing({"step": step, "throughput": self.speed.numbers()})
        self.progress.show(step, self.note, loss=self.loss)
        return stop or _all_diverged(state)

    def record(self, first_step: int, metrics: Mapping[str, np.ndarray]) -> None:
        """Writes a row every `log_every` steps: the means since the row before."""
        rows = []
        for i in range(len(metrics["loss"])):
            self.unwritten.append({name: values[i] for name, values in metrics.items()})
            step = first_step + i + 1
            if step % self.settings.log_every == 0 or step == self.settings.steps:
                # Just before a member diverges its sum may be infinite, which is no news to a user.
                with np.errstate(over="ignore"):
                    means = {
                        name: np.mean([of_step[name] for of_step in self.unwritten], axis=0)
                        for name in self.unwritten[0]
                    }
                rows.append({"step": step, **means})
                self.unwritten = []
        self.workdir.append(rows)
        self.loss = float(np.fmin.reduce(metrics["loss"][-1]))  # nan only if all members diverged

    def validate(self, state: TrainState, step: int) -> bool:
        """Writes a row of validation scores and returns whether the run is finished."""
        n_examples = len(self.heldout.validation.inputs)
        scores = self._means(self.scores(state, self.validation, n_examples))
        means = {name: [m[name].mean for m in scores] for name in scores[0]}
        row = json.loads(dumps({"step": step, "validation": means}))
        self.validations.append(row)
        self.workdir.append([row])
        name = self.setup.task.chosen_by
        best = max(means[name]) if name == "accuracy" else np.fmin.reduce(means[name])
        self.note = f"validation {name} {best:.3f}"
        return self.is_finished(step)

    def save(self, state: TrainState, step: int) -> None:
        """Saves a checkpoint, unless the step lies between two rows or all members diverged."""
        # A checkpoint cannot store the metrics since the last row. A finished run loses none: it
        # writes no more rows.
        is_between_rows = self.unwritten and not self.is_finished(step)
        if self.checkpoints and not is_between_rows and not _all_diverged(state):
            metadata = {
                "rules": self.setup.partition.rules,
                "seconds": self.stopwatch.seconds(),
                "rows": self.workdir.rows_fingerprint(),
                "run": self.run_hash,
            }
            self.checkpoints.save(step, state, metadata)
            self.saved_at = time.monotonic()

    def has_reached_target(self, step: int) -> bool:
        """Returns whether the validation at this step reached `train.target`."""
        rows = [row for row in self.validations if row["step"] == step]
        return bool(rows) and self.setup.population.reached(
            _replace_null(rows[-1]["validation"]["accuracy"]), self.settings.target
        )

    def has_stopped_improving(self, step: int) -> bool:
        """Returns whether no member has had a new best validation for `train.patience` rows."""
        if not self.settings.patience:
            return False
        rows = [row for row in self.validations if row["step"] <= step]
        goodness_RxM = np.array([_goodness(row, self.setup.task.chosen_by) for row in rows])
        if len(goodness_RxM) <= self.settings.patience:
            return False
        rows_since_best_M = len(goodness_RxM) - 1 - goodness_RxM.argmax(0)
        return bool((rows_since_best_M >= self.settings.patience).all())

    def is_finished(self, step: int) -> bool:
        """Returns whether training ends at this step."""
        is_last = step >= self.settings.steps
        return is_last or self.has_reached_target(step) or self.has_stopped_improving(step)

    def close(self, state: TrainState) -> None:
        """Waits for the last checkpoint and prints the last progress line."""
        if self.checkpoints:
            self.checkpoints.wait()
            self.saved_step = self.checkpoints.newest_saved()
        step = int(state.step)
        reason = "finished" if step >= self.settings.steps else "stopped"
        if self.has_reached_target(step):
            reason = f"reached {self.settings.target:g} in validation"
        elif self.has_stopped_improving(step):
            reason = "stopped improving in validation"
        self.progress.close("diverged" if _all_diverged(state) else reason)

    def exit_code(self, state: TrainState) -> int:
        """Returns 0 if the run is finished, 1 if a callback ended it, else 128 + the signal.

        Raises:
          UserError: all members diverged. Their last good state stays in the checkpoint.
        """
        step, folder = int(state.step), self.checkpoints and self.checkpoints.folder
        if _all_diverged(state):
            saved = ""
            if self.saved_step:
                saved = f" The last good state is step {self.saved_step} in {folder}."
            raise UserError(
                f"the loss was not finite at step {np.asarray(state.diverged_at).max()}.{saved} "
                f"Try a lower {setting('optim.learning_rate')}."
            )
        if self.is_finished(step):
            return 0
        if not self.ending_signal:
            print(f"a callback ended the run at step {step} of {self.settings.steps}.")
            return 1
        if folder:
            saved = f"step {self.saved_step} is saved" if self.saved_step else "nothing is saved"
            print(f"stopped; {saved}. Run the same command again: it resumes.")
        else:
            steps = self.settings.steps
            print(f"stopped at step {step} of {steps}. Give a workdir to make a run resumable.")
        return 128 + self.ending_signal

    def scores(self, state: TrainState, padded: Batch, n_examples: int) -> dict[str, Scores]:
        """Returns {name: Scores (members, examples)} of a held-out set without its padding."""
        scores = self.evaluate(state.trainable, state.frozen, padded)
        return jax.tree.map(lambda x: x[:, :n_examples], scores)

    def _means(self, scores: dict[str, Scores], mask_MxB: Any = None) -> list[dict[str, Mean]]:
        return means_of_members(scores, self.setup.task.means_of_batches, mask_MxB)

    def test_scores(self, state: TrainState) -> list[dict[str, Mean]]:
        """Returns each member's test scores: means over all, unseen and grouped examples."""
        setup, test = self.setup, self.heldout.test
        scores = self.scores(state, self.test, len(test.inputs))
        means, keys = self._means(scores), setup.population.data_keys()
        # Without a finite training set the function returns None, which vmap passes on.
        unseen_MxB = jax.vmap(lambda key: setup.data.unseen(key, test))(keys)
        if unseen_MxB is not None:
            unseen_MxB = np.asarray(unseen_MxB)
            if not unseen_MxB.all():
                for member, more in zip(means, self._means(scores, unseen_MxB), strict=True):
                    member |= {f"{name}_unseen": value for name, value in more.items() if value.n}
        grouped = {name: scores[name] for name in setup.task.grouped if name in scores}
        for group, in_group_B in setup.task.groups(test).items():
            mask_MxB = np.broadcast_to(np.asarray(in_group_B), (len(means), len(in_group_B)))
            for member, more in zip(means, self._means(grouped, mask_MxB), strict=True):
                member |= {f"{name}/{group}": value for name, value in more.items() if value.n}
        return means

    def chosen(self, state: TrainState) -> list[bool]:
        """Returns which members have the learning rate that is best in validation.

        Before the first validation these are the members with the first rate.
        """
        population = self.setup.population
        if not self.validations:
            return [rate == population.rates[0] for _, rate in population.members]
        has_diverged = np.asarray(state.diverged_at) >= 0
        goodness = _goodness(self.validations[-1], self.setup.task.chosen_by)
        return population.choose(np.where(has_diverged, -math.inf, goodness).tolist())

    def result(self, state: TrainState, share: float) -> Result:
        """Returns the result of the run.

        Args:
          state: the state after the last step.
          share: the fraction of parameters that were trained, averaged over the steps.
        """
        setup, counts, metrics = self.setup, self.setup.counts(), self.test_scores(state)
        trainable = sum(n for label, n in counts.items() if label != FROZEN)
        for member, logged in zip(metrics, self._logged_metrics(), strict=True):
            means = {name: value.mean for name, value in member.items()}
            derived = setup.task.summary(means, trainable) | {"trained_share": share} | logged
            n = member["accuracy"].n
            member |= {name: Mean(value, math.nan, n) for name, value in derived.items()}
        chosen = self.chosen(state)
        baselines = self.drawn.baselines
        members = [
            self._member_entry(i, state) | {"chosen": chosen[i], "metrics": metrics[i]}
            for i in range(len(metrics))
        ]
        # An alarm advises to train in another way, which is no advice for an untrained network.
        is_trained = bool(int(state.step)) and share > 0
        lines = alarms(members, baselines) if is_trained else []
        print(*lines, sep="\n", end="\n" if lines else "", flush=True)
        return result_of(
            self.workdir,
            seeds=setup.population.seeds,
            steps=int(state.step),
            metrics=over_chosen(metrics, chosen),
            members=members,
            baselines=baselines,
            validation_baselines=self.drawn.validation_baselines or None,
            parameters=counts,
            seconds=self.stopwatch.seconds(),
            alarms=[*self.drawn.warnings, *lines] or None,
            performance=self.speed.performance(),
            timing=self.speed.numbers() if self.settings.throughput else None,
        )

    def _logged_metrics(self) -> list[dict[str, float]]:
        """Returns the first and last values of train.probes and train.signal for each member."""
        rows = self.workdir.rows()
        losses = [row for row in rows if "loss" in row]
        probes = self.settings.probes if losses else ()  # a run may end before its first row
        ends = {f"{name}_start": losses[0][name] for name in probes}
        ends |= {f"{name}_end": losses[-1][name] for name in probes}
        members = range(len(self.setup.population.members))
        metrics = [{n: float(np.asarray(ends[n], float)[i]) for n in ends} for i in members]
        signals = [row["signal"] for row in rows if "signal" in row]
        if signals:
            for ending, row in (("start", signals[0]), ("end", signals[-1])):
                for member, summary in zip(metrics, signal.summary(row, ending), strict=True):
                    member |= summary
        return metrics

    def _member_entry(self, i: int, state: TrainState) -> dict[str, Any]:
        """Returns the entry of member i in result.json, without its test metrics."""
        seed, rate = self.setup.population.members[i]
        diverged_at = int(state.diverged_at[i])
        rows = [(row["step"], row["validation"]) for row in self.validations]
        target = self.settings.target
        steps_at_target = (n for n, row in rows if _replace_null(row["accuracy"])[i] >= target)
        # Accuracy, and the score by which a learning rate is chosen if that is another one.
        names = dict.fromkeys(("accuracy", self.setup.task.chosen_by))
        return {
            "seed": seed,
            "learning_rate": rate,
            "chosen_by": self.setup.task.chosen_by,
            **{f"validation_{name}": rows[-1][1][name][i] if rows else None for name in names},
            "reached_at": next(steps_at_target, None),
            "diverged_at": diverged_at if diverged_at >= 0 else None,
        }


def _all_diverged(state: TrainState) -> bool:
    return bool((np.asarray(state.diverged_at) >= 0).all())


def _goodness(row: Mapping[str, Any], name: str) -> list[float]:
    """Returns each member's score `name`, which chooses the rate; a loss is negated."""
    sign = -1 if name == "loss" else 1
    return _replace_null([v if v is None else sign * v for v in row["validation"][name]])


def _replace_null(values: Any) -> list[float]:
    """Returns the values with -inf for None, which JSON has for numbers that are not finite."""
    return [-math.inf if value is None else value for value in values]
