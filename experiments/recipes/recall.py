"""Trains a recall model with probes along the way, then cuts it: which part holds the noise?

build -> init or restore -> fit (clean first, if asked) -> probes, truncations -> record

`config.recall`: probe_every; the `early` steps, of which every second is probed; pretrain_steps on
clean data (alpha = 0) before the noisy ones; truncate, the patterns of the matrices to cut; the
fractions of their rank, and those `followed` along training.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.papers.associations import numbers as found_numbers
from experiments.papers.associations import plots as recall_plots
from experiments.papers.associations import probes
from experiments.recipes.solve import write_arrays
from experiments.shared import describe, plots
from jaxformer import paths
from jaxformer.checkpoint import Checkpoints, compare, flatten_state, unflatten_state
from jaxformer.errors import UserError
from jaxformer.partition import Partition
from jaxformer.records import Workdir
from jaxformer.tasks.source import Source
from jaxformer.training import cost, progress
from jaxformer.training.loop import Hook, fit
from jaxformer.training.metrics import over_seeds
from jaxformer.training.session import Session
from jaxformer.training.setup import Setup, setup


def run(config, workdir: Workdir) -> int:
    stages = stages_of(config)
    built = stages[-1].built
    describe.print_labels(built.partition, built.shapes())
    with Checkpoints(workdir / "ckpt") as checkpoints, progress.Interrupt() as interrupt:
        state, clock = built.create(), progress.Stopwatch()
        if (found := checkpoints.restore()) is not None:
            compare(found.arrays, flatten_state(state), f"the checkpoint of step {found.step}")
            state = unflatten_state(found.arrays, state)
            clock.add(found.note["seconds"])
            print(f"resuming from step {found.step}")
        workdir.cut(int(state.step))
        session = RecallSession(config, built, workdir, checkpoints, interrupt, clock)
        if not int(state.step):
            session.probe(state, 0)
        for stage in stages:
            if session.finished(int(state.step)) or int(state.step) >= stage.end:
                continue
            state = fit(
                state,
                stage.built.step(),
                stage.built.batch_at(session.heldout.fingerprints),
                steps=stage.end,
                record=session.record,
                hooks=[Hook(stage.probe_every, session.probe), *session.hooks(int(state.step))],
                align=config.train.log_every,
            )
            if int(state.step) < stage.end:
                break
        checkpoints.wait()
        if code := session.stopped(state):
            return code
        result, arrays = session.findings(state)
    write_arrays(workdir, arrays)
    plots.save(recall_plots.training(config, arrays), workdir / "figure.png")
    plots.save(recall_plots.memories(built.task, arrays), workdir / "memories.png")
    if arrays["attention/follows"].any():  # drawn triggers are not the same in every sequence
        plots.save(recall_plots.attention(config, arrays), workdir / "attention.png")
    workdir.write("result.json", result)
    report(workdir)
    return 0


report = describe.print_result


def dry_run(config) -> None:
    """Prints what a run would train, compute, hold and take."""
    built = stages_of(config)[-1].built
    describe.print_labels(built.partition, built.shapes())
    cost.print_cost(built, config.train.steps)


class Stage(NamedTuple):
    """What is trained until step `end`, and how often it is probed."""

    end: int
    built: Setup
    probe_every: int


def stages_of(config) -> list[Stage]:
    """Clean data first if `pretrain_steps` says so; the early steps of both are stages too."""
    built, settings = setup(config), config.recall
    for pattern in settings.truncate:
        chosen = paths.select(built.shapes(), pattern)
        if not any(leaf.ndim == 2 for leaf in chosen.values()):
            raise UserError(f"LASER needs a matrix, {pattern!r} matches {', '.join(chosen)}.")
    for fraction in (*settings.fractions, *settings.followed):
        if not 0 <= fraction <= 1:
            raise UserError(f"a LASER fraction must be in [0, 1], got {fraction}.")
    if not settings.truncate or not settings.fractions:
        raise UserError("recall.truncate and recall.fractions must name something to cut.")
    if not 0 <= settings.pretrain_steps < config.train.steps or settings.probe_every < 1:
        raise UserError(
            f"recall.pretrain_steps must be 0 to train.steps - 1 = {config.train.steps - 1} and "
            f"recall.probe_every at least 1, got {settings.pretrain_steps} and "
            f"{settings.probe_every}."
        )
    if settings.early < 0:
        raise UserError(f"recall.early must be at least 0, got {settings.early}.")
    kinds = [(0, config.train.steps, built)]
    if settings.pretrain_steps:
        clean = _clean(built.source)
        first = built._replace(task=clean.task, source=clean)
        kinds = [(0, settings.pretrain_steps, first)]
        kinds.append((settings.pretrain_steps, config.train.steps, built))
    stages = []
    for begin, end, kind in kinds:
        dense = min(begin + settings.early, end)
        if dense > begin:
            stages.append(Stage(dense, kind, 2))
        if dense < end:
            stages.append(Stage(end, kind, settings.probe_every))
    return stages


def _clean(source: Source) -> Source:
    return dataclasses.replace(source, task=dataclasses.replace(source.task, alpha=0.0))


class RecallSession(Session):
    """A session that also probes; its rows are the record of what was learned when."""

    def __init__(self, config, built, workdir, checkpoints, interrupt, clock):
        super().__init__(config, built, workdir, checkpoints, interrupt, clock)
        self.noisy = self.heldout.test
        self.clean = _clean(built.source).heldout().test
        settings = config.recall
        self.probes = probes.make_probes(
            built.model, built.task, settings.truncate[-1], settings.followed
        )
        self.shown = probes.shown(built.task, self.noisy)
        self.ends = {settings.pretrain_steps, config.train.steps}

        def every_member(halves, clean, noisy):
            return jax.lax.map(lambda h: self.probes(Partition.merge(*h), clean, noisy), halves)

        self.measure = jax.jit(every_member)

    def probe(self, state, step: int) -> None:
        halves = (state.trainable, state.frozen)
        values = self.measure(halves, self.clean, self.noisy)
        found = {name: np.asarray(value).tolist() for name, value in values.items()}
        self.workdir.append([{"step": step, "probes": found}])
        if step in self.ends:
            look = lambda h: probes.attention_row(  # noqa: E731
                self.built.model, Partition.merge(*h), self.shown
            )
            row_MxT = jax.jit(lambda halves: jax.lax.map(look, halves))(halves)
            self.workdir.append([{"step": step, "attention": np.asarray(row_MxT).tolist()}])
        self.last = (
            f"p(correct) {max(found['p_correct']):.2f}  p(noise) {max(found['p_noise']):.2f}"
        )

    def validate(self, state, step: int) -> bool:
        last = self.last
        done = super().validate(state, step)
        self.last = last or self.last
        return done

    def findings(self, state) -> tuple[dict[str, Any], dict[str, Any]]:
        """The result, and the arrays that the figures show."""
        settings, result = self.config.recall, self.result(state)
        rows = {r["step"]: r["probes"] for r in self.workdir.rows() if "probes" in r}
        steps = sorted(rows)
        curves = {
            name: np.array([rows[step][name] for step in steps], float) for name in rows[steps[0]]
        }
        cuts = {p: self._truncate(state, p, settings.fractions) for p in settings.truncate}
        halves = (state.trainable, state.frozen)
        maps, scores = self._memories(halves)
        kept = found_numbers.kept(result["members"])
        numbers = found_numbers.along(np.array(steps), curves, settings)
        numbers |= found_numbers.of_cuts(cuts, settings.fractions)
        numbers |= {name: np.asarray(values) for name, values in scores.items()}
        for name in result["metrics"]:  # of the noisy test set
            values = [m["metrics"][name].mean for m in result["members"]]
            result["metrics"][name] = over_seeds(np.array(values)[kept])
        result["metrics"] |= {name: over_seeds(values[kept]) for name, values in numbers.items()}
        for i, member in enumerate(result["members"]):
            member["metrics"] |= {name: over_seeds([v[i]]) for name, v in numbers.items()}
            if member["diverged_at"] is not None:
                print(
                    f"seed {member['seed']} at rate {member['learning_rate']:g} diverged at step "
                    f"{member['diverged_at']}; it is recorded and in no mean."
                )
        looks = [row for row in self.workdir.rows() if "attention" in row]
        arrays: dict[str, Any] = {"steps": np.array(steps), "kept": np.array(kept)}
        arrays |= {f"probes/{name}": values for name, values in curves.items()}
        arrays |= {
            f"truncated/{pattern}/{name}": np.asarray(values)
            for pattern, cut in cuts.items()
            for name, values in cut.items()
        }
        arrays |= {f"memories/{name}": np.asarray(values) for name, values in maps.items()}
        target, noise = probes.followers(self.built.task, self.shown.tokens_T[None])
        arrays |= {
            "attention/steps": np.array([row["step"] for row in looks]),
            "attention/weights": np.array([row["attention"] for row in looks], float),
            "attention/tokens": self.shown.tokens_T,
            "attention/query": np.array(self.shown.query),
            "attention/follows": np.array(target[0]) + 2 * np.array(noise[0]),
        }
        return result, arrays

    def _memories(self, halves):
        """The maps of the first member, the scores of all."""
        model, task = self.built.model, self.built.task

        @jax.jit
        def every_member(halves):
            def one(h):
                maps = probes.memories(model, Partition.merge(*h))
                return maps, probes.memory_scores(maps, task)

            first = jax.tree.map(lambda x: x[0], halves)
            return one(first)[0], jax.lax.map(lambda h: one(h)[1], halves)

        return every_member(halves)

    def _truncate(self, state, pattern: str, fractions):
        @jax.jit
        def every_member(halves, clean, noisy):
            def one(h):
                measure = lambda cut: self.probes(cut, clean, noisy)  # noqa: E731
                return probes.truncations(Partition.merge(*h), pattern, fractions, measure)

            return jax.lax.map(one, halves)

        return every_member((state.trainable, state.frozen), self.clean, self.noisy)
