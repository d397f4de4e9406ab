"""Draws of a posterior, saved on the way: `collect` ends where an interrupted one would have.

    draws/000000.npz ..   the draws since the save before, every chain's
    state.npz             the sampler's state after them: it names how many draw files belong to it

Draw files come first, then the state that counts them, each whole or absent.
"""

import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.io import npz_store
from jaxformer.runtime.progress import Interrupt, Progress, Stopwatch
from theory import attention_paths

SAVE_SECONDS = 30.0
DISPATCH_SECONDS = 2.0  # so that signals and the progress line stay prompt


class Chains(NamedTuple):
    """What is asked for."""

    sampler: attention_paths.Sampler
    draws: int  # a chain, and how many more at a time
    least_ess: float = 0.0  # effective draws in bulk and tails; 0: the draws asked for are enough
    most_draws: int = 0  # a chain, whatever least_ess says

    @property
    def steps(self) -> int:
        return self.sampler.warmup + self.draws

    def suffice(self, chunks: list[dict]) -> bool:
        """Are the draws as many as asked for?"""
        if not self.least_ess:
            return True
        found = self.sampler.posterior(chunks).diagnostics
        least = min(found[name] for name in ("ess", "ess_bulk", "ess_tail"))
        drawn = found["draws"] // found["chains"]
        print(f"{drawn} draws a chain have {least:.0f} effective ones of {self.least_ess:g} asked")
        return least >= self.least_ess or drawn + self.draws > self.most_draws


def collect(
    asked: Chains, key: jax.Array, folder: Path, interrupt: Interrupt, stopwatch: Stopwatch
) -> list[dict] | None:
    """All chunks of draws, those of earlier sessions included; None if asked to stop."""
    sampler, (state, saved, seconds) = asked.sampler, _restore(asked, key, folder)
    done = int(state.i[0])
    if saved:
        stopwatch.before = seconds
        print(f"resuming from step {done}")
    chunks = [npz_store.read(folder / f"draws/{i:06d}.npz", i) for i in range(saved)]
    if any("energy" not in chunk for chunk in chunks):
        raise UserError(
            f"{folder / 'draws'} holds draws of an older version, which kept no energies; give "
            "another --workdir to start anew."
        )
    goal = asked.steps + max(0, -(-(done - asked.steps) // asked.draws)) * asked.draws
    progress, saved_at, new = Progress(goal, done), time.monotonic(), []
    first, length = True, 1  # the first dispatch compiles, the second is timed
    while done < goal or not asked.suffice(chunks):
        if done == goal:
            goal += asked.draws
            progress.close("more draws")
            progress = Progress(goal, done)
        length, began = min(length, sampler.chunk, goal - done), time.monotonic()
        state, chunk = sampler.advance(state, length)
        done += length
        spent = time.monotonic() - began
        length = max(1, int(DISPATCH_SECONDS * length / spent)) if not first else 5
        first = False
        new.append(chunk)
        stop = bool(interrupt.signal)
        if stop or done == goal or time.monotonic() - saved_at >= SAVE_SECONDS:
            chunks.append(jax.tree.map(lambda *parts: np.concatenate(parts, 1), *new))
            _save(folder, len(chunks), chunks[-1], state, stopwatch.seconds())
            new, saved_at = [], time.monotonic()
        note = "warm-up" if done <= sampler.warmup else ""
        progress.show(done, note, leapfrogs=float(state.num_steps.mean()))
        if stop and done < goal:
            progress.close("stopped")
            print(f"stopped; step {done} is saved, the same command goes on.")
            return None
    progress.close("finished")
    return chunks


def tidy(folder: Path) -> None:
    """Removes what a finished run does not need; also later, if it was killed before it could."""
    shutil.rmtree(folder / "draws", ignore_errors=True)
    (folder / "state.npz").unlink(missing_ok=True)


def _restore(asked: Chains, key, folder: Path) -> tuple[Any, int, dict[str, float]]:
    """(state, draw files that belong to it, seconds spent)."""
    state = asked.sampler.start(key)
    if not (folder / "state.npz").exists():
        return state, 0, {}
    held = npz_store.read(folder / "state.npz")
    leaves, tree = jax.tree.flatten(state)
    found = [held.get(f"leaf_{i}") for i in range(len(leaves))]
    for leaf, array in zip(leaves, found):
        if array is None or array.shape != leaf.shape or array.dtype != leaf.dtype:
            raise UserError(
                f"{folder / 'state.npz'} holds the state of another sampler or version; give "
                "another --workdir to start anew."
            )
    seconds = {name: float(held[name]) for name in ("compile", "run", "cpu")}
    return jax.tree.unflatten(tree, found), int(held["saved"]), seconds


def _save(folder: Path, saved: int, chunk: dict, state, seconds: dict[str, float]) -> None:
    # A chunk says its place, so that one is not taken for another.
    npz_store.write(folder / f"draws/{saved - 1:06d}.npz", chunk | {"place": np.array(saved - 1)})
    leaves = {f"leaf_{i}": leaf for i, leaf in enumerate(jax.tree.leaves(state))}
    npz_store.write(folder / "state.npz", leaves | {"saved": saved} | seconds)
