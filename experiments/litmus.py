"""Does a task need in-context reasoning? Freezes parts of a transformer and looks what is lost.

    python experiments/litmus.py --task retrieval --scale tiny --seeds 3

  --task=NAME        retrieval, addition, hops, dyck, ..: the configs of configs/ with variant=mixit
  --config=FILE      instead: a training config of your own with variant=... and scale=...
  --scale=SCALE      tiny (seconds, default) | small (minutes) | paper
  --seeds=N          of every model (default 3)
  --rates=R,R        learning rates to choose from (default: those of the config)
  --variants=V,V     default standard,frozen_qk,mixit,random; standard and mixit are needed
  --processes=N      trainings at a time (default: as many as the devices allow; 1 on a CPU)
  --devices-per-run=N  GPUs or TPU chips of each training (default 1)
  --workdir=DIR      default: runs/litmus/TASK-SCALE; the same command goes on where it stopped

Standard trains all, Frozen-QK keeps queries and keys at random, MixiT mixes by a fixed matrix that
does not look at the content, Random trains the embeddings only. Validation chooses the learning
rate of each. The first case that applies is the verdict. "Above" and "below" mean that the 95 %
interval of a difference excludes zero (Student's t over seeds, with the error of the test set);
`trivial` is the strongest trivial predictor on the same test set:

  cannot be told   Standard is not above trivial: at this scale there is nothing to explain. Or
                   MixiT is not below Standard, but the error bars hide half of Standard's lead
  not needed       MixiT is not below Standard, and is above trivial
  helps            MixiT is above trivial and below Standard
  needed           MixiT is not above trivial: the task needs attention that looks at the content.
                   Then Frozen-QK says whether random queries and keys are enough

Writes litmus.json (every number) and litmus.png into the workdir.
"""

try:
    import experiments  # noqa: F401 (first of all: it says what Ctrl-C ends)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (ends here, and says how to find a Python that has it)

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from experiments.cli import describe, flags
from experiments.ledger import read, write
from experiments.schedule import devices, launch, litmus_rule
from experiments.schedule.estimates import Estimator
from experiments.schedule.jobs import Job
from experiments.schedule.running import run_all
from experiments.site import litmus_figure
from jaxformer.core.errors import UserError, check_choice
from jaxformer.io.atomic_files import write_json
from jaxformer.io.run_folder import Workdir
from jaxformer.runtime.command_line import Parser, command, count

# Arguments of a config that the litmus test sets itself, and the flags for them.
OWN = {"variant": "--variants=V,V", "scale": "--scale=SCALE"}


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--task", default="")
    parser.add_argument("--config", default="")
    parser.add_argument("--scale", default="tiny")
    parser.add_argument("--seeds", type=count, default=3)
    parser.add_argument("--rates", default="")
    parser.add_argument("--variants", default="standard,frozen_qk,mixit,random")
    devices.add_flags(parser)
    parser.add_argument("--workdir", type=Path)
    asked = parser.parse_args(argv)
    name, file = task_of(asked)
    root = asked.workdir or Path(f"runs/litmus/{name.replace(' ', '-')}-{asked.scale}")
    jobs = jobs_of(asked, file, root)
    waiting = [job for job in jobs.values() if not job.is_finished()]
    print(f"{name}, {asked.scale}: {len(jobs)} models, {len(waiting)} to train", flush=True)
    if code := run_all(waiting, devices.slots_from_flags(asked)):
        return code
    results = {variant: Workdir(job.workdir).read("result.json") for variant, job in jobs.items()}
    trained = {v: litmus_rule.read(result, jobs[v].workdir) for v, result in results.items()}
    trivial, value = litmus_rule.strongest(results["standard"]["baselines"])
    verdict, sentence = litmus_rule.judge(name, trained, trivial, value)
    record = {
        "task": name,
        "scale": asked.scale,
        "verdict": verdict,
        "sentence": sentence,
        "trivial": {"name": trivial, "accuracy": value},
        "variants": trained,
    }
    write_json(root / "litmus.json", record)
    litmus_figure.draw(root / "litmus.png", record)
    print(f"{sentence}\nnumbers: {root / 'litmus.json'}, figure: {root / 'litmus.png'}")
    return 0


def task_of(asked: Namespace) -> tuple[str, str]:
    """(the task's name, its config "FILE:ARGUMENTS")."""
    known = flags.training_configs("mixit")
    if bool(asked.task) == bool(asked.config):
        raise UserError(f"say --task=NAME, one of {', '.join(known)}, or --config=FILE.")
    if asked.config:
        file, _, arguments = asked.config.partition(":")
        words = [word for word in arguments.split(",") if word]
        for word in words:
            if (argument := word.partition("=")[0]) in OWN:
                raise UserError(f"--config has {word}; say it by {OWN[argument]} instead.")
        return " ".join([Path(file).stem, *words]), asked.config
    check_choice("task", asked.task, known)
    return asked.task, known[asked.task]


def jobs_of(asked: Namespace, config: str, root: Path) -> dict[str, Job]:
    """A training for each variant."""
    file, _, arguments = config.partition(":")
    variants = [word for word in asked.variants.split(",") if word]
    overrides = {"n_seeds": str(asked.seeds)}
    if asked.rates:
        overrides["optim.learning_rate"] = asked.rates
    more = f",{arguments}" if arguments else ""
    texts = {
        variant: f"{file}:variant={variant},scale={asked.scale}{more}"
        for variant in dict.fromkeys(variants)
    }
    held = {}
    for variant, text in texts.items():
        if (recipe := launch.config_dict(text, {})["recipe"]) != "train":
            raise UserError(f"the litmus test needs a training config; {file} is one to {recipe}.")
        held[variant] = launch.config_dict(text, overrides)
    if missing := {"standard", "mixit"} - set(texts):
        raise UserError(f"--variants must have standard and mixit, {missing.pop()} is missing.")
    estimate = Estimator(read.load(write.RESULTS)[0])  # seconds, so that mistakes come first
    return {
        variant: launch.make_job(
            describe.label(variant), text, overrides, root, seconds=estimate(held[variant])
        )
        for variant, text in texts.items()
    }


if __name__ == "__main__":
    launch.use_cpu_only()
    sys.exit(main(sys.argv[1:]))
