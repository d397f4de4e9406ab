"""Writes the table of plans in docs/devices.md.

    python docs/plan_table.py                          writes the table again from docs/plans.json
    python docs/plan_table.py --compile                compiles every missing row; this takes hours
    python docs/plan_table.py --compile --only=hops    compiles the missing rows of some configs

A row is a training config at scale=paper on a target. The compilers for TPUs and NVIDIA GPUs are
needed (`pip install 'jaxformer[tpu,compile-cuda]'`), accelerators are not.
"""

import argparse
import json
from pathlib import Path

from experiments.cli import flags
from experiments.recipes import plan_targets
from jaxformer.core.errors import UserError
from jaxformer.core.text_format import byte_size
from jaxformer.planning.plan import Plan
from jaxformer.planning.targets import parse_targets

ROOT = Path(__file__).resolve().parents[1]
STORE, PAGE = ROOT / "docs/plans.json", ROOT / "docs/devices.md"
TARGETS = "v5e:4x4,v5p:2x2x1,h100:1,h100:8"
BEGIN, END = "<!-- plans: written by docs/plan_table.py -->\n", "<!-- end of plans -->\n"
HEADER = (
    "| config at `scale=paper` | target | memory of a device | step takes at least | bound by |\n"
    "|---|---|---|---|---|\n"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--only", default="", help="a part of the names of configs")
    parser.add_argument("--targets", default=TARGETS)
    args = parser.parse_args()
    plans = json.loads(STORE.read_text()) if STORE.exists() else {}
    if args.compile:
        compile_missing(plans, args.only, args.targets)
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(before + BEGIN + table(plans) + END + after)


def compile_missing(plans: dict, only: str, targets: str) -> None:
    """Compiles the rows that are not stored, and stores each row as soon as it is compiled."""
    for name in configs():
        if only not in name:
            continue
        for target in parse_targets(targets):
            if target.name in plans.get(name, {}):
                continue
            try:
                (plan,) = plan_targets.plan_targets(name, {}, [target])
            except UserError as error:
                print(f"{name} {target.name}: {error}", flush=True)
                continue
            print(f"{name} {plan}", flush=True)
            plans.setdefault(name, {})[target.name] = plan.as_json()
            STORE.write_text(json.dumps(plans, indent=1, sort_keys=True) + "\n")


def configs() -> list[str]:
    """Returns FILE:ARGUMENTS of the configs that train at scale=paper."""
    names = []
    for file in flags.config_files():
        name = f"{file}:scale=paper"
        try:
            if flags.load_config(name).recipe in ("train", "recall", "look"):
                names.append(name)
        except UserError:  # the config has no scale "paper"
            continue
    return names


def table(plans: dict) -> str:
    """Returns the table of the stored plans."""
    rows = []
    for name, by_target in sorted(plans.items()):
        config = name.removeprefix("configs/").removesuffix(":scale=paper")
        for _, fields in sorted(by_target.items()):
            plan = Plan.from_json(fields)
            memory = f"{byte_size(plan.peak)} of {byte_size(plan.capacity)}"
            if not plan.fits:
                memory = f"does not fit: {memory}"
            time = f"{plan.step_seconds * 1000:.3g} ms" if plan.seconds else "-"
            bound = plan.bound if plan.seconds else "-"
            rows.append(f"| `{config}` | {plan.target} | {memory} | {time} | {bound} |\n")
    return "\n" + HEADER + "".join(rows) + "\n" if rows else ""


if __name__ == "__main__":
    main()
