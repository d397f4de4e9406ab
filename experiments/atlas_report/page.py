"""The files of an atlas: its record, its page and its picture."""

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from experiments.atlas_report import picture, table
from jaxformer.io.atomic_files import write_atomically, write_json
from jaxformer.report.html import document
from jaxformer.studies.anatomy.drawing import STYLE

ABOUT = (
    "Every row is one task, on which the same transformer was trained again and again with one "
    "part changed. Orange: what is lost of the way from guessing to the whole network, in percent. "
    "Green: at most 5 % is lost. Dashed: cannot tell yet."
)
# Before the table of a record with one learning rate, where a loser may not have trained.
UNTUNED = (
    "**Read the green cells only.** All networks had one learning rate and {steps} steps, so that "
    "a network which lost much may have needed another rate or more time: with a rate of .003 and "
    "1,600 steps, random mixing solves parity, where the table says that it loses everything. An "
    "orange or dashed cell therefore says nothing about the part. A green cell says that the part "
    "is not needed to solve this task at this size; it does not say that the part does nothing. "
    "Sentences about networks that were worse are left out."
)
# What the sentences of a report say of a network that lost.
LOSERS = ("cannot replace", "is worse", "must be trained")
# CPU hours: the seconds of a step of sort on one core, times 55 trainings of each task.
OTHER_SCALES = (
    "The scales `small` (width 64, 1,000 steps, two learning rates) and `medium` (width 128, four "
    "blocks, 3,000 steps) are not recorded: by the time of their steps all tasks take about three "
    "CPU hours and about a hundred."
)


def save(folder: Path, record: Mapping[str, Any]) -> None:
    """Writes atlas.json, atlas.html and atlas.svg into a folder of anatomies."""
    rows = record["tasks"]
    links = {
        name: f"{name}/anatomy.html" for name in rows if (folder / name / "anatomy.html").exists()
    }
    drawn = picture.picture(rows, links)
    sentences = "".join(f"<li>{escape(text)}</li>" for text in table.sentences(rows))
    body = (
        f"<main><h1>Atlas: what each part of a transformer does, by task</h1><p>{ABOUT} A click on "
        f"a row opens its report.</p>{drawn}<ul>{sentences}</ul>"
        f"<p>{escape(network_line(record))}</p></main>"
    )
    style = f"{STYLE} main{{max-width:900px;margin:auto;font-family:sans-serif}}"
    write_json(folder / "atlas.json", record)
    write_atomically(folder / "atlas.svg", picture.picture(rows).encode())
    page = document("Atlas", body, style)
    write_atomically(folder / "atlas.html", page.encode())


def network_line(record: Mapping[str, Any]) -> str:
    """The network and its training in words."""
    network = record["network"]
    rates = ", ".join(f"{rate:g}" for rate in network["rates"])
    return (
        f"Scale {record['scale']}: a decoder of {network['layers']} blocks, width "
        f"{network['width']}, {network['heads']} heads, {network['steps']} steps of AdamW with "
        f"learning rate {rates}, up to {record['seeds']} seeds."
    )


def markdown(record: Mapping[str, Any]) -> str:
    """The page of the documentation, from the record alone."""
    rows = record["tasks"]
    learned = [name for name in table.ordered(rows) if rows[name]["is_learned"]]
    missed = [name.replace("_", " ") for name in sorted(rows) if not rows[name]["is_learned"]]
    is_tuned = len(record["network"]["rates"]) > 1
    warning = [] if is_tuned else [UNTUNED.format(steps=record["network"]["steps"]), ""]
    summary = [f"- {text}" for text in table.sentences(rows)] if is_tuned else []
    lines = [
        "# Atlas: what each part does, by task",
        "",
        *warning,
        ABOUT,
        "",
        "![Tasks by changes of a transformer, coloured by what is lost](pictures/atlas.svg)",
        "",
        *summary,
        *([""] if summary else []),
        *(
            [f"Not learned by this network and training: {', '.join(missed)}.", ""]
            if missed
            else []
        ),
        network_line(record),
        "",
        OTHER_SCALES,
        "",
        "## What the reports say",
    ]
    for name in learned:
        row = rows[name]
        lines += [
            "",
            f"### {name.replace('_', ' ')}",
            "",
            f"Accuracy {row['score']:.3f}, guessing {row['guessing']:.3f}, "
            f"{row['trainings']:.0f} trainings.",
            "",
            *(f"- {text}" for text in row["sentences"] if is_tuned or not _is_of_a_loser(text)),
        ]
    lines += ["", "Made by `jaxformer atlas --write`, never by hand."]
    return "\n".join(lines) + "\n"


def _is_of_a_loser(sentence: str) -> bool:
    return any(words in sentence for words in LOSERS)


def read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_bytes())
