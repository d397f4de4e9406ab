"""Writes RESULTS.md, and the numbers in README.md, from the records in results/.

    python experiments/report.py            writes the pages
    python experiments/report.py --check    exits 1 if they are not what the records say

A record is written by `python experiments/run.py ... --record`. One that is damaged, of an unknown
schema, or of a config that has changed since is named and shown as such, never silently used.
"""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from configs.common import VARIANTS
from experiments import flags
from experiments.describe import number
from jaxformer.errors import UserError
from jaxformer.records import SCHEMA, config_hash

ROOT = flags.ROOT
START, END = "<!-- numbers -->", "<!-- /numbers -->"
Record = dict[str, Any]
# What a table shows first; everything else stays in the record.
SHOWN = ("accuracy", "accuracy_existing", "accuracy_hard", "bits_per_parameter", "trained_share")
IN_README = ("mixit/retrieval", "mixit/memorization")


def main(argv: Sequence[str]) -> int:
    if any(word in ("--help", "-h") for word in argv):
        print(__doc__)
        return 0
    for word in argv:
        if word != "--check":
            print(f"error: unknown word {word!r}; the only flag is --check.", file=sys.stderr)
            return 2
    pages = {ROOT / name: text for name, text in render(*load(ROOT / "results")).items()}
    changed = [file.name for file, text in pages.items() if file.read_text() != text]
    if "--check" in argv:
        print(f"out of date: {', '.join(changed)}" if changed else "the pages are up to date")
        return 1 if changed else 0
    for file, text in pages.items():
        file.write_text(text)
    print(f"wrote {', '.join(file.name for file in pages)}")
    return 0


def load(folder: Path) -> tuple[list[Record], list[str]]:
    """(usable records, one line for each that is not)."""
    records, problems = [], []
    for file in sorted(folder.glob("*.json")):
        try:
            record = json.loads(file.read_text())
            if record["schema"] != SCHEMA:
                raise ValueError(f"schema {record['schema']}, this version reads {SCHEMA}")
            record["stale"] = is_stale(record)
            records.append(record)
        except (ValueError, KeyError) as error:
            problems.append(f"{file.name}: {type(error).__name__} {error}")
    return records, problems


def is_stale(record: Record) -> bool:
    """Would the same command run another config today?"""
    try:
        config = flags.load_config(record["config_file"])
        for name, value in record["overrides"].items():
            flags.override(config, name, _spelled(value))
    except UserError:
        return True
    return config_hash(flags.plain(config)) != record["config_hash"]


def command(record: Record) -> str:
    """The line that makes the record again."""
    words = [f"--config={record['config_file']}"]
    words += [f"--config.{name}={_spelled(v)}" for name, v in record["overrides"].items()]
    return "python experiments/run.py " + " ".join(map(shlex.quote, words))


def render(records: list[Record], problems: list[str]) -> dict[str, str]:
    """The text of each page."""
    groups: dict[str, list[Record]] = {}
    for record in sorted(records, key=_order):
        groups.setdefault(_title(record), []).append(record)
    lines = ["# Results", ""]
    lines += ["Made from `results/` by `python experiments/report.py`; a command a line.", ""]
    for title, group in groups.items():
        lines += [f"## {title}", "", *_table(group), ""]
        lines += [f"    {command(record)}" for record in group] + [""]
    if problems:
        lines += ["## Records that cannot be used", ""] + [f"- {p}" for p in problems] + [""]
    readme = (ROOT / "README.md").read_text()
    before, _, rest = readme.partition(START)
    after = rest.partition(END)[2]
    kept = [(title, g) for title, g in groups.items() if g[0]["config"]["name"] in IN_README]
    numbers = "\n\n".join("\n".join([f"**{title}**", "", *_table(g)]) for title, g in kept)
    readme = f"{before}{START}\n{numbers}\n{END}{after}" if rest else readme
    return {"RESULTS.md": "\n".join(lines).rstrip() + "\n", "README.md": readme}


def _table(group: list[Record]) -> list[str]:
    names = [name for name in SHOWN if any(name in r["metrics"] for r in group)]
    names = names or sorted({name for r in group for name in r["metrics"]})[:8]
    head = ["variant", *(n.replace("_", " ") for n in names), "rate", "steps", "CPU s", "code"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for record in group:
        chosen = [m for m in record["members"] if m.get("chosen")]
        rate = f"{chosen[0]['learning_rate']:g}" if chosen else "-"
        commit = (record["environment"]["commit"] or "unknown")[:7]
        marks = "" if record["environment"]["clean"] else " (changed)"
        marks += " **stale**" if record["stale"] else ""
        cells = [_variant(record), *(_cell(record["metrics"].get(n)) for n in names), rate]
        cells += [str(record.get("steps", "-")), f"{record['seconds']['cpu']:.0f}", commit + marks]
        lines.append("| " + " | ".join(cells) + " |")
    baselines = group[0]["baselines"]
    if baselines:
        text = ", ".join(f"{n.replace('_', ' ')} {number(v)}" for n, v in baselines.items())
        lines += ["", f"Trivial predictors on the same set: {text}."]
    environment, seeds = group[0]["environment"], len(group[0]["seeds"])
    machine = f"{environment['cores']} cores of {environment['device']}"
    return [*lines, "", f"Mean and standard error over {seeds} seeds; {machine}."]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    sem = value["sem"]
    # A mean of equal numbers has a standard error of rounding.
    error = "" if sem is None or 0 < sem < 1e-12 * abs(value["mean"]) else f" ± {sem:.2g}"
    return f"{number(value['mean'])}{error}"


def _variant(record: Record) -> str:
    config = record["config"]
    return str(config.get("thaw", config.get("variant", record["config_file"])))


def _title(record: Record) -> str:
    config = record["config"]
    changed = ", ".join(f"{name} = {_spelled(v)}" for name, v in record["overrides"].items())
    words = [config["name"], config["scale"], config.get("preset", "")]
    return ", ".join(filter(None, [*words, changed]))


def _order(record: Record) -> tuple:
    config = record["config"]
    names = [*VARIANTS]
    variant = config.get("variant")
    place = names.index(variant) if variant in names else len(names)
    return config["name"], config["scale"], str(record["overrides"]), place, _variant(record)


def _spelled(value: Any) -> str:
    """A value as a flag would spell it."""
    if isinstance(value, list) and any(isinstance(entry, list) for entry in value):
        return repr(_tuples(value))
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(entry) for entry in value) if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
