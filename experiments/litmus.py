"""Does a task need in-context reasoning? Freezes parts of a transformer and looks what is lost.

    python experiments/litmus.py --task retrieval --scale tiny --seeds 3

  --task=NAME        retrieval | addition | hops | dyck | modular_addition | memorization
  --config=FILE      instead: a training config of your own with variant=... and scale=...
  --scale=SCALE      tiny (seconds, default) | small (minutes) | paper
  --seeds=N          of every model (default 3)
  --rates=R,R        learning rates to choose from (default: those of the config)
  --variants=V,V     default standard,frozen_qk,mixit,random; standard and mixit are needed
  --processes=N      trainings at a time (default 1)
  --workdir=DIR      default: runs/litmus/TASK-SCALE; the same command goes on where it stopped

Standard trains all, Frozen-QK keeps queries and keys at random, MixiT mixes by a fixed matrix that
does not look at the content, Random trains the embeddings only. Validation chooses the learning
rate of each. The rule, from the top, with differences beyond two combined standard errors (over
seeds, and of the test set) and `trivial` the strongest trivial predictor on the same test set:

  cannot be told   Standard is not above trivial: at this scale there is nothing to explain. Or
                   MixiT is not below Standard, but the error bars hide half of Standard's lead
  not needed       MixiT is not below Standard, and is above trivial
  helps            MixiT is above trivial and below Standard
  needed           MixiT is not above trivial: the task needs attention that looks at the content.
                   Then Frozen-QK says whether random queries and keys are enough

Writes litmus.json (every number) and litmus.png into the workdir.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.ledger.rules import ERRORS, Number
from experiments.page import litmus_figure
from experiments.schedule import launch
from experiments.schedule.launch import Job, Launcher, failures
from experiments.shared import options
from jaxformer.errors import UserError, unknown
from jaxformer.records import Workdir, dumps, write_atomically
from jaxformer.training.progress import clock

TASKS = ("retrieval", "addition", "hops", "dyck", "modular_addition", "memorization")
CANNOT_TELL, NOT_NEEDED, HELPS, NEEDED = "cannot be told", "not needed", "helps", "needed"
NAMES = {
    "standard": "Standard",
    "frozen_qk": "Frozen-QK",
    "frozen_mlp": "Frozen-MLP",
    "mixit": "MixiT",
    "random": "Random",
    "random_mixit": "Random MixiT",
}
DEFAULTS = dict(
    task="",
    config="",
    scale="tiny",
    seeds=3,
    rates="",
    variants="standard,frozen_qk,mixit,random",
    processes=1,
    workdir="",
)


class Trained(NamedTuple):
    """A variant's accuracy on the test set at the rate that validation chose."""

    accuracy: Number  # the error is that over seeds and that of the test set, combined
    seeds: int
    rates: tuple[float, ...]  # chosen
    tried: int
    workdir: str


class Findings(NamedTuple):
    """What came out: a verdict and the sentence that says it with its numbers."""

    verdict: str
    sentence: str


def main(argv: Sequence[str]) -> int:
    if any(word in options.HELP for word in argv):
        print(__doc__)
        return 0
    try:
        return litmus(options.parse(argv, DEFAULTS))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def litmus(asked: Mapping[str, Any]) -> int:
    name, jobs, root = jobs_of(asked)
    waiting = [job for job in jobs.values() if not job.is_finished()]
    print(f"{name}, {asked['scale']}: {len(jobs)} models, {len(waiting)} to train", flush=True)
    with Launcher(asked["processes"]) as launcher:
        outcomes = []
        for outcome in launcher.run(waiting):
            outcomes.append(outcome)
            if not outcome.code:
                print(f"  {outcome.job.name}: {clock(outcome.seconds)}", flush=True)
    if launcher.signal:
        print("stopped; the same command goes on.")
        return 128 + launcher.signal
    if failed := failures(outcomes):
        for outcome in failed:
            print(f"failed: {outcome.job.name}: {outcome.message} ({outcome.job.log()})")
        return 1
    results = {variant: Workdir(job.workdir).read("result.json") for variant, job in jobs.items()}
    trained = {v: read(result, jobs[v].workdir) for v, result in results.items()}
    trivial, value = strongest(results["standard"]["baselines"])
    found = judge(name, trained, trivial, value)
    record = {
        "task": name,
        "scale": asked["scale"],
        "verdict": found.verdict,
        "sentence": found.sentence,
        "trivial": {"name": trivial, "accuracy": value},
        "variants": {v: t._replace(accuracy=t.accuracy._asdict()) for v, t in trained.items()},
    }
    write_atomically(root / "litmus.json", (dumps(record, indent=1) + "\n").encode())
    bars = {NAMES[variant]: t.accuracy for variant, t in trained.items()}
    title = f"{name}, {asked['scale']}: attention to the content {phrase(found.verdict)}"
    litmus_figure.draw(root / "litmus.png", bars, trivial, value, title)
    print(f"{found.sentence}\nnumbers: {root / 'litmus.json'}, figure: {root / 'litmus.png'}")
    return 0


