"""Draws of a posterior that are saved at intervals, so that an interrupted run can resume.

    draws/000000.npz ..   the draws of all chains since the previous save
    state.npz             the sampler's state after these draws, and the number of draw files

Each save writes the draw file first and then the state with the new number of draw files. Each file
is written completely or not at all.
"""

import math
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
# The time of one compiled call; short, so that signals and the progress line are handled soon.
DISPATCH_SECONDS = 2.0


class Chains(NamedTuple):
    """A sampler and the number of draws to collect."""

    sampler: attention_paths.Sampler
    draws: int  # per chain; as many draws are added, repeatedly, until min_ess is reached
    min_ess: float = 0.0  # the effective sample size to reach, in bulk and tails; 0: no goal
    max_draws: int = 0  # per chain; the most draws, even if min_ess is not reached

    @property
    def steps(self) -> int:
        return self.sampler.warmup + self.draws

    def are_complete(self, chunks: list[dict]) -> bool:
        """Returns whether the effective sample size or the maximal number of draws is reached."""
        if not self.min_ess:
            return True
        diagnostics = self.sampler.posterior(chunks).diagnostics
        ess = min(diagnostics[name] for name in ("ess", "ess_bulk", "ess_tail"))
        n_draws = diagnostics["draws"] // diagnostics["chains"]
        print(f"{n_draws} draws per chain: effective sample size {ess:.0f}, goal {self.min_ess:g}")
        return ess >= self.min_ess or n_draws + self.draws > self.max_draws


def collect(
    chains: Chains, key: jax.Array, folder: Path, interrupt: Interrupt, stopwatch: Stopwatch
) -> list[dict] | None:
    """Draws until the chains are complete, resuming from the files in the folder.

    Args:
        chains: the sampler and the number of draws.
        key: the random key of the sampler's start.
        folder: the folder of the draw files and the state.
        interrupt: the signal handler; on a signal, the state is saved.
        stopwatch: the time of the run, to which the time of earlier sessions is added.

    Returns:
        All chunks of draws, also from earlier sessions. A chunk is the content of one draw file.
        None if a signal stopped the sampler.
    """
    sampler = chains.sampler
    state, n_saved, seconds = _restore(chains, key, folder)
    done = int(state.i[0])  # steps of each chain
    if n_saved:
        stopwatch.before = seconds
        print(f"resuming from step {done}")
    chunks = [npz_store.read(folder / f"draws/{i:06d}.npz", i) for i in range(n_saved)]
    if any("energy" not in chunk for chunk in chunks):
        raise UserError(
            f"{folder / 'draws'} holds draws of an older version, without energies; give "
            "another --workdir to start again."
        )
    # An earlier session may have continued beyond the first `chains.steps` steps.
    extensions = max(0, math.ceil((done - chains.steps) / chains.draws))
    goal = chains.steps + extensions * chains.draws
    progress = Progress(goal, done)
    saved_at, unsaved = time.monotonic(), []
    # The first dispatch, of one step, compiles. The second, of a few steps, measures the time.
    is_first, length = True, 1
    while done < goal or not chains.are_complete(chunks):
        if done == goal:
            goal += chains.draws
            progress.close("more draws")
            progress = Progress(goal, done)
        length, began = min(length, sampler.chunk, goal - done), time.monotonic()
        state, chunk = sampler.advance(state, length)
        done += length
        elapsed = time.monotonic() - began
        length = 5 if is_first else max(1, int(DISPATCH_SECONDS * length / elapsed))
        is_first = False
        unsaved.append(chunk)
        must_stop = bool(interrupt.signal)
        if must_stop or done == goal or time.monotonic() - saved_at >= SAVE_SECONDS:
            chunks.append(jax.tree.map(lambda *parts: np.concatenate(parts, 1), *unsaved))
            _save(folder, len(chunks), chunks[-1], state, stopwatch.seconds())
            unsaved, saved_at = [], time.monotonic()
        note = "warm-up" if done <= sampler.warmup else ""
        progress.show(done, note, leapfrogs=float(state.num_steps.mean()))
        if must_stop and done < goal:
            progress.close("stopped")
            print(f"stopped; step {done} is saved. Run the same command again: it resumes.")
            return None
    progress.close("finished")
    return chunks


def tidy(folder: Path) -> None:
    """Deletes the draw files and the state, which a finished run does not need."""
    shutil.rmtree(folder / "draws", ignore_errors=True)
    (folder / "state.npz").unlink(missing_ok=True)


def _restore(chains: Chains, key, folder: Path) -> tuple[Any, int, dict[str, float]]:
    """Returns (sampler state, number of draw files, seconds of earlier sessions)."""
    state = chains.sampler.start(key)
    if not (folder / "state.npz").exists():
        return state, 0, {}
    saved = npz_store.read(folder / "state.npz")
    leaves, tree = jax.tree.flatten(state)
    arrays = [saved.get(f"leaf_{i}") for i in range(len(leaves))]
    for leaf, array in zip(leaves, arrays):
        if array is None or array.shape != leaf.shape or array.dtype != leaf.dtype:
            raise UserError(
                f"{folder / 'state.npz'} holds the state of another sampler or version; give "
                "another --workdir to start again."
            )
    seconds = {name: float(saved[name]) for name in ("compile", "run", "cpu")}
    return jax.tree.unflatten(tree, arrays), int(saved["saved"]), seconds


def _save(folder: Path, n_files: int, chunk: dict, state, seconds: dict[str, float]) -> None:
    """Saves the chunk as the last of `n_files` draw files, then the state."""
    # A chunk stores its number as "place", so that exchanged files are detected.
    number = n_files - 1
    npz_store.write(folder / f"draws/{number:06d}.npz", chunk | {"place": np.array(number)})
    leaves = {f"leaf_{i}": leaf for i, leaf in enumerate(jax.tree.leaves(state))}
    npz_store.write(folder / "state.npz", leaves | {"saved": n_files} | seconds)
