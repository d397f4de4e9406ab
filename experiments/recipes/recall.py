"""Trains a recall model with probes along the way, then cuts it: which part holds the noise?

build -> init or restore -> fit (clean first, if asked) -> probes, truncations -> record

`config.recall`: probe_every; examples of the probed sets; pretrain_steps on clean data (alpha = 0)
before the noisy ones; truncate, the patterns of the matrices to cut; fractions of their rank.
"""

import dataclasses
from typing import Any

import jax
import numpy as np

from experiments import cost, describe, plots, recall_probes, watch
from experiments.recipes.solve import write_arrays
from experiments.session import Session
from experiments.training import Setup, setup
from jaxformer import paths
from jaxformer.checkpoint import Checkpoints, compare, flatten_state, unflatten_state
from jaxformer.errors import UserError
from jaxformer.partition import Partition
from jaxformer.records import Workdir
from jaxformer.tasks.source import Source
from jaxformer.train.loop import Hook, fit
from jaxformer.train.metrics import over_seeds

LAST = 3  # evaluations that a reported number is the mean of
LEARNED = 0.3  # a token is learned when its probability first passes this


def run(config, workdir: Workdir) -> int:
    stages = stages_of(config)
    built = stages[-1][1]
    describe.print_labels(built.partition, built.shapes())
    with Checkpoints(workdir / "ckpt") as checkpoints, watch.Interrupt() as interrupt:
        state, clock = built.create(), watch.Stopwatch()
        if (found := checkpoints.restore()) is not None:
            compare(found.arrays, flatten_state(state), f"the checkpoint of step {found.step}")
            state = unflatten_state(found.arrays, state)
            clock.add(found.note["seconds"])
            print(f"resuming from step {found.step}")
        workdir.cut(int(state.step))
        session = RecallSession(config, built, workdir, checkpoints, interrupt, clock)
        if not int(state.step):
            session.probe(state, 0)
        for end, stage in stages:
            if int(state.step) < end:
                state = fit(
                    state,
                    stage.step(),
                    stage.batch_at(session.heldout.fingerprints),
                    steps=end,
                    record=session.record,
                    hooks=session.hooks(int(state.step)),
                    align=config.train.log_every,
                )
        checkpoints.wait()
        if (diverged := np.asarray(state.diverged_at)).max() >= 0:
            raise UserError(
                f"the loss was not finite at step {diverged.max()}; the last good state is step "
                f"{checkpoints.latest() or 0} in {checkpoints.folder}. "
                "Try a lower --config.optim.learning_rate."
            )
        if not session.finished(int(state.step)):
            print(f"stopped; step {checkpoints.latest()} is saved, the same command goes on.")
            return 128 + interrupt.signal
        result, arrays = session.findings(state)
    write_arrays(workdir, arrays)
    plots.save(_figure(config, built, arrays), workdir / "figure.png")
    plots.save(_memories(built, arrays), workdir / "memories.png")
    workdir.write("result.json", result)
    report(workdir)
    return 0


report = describe.print_result


def dry_run(config) -> None:
    """Prints what a run would train, compute, hold and take."""
    built = stages_of(config)[-1][1]
    describe.print_labels(built.partition, built.shapes())
    cost.print_cost(built, config.train.steps)


def stages_of(config) -> list[tuple[int, Setup]]:
    """[(last step, what is trained until then)]: clean data first if `pretrain_steps` says so."""
    built, settings = setup(config), config.recall
    for pattern in settings.truncate:
        chosen = paths.select(built.shapes(), pattern)
        if not any(leaf.ndim == 2 for leaf in chosen.values()):
            raise UserError(f"LASER needs a matrix, {pattern!r} matches {', '.join(chosen)}.")
    for fraction in settings.fractions:
        if not 0 <= fraction <= 1:
            raise UserError(f"a LASER fraction must be in [0, 1], got {fraction}.")
    if not 0 <= settings.pretrain_steps < config.train.steps or settings.probe_every < 1:
        raise UserError(
            f"recall.pretrain_steps must be 0 to train.steps - 1 = {config.train.steps - 1} and "
            f"recall.probe_every at least 1, got {settings.pretrain_steps} and "
            f"{settings.probe_every}."
        )
    stages = [(config.train.steps, built)]
    if settings.pretrain_steps:
        clean = _clean(built.source)
        stages.insert(0, (settings.pretrain_steps, built._replace(task=clean.task, source=clean)))
    return stages


