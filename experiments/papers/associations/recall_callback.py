"""The callback that probes recall models during training, and the result of the finished run.

M is the axis of members, T that of tokens. `halves` is the pair (trainable, frozen) of the
parameters of all members. `Partition.merge` joins the pair of one member to the parameters of a
model.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from experiments.papers.associations import recall_probes, recall_summary
from jaxformer import surgery
from jaxformer.core.partition import Partition
from jaxformer.tasks.source import Data, Source
from jaxformer.training.callbacks import Callback
from jaxformer.training.metrics import over_seeds
from jaxformer.training.result import Result
from jaxformer.training.run import Trained
from jaxformer.training.session import Session
from jaxformer.training.setup import Setup


def without_noise(source: Data) -> Source:
    """Returns the same data with the noise probability alpha = 0."""
    assert isinstance(source, Source)
    return dataclasses.replace(source, task=dataclasses.replace(source.task, alpha=0.0))


class RecallCallback(Callback):
    """Probes every member on clean and on noisy data at `steps`, and appends rows to the run."""

    at_start = True

    def __init__(self, setup: Setup, settings: Any, steps: Sequence[int]):
        self.setup, self.settings, self.steps = setup, settings, steps
        self.noisy = jax.device_get(setup.data.heldout().test)
        self.clean = without_noise(setup.data).heldout().test
        self.probes = recall_probes.make_probes(
            setup.model, setup.task, settings.truncate[-1], settings.followed
        )
        self.query = recall_probes.query_to_show(setup.task, self.noisy)
        self.phase_ends = {settings.pretrain_steps, steps[-1]}
        self.measure = _every_member(self.probes)
        self.measure_attention = _every_member(
            lambda params: recall_probes.attention_row(setup.model, params, self.query)
        )

    def on_start(self, session: Session) -> None:
        self.session = session

    def next_step(self, step: int) -> int:
        return next((s for s in self.steps if s > step), self.steps[-1])

    def on_step(self, state, step: int) -> None:
        halves = (state.trainable, state.frozen)
        values = self.measure(halves, self.clean, self.noisy)
        probed = {name: np.asarray(value).tolist() for name, value in values.items()}
        self.session.workdir.append([{"step": step, "probes": probed}])
        if step in self.phase_ends:
            row_MxT = self.measure_attention(halves)
            self.session.workdir.append([{"step": step, "attention": np.asarray(row_MxT).tolist()}])
        correct, noise = (max(probed[name]) for name in ("p_correct", "p_noise"))
        self.session.note = f"p(correct) {correct:.2f}  p(noise) {noise:.2f}"

    def result_and_arrays(self, trained: Trained) -> tuple[Result, dict[str, Any]]:
        """Returns the run's result with its numbers, and the arrays of its figures."""
        result, rows = trained.result(), trained.session.workdir.rows()
        probed = {row["step"]: row["probes"] for row in rows if "probes" in row}
        steps = np.array(sorted(probed))
        probe_names = [*probed[steps[0]]]
        curves = {name: np.array([probed[s][name] for s in steps], float) for name in probe_names}
        halves = (trained.state.trainable, trained.state.frozen)
        cuts = {pattern: self._truncate(halves, pattern) for pattern in self.settings.truncate}
        averaged = recall_summary.averaged_members(result.members)
        maps, scores = self._memories(halves, averaged[0])
        values = recall_summary.summary_of_training(steps, curves, self.settings)
        values |= recall_summary.summary_of_cuts(cuts, self.settings.fractions)
        values |= {name: np.asarray(score) for name, score in scores.items()}
        trivial = recall_summary.trivial_predictors(self.setup.task, jax.device_get(self.clean))
        result = dataclasses.replace(result, baselines={**result.baselines, **trivial})
        arrays = {"steps": steps, "kept": np.array(averaged)}
        arrays |= {f"probes/{name}": curve for name, curve in curves.items()}
        arrays |= {
            f"truncated/{pattern}/{name}": np.asarray(value)
            for pattern, cut in cuts.items()
            for name, value in cut.items()
        }
        arrays |= {f"memories/{name}": np.asarray(heat_map) for name, heat_map in maps.items()}
        arrays["memories/seed"] = np.array(result.members[averaged[0]]["seed"])
        return _with_numbers(result, values, averaged), arrays | self._attention_arrays(rows)

    def _attention_arrays(self, rows) -> dict[str, np.ndarray]:
        rows = [row for row in rows if "attention" in row]
        answer, noise = recall_probes.followers(self.setup.task, self.query.tokens_T[None])
        return {
            "attention/steps": np.array([row["step"] for row in rows]),
            "attention/weights": np.array([row["attention"] for row in rows], float),
            "attention/tokens": self.query.tokens_T,
            "attention/query": np.array(self.query.position),
            # 1 for an answer and 2 for the noise, if a trigger precedes it; 0 for other tokens
            "attention/follows": np.array(answer[0]) + 2 * np.array(noise[0]),
        }

    def _memories(self, halves, member: int):
        """Returns the memories of one member as maps, and the memory scores of all members."""
        model, task = self.setup.model, self.setup.task
        params = Partition.merge(*jax.tree.map(lambda x: x[member], halves))

        def scores(params):
            return recall_probes.memory_scores(recall_probes.memories(model, params), task)

        maps = jax.jit(partial(recall_probes.memories, model))(params)
        return maps, _every_member(scores)(halves)

    def _truncate(self, halves, pattern: str):
        def cuts(params, *sets):
            def measure(cut):
                return self.probes(cut, *sets)

            return surgery.truncations(params, pattern, self.settings.fractions, measure)

        return _every_member(cuts)(halves, self.clean, self.noisy)


def _every_member(function: Callable) -> Callable:
    """Returns mapped(halves, *sets), which applies function(params, *sets) to members in turn."""

    @jax.jit
    def mapped(halves, *sets):
        return jax.lax.map(lambda pair: function(Partition.merge(*pair), *sets), halves)

    return mapped


def _with_numbers(result: Result, values: dict[str, np.ndarray], averaged: list[int]) -> Result:
    """Returns the result with each member's numbers, and their means over the averaged members."""
    metrics = {
        name: over_seeds(np.array([m["metrics"][name].mean for m in result.members])[averaged])
        for name in result.metrics  # on the noisy test set
    }
    members = []
    for i, member in enumerate(result.members):
        numbers = {name: over_seeds([value[i]]) for name, value in values.items()}
        members.append(dict(member, metrics=member["metrics"] | numbers))
        if member["diverged_at"] is not None:
            print(
                f"seed {member['seed']} at rate {member['learning_rate']:g} diverged at step "
                f"{member['diverged_at']}; it is recorded and excluded from all means."
            )
    metrics |= {name: over_seeds(value[averaged]) for name, value in values.items()}
    return dataclasses.replace(result, members=members, metrics=metrics)
