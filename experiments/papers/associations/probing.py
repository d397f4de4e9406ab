"""The probes of a recall run along its training, and what is found at its end."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from experiments.papers.associations import numbers, probes
from jaxformer import surgery
from jaxformer.core.partition import Partition
from jaxformer.tasks.source import Data, Source
from jaxformer.training.callbacks import Callback
from jaxformer.training.metrics import over_seeds
from jaxformer.training.result import Result
from jaxformer.training.run import Trained
from jaxformer.training.session import Session
from jaxformer.training.setup import Setup


def clean(source: Data) -> Source:
    """The same data without noise."""
    assert isinstance(source, Source)
    return dataclasses.replace(source, task=dataclasses.replace(source.task, alpha=0.0))


class Probing(Callback):
    """Measures every member on clean and on noisy data at `steps`; its rows are the record."""

    def __init__(self, setup: Setup, settings: Any, steps: Sequence[int]):
        self.setup, self.settings, self.steps = setup, settings, steps
        self.noisy = jax.device_get(setup.data.heldout().test)
        self.clean = clean(setup.data).heldout().test
        self.probes = probes.make_probes(
            setup.model, setup.task, settings.truncate[-1], settings.followed
        )
        self.shown = probes.shown(setup.task, self.noisy)
        self.ends = {settings.pretrain_steps, steps[-1]}
        self.measure = _every_member(self.probes)
        self.look = _every_member(lambda p: probes.attention_row(setup.model, p, self.shown))

    at_start = True

    def on_start(self, session: Session) -> None:
        self.session = session

    def next_step(self, step: int) -> int:
        return next((s for s in self.steps if s > step), self.steps[-1])

    def on_step(self, state, step: int) -> None:
        halves = (state.trainable, state.frozen)
        values = self.measure(halves, self.clean, self.noisy)
        probed = {name: np.asarray(value).tolist() for name, value in values.items()}
        self.session.workdir.append([{"step": step, "probes": probed}])
        if step in self.ends:
            row_MxT = self.look(halves)
            self.session.workdir.append([{"step": step, "attention": np.asarray(row_MxT).tolist()}])
        correct, noise = (max(probed[name]) for name in ("p_correct", "p_noise"))
        self.session.note = f"p(correct) {correct:.2f}  p(noise) {noise:.2f}"

    def findings(self, trained: Trained) -> tuple[Result, dict[str, Any]]:
        """The result, and the arrays that the figures show."""
        result, rows = trained.result(), trained.session.workdir.rows()
        probed = {row["step"]: row["probes"] for row in rows if "probes" in row}
        steps = np.array(sorted(probed))
        names = probed[steps[0]]
        curves = {name: np.array([probed[s][name] for s in steps], float) for name in names}
        halves = (trained.state.trainable, trained.state.frozen)
        cuts = {pattern: self._truncate(halves, pattern) for pattern in self.settings.truncate}
        kept = numbers.kept(result.members)
        maps, scores = self._memories(halves, kept[0])
        values = numbers.along(steps, curves, self.settings)
        values |= numbers.of_cuts(cuts, self.settings.fractions)
        values |= {name: np.asarray(score) for name, score in scores.items()}
        trivial = numbers.trivial(self.setup.task, jax.device_get(self.clean))
        result = dataclasses.replace(result, baselines={**result.baselines, **trivial})
        arrays = {"steps": steps, "kept": np.array(kept)}
        arrays |= {f"probes/{name}": curve for name, curve in curves.items()}
        arrays |= {
            f"truncated/{pattern}/{name}": np.asarray(found)
            for pattern, cut in cuts.items()
            for name, found in cut.items()
        }
        arrays |= {f"memories/{name}": np.asarray(found) for name, found in maps.items()}
        arrays["memories/seed"] = np.array(result.members[kept[0]]["seed"])
        return _with_numbers(result, values, kept), arrays | self._looks(rows)

    def _looks(self, rows) -> dict[str, np.ndarray]:
        looks = [row for row in rows if "attention" in row]
        target, noise = probes.followers(self.setup.task, self.shown.tokens_T[None])
        return {
            "attention/steps": np.array([row["step"] for row in looks]),
            "attention/weights": np.array([row["attention"] for row in looks], float),
            "attention/tokens": self.shown.tokens_T,
            "attention/query": np.array(self.shown.query),
            "attention/follows": np.array(target[0]) + 2 * np.array(noise[0]),
        }

    def _memories(self, halves, shown: int):
        """The maps of one member, the scores of all."""
        model, task = self.setup.model, self.setup.task
        one = Partition.merge(*jax.tree.map(lambda x: x[shown], halves))

        def scores(params):
            return probes.memory_scores(probes.memories(model, params), task)

        return jax.jit(partial(probes.memories, model))(one), _every_member(scores)(halves)

    def _truncate(self, halves, pattern: str):
        def cuts(params, *sets):
            fractions, measure = self.settings.fractions, lambda cut: self.probes(cut, *sets)
            return surgery.truncations(params, pattern, fractions, measure)

        return _every_member(cuts)(halves, self.clean, self.noisy)


def _every_member(function: Callable) -> Callable:
    """(halves, *sets) -> function(params, *sets) of each member, one after the other."""

    @jax.jit
    def mapped(halves, *sets):
        return jax.lax.map(lambda half: function(Partition.merge(*half), *sets), halves)

    return mapped


def _with_numbers(result: Result, values: dict[str, np.ndarray], kept: list[int]) -> Result:
    """The result with a number for each member, and their means over the kept ones."""
    metrics = {
        name: over_seeds(np.array([m["metrics"][name].mean for m in result.members])[kept])
        for name in result.metrics  # of the noisy test set
    }
    members = []
    for i, member in enumerate(result.members):
        own = {name: over_seeds([value[i]]) for name, value in values.items()}
        members.append(dict(member, metrics=member["metrics"] | own))
        if member["diverged_at"] is not None:
            print(
                f"seed {member['seed']} at rate {member['learning_rate']:g} diverged at step "
                f"{member['diverged_at']}; it is recorded and in no mean."
            )
    metrics |= {name: over_seeds(value[kept]) for name, value in values.items()}
    return dataclasses.replace(result, members=members, metrics=metrics)