def _clean(source: Source) -> Source:
    return dataclasses.replace(source, task=dataclasses.replace(source.task, alpha=0.0))


class RecallSession(Session):
    """A session that also probes; its rows are the record of what was learned when."""

    def __init__(self, config, built, workdir, checkpoints, interrupt, clock):
        super().__init__(config, built, workdir, checkpoints, interrupt, clock)
        self.noisy = self.heldout.test
        self.clean = _clean(built.source).heldout().test
        self.probes = recall_probes.make_probes(built.model, built.task)

        def every_member(halves, clean, noisy):
            return jax.lax.map(lambda h: self.probes(Partition.merge(*h), clean, noisy), halves)

        self.measure = jax.jit(every_member)

    def hooks(self, start: int) -> list[Hook]:
        return [Hook(self.config.recall.probe_every, self.probe), *super().hooks(start)]

    def probe(self, state, step: int) -> None:
        values = self.measure((state.trainable, state.frozen), self.clean, self.noisy)
        found = {name: np.asarray(value).tolist() for name, value in values.items()}
        self.workdir.append([{"step": step, "probes": found}])
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
        rows = {r["step"]: r["probes"] for r in self.workdir.rows() if "probes" in r}
        steps = sorted(rows)
        curves = {
            name: np.array([rows[step][name] for step in steps], float) for name in rows[steps[0]]
        }
        arrays: dict[str, Any] = {"steps": np.array(steps)} | {
            f"probes/{name}": values for name, values in curves.items()
        }
        settings = self.config.recall
        for pattern in settings.truncate:
            cuts = self._truncate(state, pattern, settings.fractions)
            arrays |= {f"truncated/{pattern}/{name}": np.asarray(v) for name, v in cuts.items()}
        params = jax.tree.map(lambda x: x[0], Partition.merge(state.trainable, state.frozen))
        maps = jax.jit(lambda p: recall_probes.memories(self.built.model, p))(params)
        arrays |= {f"memories/{name}": np.asarray(values) for name, values in maps.items()}

        numbers = {name: values[-LAST:].mean(0) for name, values in curves.items()}
        numbers["attention_ratio"] = numbers["attention_target"] / np.maximum(
            numbers["attention_noise"], 1e-9
        )
        first = {n: _first_step(steps, curves[n]) for n in ("p_correct", "p_noise")}
        numbers["noise_first"] = (first["p_noise"] < first["p_correct"]) * 1.0
        result = self.result(state)
        result["metrics"] |= {name: over_seeds(values) for name, values in numbers.items()}
        for i, member in enumerate(result["members"]):
            member["metrics"] |= {name: over_seeds([v[i]]) for name, v in numbers.items()}
        return result, arrays

    def _truncate(self, state, pattern: str, fractions):
        @jax.jit
        def every_member(halves, clean, noisy):
            def one(h):
                measure = lambda cut: self.probes(cut, clean, noisy)  # noqa: E731
                return recall_probes.truncations(Partition.merge(*h), pattern, fractions, measure)

            return jax.lax.map(one, halves)

        return every_member((state.trainable, state.frozen), self.clean, self.noisy)


def _first_step(steps, values_SxM) -> np.ndarray:
    """The first probed step at which each member passes LEARNED; inf if never."""
    passed = values_SxM >= LEARNED
    return np.where(passed.any(0), np.array(steps, float)[passed.argmax(0)], np.inf)


