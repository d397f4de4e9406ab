"""Samples the Bayesian posterior by NUTS, in dispatches that are saved on the way.

problem -> Sampler -> (advance, save)* -> expectations with Monte Carlo errors -> record

    draws/000000.npz ..   the draws since the save before, every chain's
    state.npz             the sampler's state after them: it names how many draw files belong to it

Draw files come first, then the state that counts them, each whole or absent: a run killed at any
moment goes on from the last state and ends with the draws of an uninterrupted one.
"""

import hashlib
import io
import math
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.papers.attention_paths import posterior as drawing
from experiments.papers.attention_paths import problem
from experiments.shared import ending
from jaxformer.errors import UserError, check_range
from jaxformer.records import Workdir, write_atomically
from jaxformer.training.metrics import Mean
from jaxformer.training.progress import Interrupt, Progress, Stopwatch
from jaxformer.training.result import result_of
from theory import attention_paths
from theory.attention_paths.diagnostics import monte_carlo_error

SAVE_SECONDS = 30.0
DISPATCH_SECONDS = 2.0  # so that signals and the progress line stay prompt
SHOWN = ("divergences", "r_hat", "ess", "num_steps", "num_steps_max", "tree_depth_max")  # metrics


class Setup(NamedTuple):
    """What a config builds."""

    data: problem.Example
    sampler: attention_paths.Sampler
    draws: int  # a chain, and how many more at a time
    least_ess: float  # effective draws in bulk and tails; 0: the draws asked for are enough
    most_draws: int  # a chain, whatever least_ess says

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


def setup(config) -> Setup:
    """The problem and the sampler, every argument checked; nothing is compiled."""
    settings = config.posterior.to_dict()
    draws, width = settings.pop("draws"), settings.pop("width")
    least_ess, most_draws = settings.pop("least_ess"), settings.pop("most_draws")
    check_range("posterior.least_ess", least_ess, 0.0)
    check_range("posterior.most_draws", most_draws, 0)
    file = config.data.file
    data = problem.example(config.seed, **({"file": file} if file else config.task.to_dict()))
    width = width[0] if len(width) == 1 else width
    given = (data.attentioned, data.labels, width, settings.pop("temperature"), data.heads)
    sampler = attention_paths.Sampler.build(*given, **settings)
    per_chain = math.ceil(draws / sampler.chains)
    if per_chain < 4:
        raise UserError(
            "posterior.draws must be at least 4 a chain, else there is no error to report; got "
            f"{draws} draws in {sampler.chains} chains."
        )
    return Setup(data, sampler, per_chain, least_ess, math.ceil(most_draws / sampler.chains))


def run(config, workdir: Workdir) -> int:
    with jax.enable_x64(True):
        built, stopwatch = setup(config), Stopwatch()
        with Interrupt() as interrupt:
            chunks = collect(built, jax.random.key(config.seed), workdir, interrupt, stopwatch)
        if chunks is None:
            return 128 + interrupt.signal
        posterior = built.sampler.posterior(chunks)
        metrics, baselines, arrays = summarise(built, posterior)
        arrays |= drawing.shown(built.data.names, posterior, metrics)
    ending.write_arrays(workdir, arrays)
    redraw(workdir)
    result = result_of(
        workdir,
        seeds=[config.seed],
        metrics=metrics,
        baselines=baselines,
        parameters={"sampled": _size(built.sampler)},
        diagnostics=posterior.diagnostics,
        trusted=not posterior.doubts,
        doubts=posterior.doubts or None,
        seconds=stopwatch.seconds(),
    )
    ending.write(workdir, result)
    tidy(workdir)
    return ending.code(workdir)


def redraw(workdir: Workdir, name: str = "") -> Path:
    """The figure, here or in a file of another name, from its arrays alone."""
    return ending.redraw(workdir, name, lambda *held: {"figure": figure(*held)})


def figure(_, arrays):
    return drawing.draw(arrays)