def jobs_of(asked: Mapping[str, Any]) -> tuple[str, dict[str, Job], Path]:
    """(the task's name, a training for each variant, the folder)."""
    if bool(asked["task"]) == bool(asked["config"]):
        raise UserError(f"say --task=NAME, one of {', '.join(TASKS)}, or --config=FILE.")
    if asked["task"] and asked["task"] not in TASKS:
        raise unknown("task", asked["task"], TASKS)
    file, _, arguments = (asked["config"] or f"configs/mixit/{asked['task']}.py").partition(":")
    name = asked["task"] or Path(file).stem
    variants = [word for word in asked["variants"].split(",") if word]
    for variant in variants:
        if variant not in NAMES:
            raise unknown("variant", variant, NAMES)
    if missing := {"standard", "mixit"} - set(variants):
        raise UserError(f"--variants must have standard and mixit, {missing.pop()} is missing.")
    root = Path(asked["workdir"] or f"runs/litmus/{name}-{asked['scale']}")
    overrides = {"n_seeds": str(asked["seeds"])}
    if asked["rates"]:
        overrides["optim.learning_rate"] = asked["rates"]
    more = f",{arguments}" if arguments else ""
    jobs = {}
    for variant in dict.fromkeys(variants):
        config = f"{file}:variant={variant},scale={asked['scale']}{more}"
        if (recipe := launch.settings(config, {})["recipe"]) != "train":
            raise UserError(f"the litmus test needs a training config; {file} is one to {recipe}.")
        jobs[variant] = launch.job(NAMES[variant], config, overrides, root)
    return name, jobs, root


def read(result: Mapping[str, Any], workdir: Path) -> Trained:
    """The accuracy of a finished training with its combined error."""
    chosen = [member for member in result["members"] if member["chosen"]]
    mean = result["metrics"]["accuracy"]["mean"]
    seeds = result["metrics"]["accuracy"]["sem"] or 0.0
    # All seeds are scored on one test set: its error does not shrink with more of them.
    tests = [member["metrics"]["accuracy"]["sem"] or 0.0 for member in chosen]
    error = math.hypot(seeds, sum(tests) / len(tests))
    rates = tuple(dict.fromkeys(member["learning_rate"] for member in chosen))
    tried = len({member["learning_rate"] for member in result["members"]})
    return Trained(Number(mean, error), len(chosen), rates, tried, str(workdir))


def strongest(baselines: Mapping[str, float]) -> tuple[str, float]:
    """The best of the trivial predictors that are scored by accuracy."""
    scores = {name: value for name, value in baselines.items() if not name.endswith("_loss")}
    if not scores:
        raise UserError("the task names no trivial predictors: add some to its `baselines`.")
    return max(scores.items(), key=lambda item: item[1])


def judge(name: str, trained: Mapping[str, Trained], trivial: str, value: float) -> Findings:
    """The rule of the docstring above."""
    chance = Number(value, 0.0)
    standard, mixit = trained["standard"].accuracy, trained["mixit"].accuracy
    said = ", ".join(f"{NAMES[v]} {percent(t.accuracy)}" for v, t in trained.items())
    numbers = f"{said}; {trivial.replace('_', ' ')} {100 * value:.1f} %"
    hidden = ERRORS * math.hypot(standard.sem, mixit.sem) > (standard.mean - value) / 2
    if not is_above(standard, chance):
        verdict = CANNOT_TELL
        words = f"{name} cannot be told at this scale: Standard does not beat {_the(trivial)}"
    elif not is_above(standard, mixit) and hidden:
        verdict = CANNOT_TELL
        words = f"{name} cannot be told: the error bars hide a difference; take more seeds"
    elif is_above(mixit, chance) and not is_above(standard, mixit):
        verdict = NOT_NEEDED
        words = f"{name} does not need attention that looks at the content"
    elif is_above(mixit, chance):
        verdict = HELPS
        way = 100 * (mixit.mean - value) / (standard.mean - value)
        words = (
            f"attention that looks at the content helps {name}: MixiT gets {way:.0f} % of the way "
            f"from {_the(trivial)} to Standard"
        )
    else:
        verdict = NEEDED
        words = f"{name} needs attention that looks at the content"
        if "frozen_qk" in trained:
            words += _frozen(trained["frozen_qk"].accuracy, standard, chance)
    untuned = "" if max(t.tried for t in trained.values()) > 1 else "; one learning rate each"
    seeds = trained["standard"].seeds
    return Findings(verdict, f"{words} ({numbers}; {seeds} seeds{untuned}).")


def _frozen(frozen: Number, standard: Number, chance: Number) -> str:
    if not is_above(standard, frozen):
        return ", and random queries and keys are enough"
    if is_above(frozen, chance):
        return ", and random queries and keys go part of the way"
    return ", and queries and keys must be learned"


def is_above(one: Number, other: Number) -> bool:
    """Beyond two combined standard errors."""
    return one.mean - other.mean > ERRORS * math.hypot(one.sem, other.sem)


def percent(value: Number) -> str:
    return f"{100 * value.mean:.1f} ± {100 * value.sem:.1f} %"


def phrase(verdict: str) -> str:
    return {
        CANNOT_TELL: "cannot be judged",
        NOT_NEEDED: "is not needed",
        HELPS: "helps",
        NEEDED: "is needed",
    }[verdict]


def _the(trivial: str) -> str:
    return f"the trivial predictor ({trivial.replace('_', ' ')})"


if __name__ == "__main__":
    launch.leave_accelerators()
    sys.exit(main(sys.argv[1:]))