def _figure(config, built: Setup, arrays):
    """Probabilities, margin and attention along training, and the cut models."""
    plt = plots.pyplot()
    patterns = config.recall.truncate
    figure, axes = plt.subplots(1, 4, figsize=(15, 3.8), layout="constrained")
    steps = arrays["steps"]
    red, blue = plots.COLOURS[1], plots.COLOURS[0]

    def line(axis, name, colour, style, label):
        if f"probes/{name}" in arrays:
            values = arrays[f"probes/{name}"]
            axis.plot(steps, values.mean(1), color=colour, ls=style, label=label)
            low, high = values.min(1), values.max(1)
            axis.fill_between(steps, low, high, color=colour, alpha=0.12, lw=0)

    endings = (
        ("", "-", "full"),
        ("_without_f2", "--", "without F2"),
        ("_without_f1", ":", "without F1"),
    )
    for ending, style, who in endings:
        line(axes[0], f"p_correct{ending}", blue, style, f"correct, {who}")
        line(axes[0], f"p_noise{ending}", red, style, f"noise, {who}")
    axes[0].set(xlabel="training step", ylabel="probability on clean data", ylim=(-0.02, 1.02))
    line(axes[1], "margin_f2", plots.COLOURS[2], "-", "F2")
    axes[1].axhline(0, color="0.5", lw=1)
    axes[1].set(xlabel="training step", ylabel="margin of the noise in U F2(E[q])")
    line(axes[2], "attention_target", blue, "-", "on ybar")
    line(axes[2], "attention_noise", red, "-", "on the noise")
    line(axes[2], "attention_previous", "0.5", "-", "layer 1: previous token")
    axes[2].set(xlabel="training step", ylabel="attention of the trigger", ylim=(-0.02, 1.02))
    for pattern, marker in zip(patterns, "osv^Dx*", strict=False):
        for name, colour in (("p_correct", blue), ("p_noise", red)):
            values = arrays[f"truncated/{pattern}/{name}"].mean(0)
            label = pattern if name == "p_correct" else None
            axes[3].plot(
                config.recall.fractions, values, "-", marker=marker, ms=3, color=colour, label=label
            )
    axes[3].set(xlabel="fraction of the rank kept", ylabel="probability", ylim=(-0.02, 1.02))
    for axis in (axes[0], axes[2], axes[3]):
        axis.legend(fontsize=6)
    end = {name: arrays[f"probes/{name}"][-LAST:].mean() for name in _probed(arrays)}
    words = [f"{end['p_correct']:.2f} correct / {end['p_noise']:.2f} noise with everything"]
    for part in ("f2", "f1"):
        if f"p_correct_without_{part}" in end:
            correct, noise = (end[f"{p}_without_{part}"] for p in ("p_correct", "p_noise"))
            words.append(f"{correct:.2f} / {noise:.2f} without {part.upper()}")
    figure.suptitle(f"alpha = {config.task.alpha:g}: " + "; ".join(words), fontsize=10)
    return figure


def _probed(arrays) -> list[str]:
    return [name.removeprefix("probes/") for name in arrays if name.startswith("probes/")]


def _memories(built: Setup, arrays):
    """The heat maps of the first member; a bright diagonal is a memory."""
    plt = plots.pyplot()
    titles = {
        "previous_token": "layer 1 looks one back:\n$p_i^T W_K^1 p_j$",
        "induction": "layer 2 matches the trigger:\n$E_i^T W_K^2 W_O^1 W_V^1 E_j$",
        "values": "layer 2 copies:\n$U_j^T W_O^2 W_V^2 E_i$",
        "feed_forward": "F2 stores:\n$U_j^T F_2(E_i)$",
    }
    shown = [name for name in titles if f"memories/{name}" in arrays]
    figure, axes = plt.subplots(
        1, len(shown), figsize=(3.4 * len(shown), 3.8), layout="constrained", squeeze=False
    )
    for axis, name in zip(axes[0], shown, strict=True):
        values = arrays[f"memories/{name}"]
        limit = np.abs(values).max()
        image = axis.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit)
        axis.set_title(titles[name], fontsize=9)
        figure.colorbar(image, ax=axis, shrink=0.7)
    task: Any = built.task
    if "memories/feed_forward" in arrays:
        triggers = task.trigger_tokens
        axes[0, -1].set_xticks([task.noise_token], ["noise"], fontsize=7)
        axes[0, -1].set_yticks(triggers, ["q"] * len(triggers), fontsize=7)
    return figure