def tidy(workdir: Workdir) -> None:
    """Removes what a finished run does not need; also later, if it was killed before it could."""
    shutil.rmtree(workdir / "draws", ignore_errors=True)  # arrays.npz has them all
    (workdir / "state.npz").unlink(missing_ok=True)


def collect(built: Setup, key, workdir: Workdir, interrupt, stopwatch) -> list[dict] | None:
    """All chunks of draws, those of earlier sessions included; None if asked to stop."""
    sampler, (state, saved, seconds) = built.sampler, _restore(built, key, workdir)
    done = int(state.i[0])
    if saved:
        stopwatch.before = seconds
        print(f"resuming from step {done}")
    chunks = [_read(workdir / f"draws/{i:06d}.npz", i) for i in range(saved)]
    if any("energy" not in chunk for chunk in chunks):
        raise UserError(
            f"{workdir / 'draws'} holds draws of an older version, which kept no energies; give "
            "another --workdir to start anew."
        )
    goal = built.steps + max(0, -(-(done - built.steps) // built.draws)) * built.draws
    progress, saved_at, new = Progress(goal, done), time.monotonic(), []
    first, length = True, 1  # the first dispatch compiles, the second is timed
    while done < goal or not built.suffice(chunks):
        if done == goal:
            goal += built.draws
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
            _save(workdir, len(chunks), chunks[-1], state, stopwatch.seconds())
            new, saved_at = [], time.monotonic()
        note = "warm-up" if done <= sampler.warmup else ""
        progress.show(done, note, leapfrogs=float(state.num_steps.mean()))
        if stop and done < goal:
            progress.close("stopped")
            print(f"stopped; step {done} is saved, the same command goes on.")
            return None
    progress.close("finished")
    return chunks


def summarise(built: Setup, posterior) -> tuple[dict[str, Mean], dict[str, float], dict[str, Any]]:
    """(metrics, baselines, arrays): E[U] with Monte Carlo errors, predictor, diagnostics."""
    data, sampler = built.data, built.sampler
    rows, columns = np.triu_indices(len(data.names))
    names = [f"U/{data.names[i]},{data.names[j]}" for i, j in zip(rows, columns)]
    energies = posterior.energies()
    drawn = np.concatenate([posterior.U[:, rows, columns], energies[:, None]], 1)
    by_chain = drawn.reshape(sampler.chains, -1, drawn.shape[1])
    metrics = dict(zip((*names, "energy"), map(_mean, np.moveaxis(by_chain, 2, 0)), strict=True))
    accuracy, tests = data.accuracy(posterior.mean(data.attentioned_test)), len(data.labels_test)
    error = (accuracy * (1 - accuracy) / tests) ** 0.5 if data.is_classes else math.nan
    metrics["accuracy"] = Mean(accuracy, error, tests)
    for name in SHOWN:
        metrics[name] = Mean(float(posterior.diagnostics[name]), math.nan, len(posterior.U))

    temperature = sampler.problem.temperature
    theory = attention_paths.order_parameter(
        data.attentioned, data.labels, sampler.problem.widths, temperature, data.heads
    )
    mean, _ = attention_paths.predict(theory, data.attentioned, data.labels, data.attentioned_test)
    baselines = {
        "accuracy_theory": data.accuracy(mean),
        "accuracy_gp_limit": data.accuracy_at(np.eye(len(data.names)), temperature),
        "accuracy_chance": data.accuracy(_most_frequent(data)),
    }
    arrays = {
        "U": posterior.U,
        "U_theory": theory.U,
        "U_effective": posterior.gram_effective(),
        "U_effective_theory": attention_paths.gram_effective(theory, data.attentioned.shape[2]),
        "energies": energies,
        "mean_test": posterior.mean(data.attentioned_test),
        "variance_test": posterior.variance(data.attentioned_test),
        "labels_test": data.labels_test,
    }
    if posterior.theta is not None:
        arrays["theta"] = posterior.theta
    return metrics, baselines, arrays


def _most_frequent(data: problem.Example) -> np.ndarray:
    """The best constant answer of each output: the larger class, or the mean."""
    means = np.asarray(data.labels_test).mean(0)
    constant = np.where(means < 0, -1.0, 1.0) if data.is_classes else means
    return np.broadcast_to(constant, data.labels_test.shape)


def _mean(values_CxS: np.ndarray) -> Mean:
    """With its Monte Carlo error and effective draws; none of a chain that stands still."""
    error, variance = float(monte_carlo_error(values_CxS)), float(values_CxS.var())
    effective = int(variance / error**2) if error > 0 else 0
    return Mean(float(values_CxS.mean()), error if effective else math.nan, effective)


def _restore(built: Setup, key, workdir: Workdir) -> tuple[Any, int, dict[str, float]]:
    """(state, draw files that belong to it, seconds spent)."""
    state = built.sampler.start(key)
    if not (workdir / "state.npz").exists():
        return state, 0, {}
    held = _read(workdir / "state.npz")
    leaves, tree = jax.tree.flatten(state)
    found = [held.get(f"leaf_{i}") for i in range(len(leaves))]
    for leaf, array in zip(leaves, found):
        if array is None or array.shape != leaf.shape or array.dtype != leaf.dtype:
            raise UserError(
                f"{workdir / 'state.npz'} holds the state of another sampler or version; give "
                "another --workdir to start anew."
            )
    seconds = {name: float(held[name]) for name in ("compile", "run", "cpu")}
    return jax.tree.unflatten(tree, found), int(held["saved"]), seconds


def _save(workdir: Workdir, saved: int, chunk: dict, state, seconds: dict[str, float]) -> None:
    (workdir / "draws").mkdir(exist_ok=True)
    # A chunk says its place, so that one is not taken for another.
    _write(workdir / f"draws/{saved - 1:06d}.npz", chunk | {"place": np.array(saved - 1)})
    leaves = {f"leaf_{i}": leaf for i, leaf in enumerate(jax.tree.leaves(state))}
    _write(workdir / "state.npz", leaves | {"saved": saved} | seconds)


def _write(file, arrays: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    held: Any = {name: np.asarray(array) for name, array in arrays.items()}
    np.savez(buffer, **held, sha256=np.array(_sum(held)))
    write_atomically(file, buffer.getvalue())


def _sum(arrays: dict[str, np.ndarray]) -> str:
    """The checksum of all arrays with their names."""
    said = hashlib.sha256()
    for name in sorted(arrays):
        said.update(f"{name} {arrays[name].dtype} {arrays[name].shape} ".encode())
        said.update(np.ascontiguousarray(arrays[name]).tobytes())
    return said.hexdigest()


def _read(file: Path, place: int = -1) -> dict[str, np.ndarray]:
    try:
        with np.load(file) as held:
            arrays = dict(held)
        said = arrays.pop("sha256", None)  # older files have none
        if said is not None and str(said) != _sum(arrays):
            raise ValueError("it does not have its checksum")
        if int(arrays.pop("place", np.array(place))) != place:
            raise ValueError("it is another one of its folder")
        return arrays
    except Exception as error:  # a damaged zip fails in many ways
        raise UserError(
            f"{file} is damaged ({error}); give another --workdir to start anew."
        ) from None


def _size(sampler: attention_paths.Sampler) -> int:
    """Numbers that NUTS moves."""
    problem = sampler.problem
    if sampler.method == "collapsed":
        return problem.layout.size
    widths, n = problem.widths, problem.attentioned.shape[2]
    values = sum(a * h * b for a, h, b in zip(widths, problem.heads, widths[1:]))
    return n * widths[0] + values + widths[-1]


def dry_run(config) -> None:
    with jax.enable_x64(True):
        built = setup(config)
    sampler = built.sampler
    print(
        f"would sample {_size(sampler):,} numbers ({sampler.method}): {sampler.chains} chains of "
        f"{sampler.warmup} warm-up steps and {built.draws} draws, {len(built.data.names)} paths, "
        f"widths {sampler.problem.widths}"
    )
