"""The README.md of an exported model, which hubs show as its model card."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.cli import flags
from experiments.cli.describe import TRIVIAL, meaning, reference_kind, run_title
from jaxformer import __version__
from jaxformer.core.text_format import counted, number, with_error
from jaxformer.report.tables import shown_metrics

CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags: [jaxformer]
---
# {title}

A Llama with {layers} of width {width}, exported from jaxformer {version}. {parameters}.

It was made to compare parts of transformers: it is small, it knows one text, and nothing was done
to make its answers true or harmless.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("FOLDER")
tokenizer = AutoTokenizer.from_pretrained("FOLDER")
```

## Scores on the test set

Means ± standard errors over {seeds}; this folder has one of them.

{scores}

{baselines}

## Training

{training}

```sh
{command}
```
"""
LABELS = {"train": "trained", "frozen": "kept at their random initial values"}


def model_card(result: Mapping[str, Any], stored: Mapping[str, Any]) -> str:
    """The text of the card.

    Args:
      result: result.json of the run
      stored: config.json of the run, with its config file and what the command changed
    """
    config, changed = result["config"], dict(stored["overrides"])
    tokens = Path(config["task"]["tokens"]).name  # a path would name folders of this machine
    if "task.tokens" in changed:
        changed["task.tokens"] = tokens
    names = [name for name in shown_metrics(list(result["metrics"])) if meaning(name)]
    metrics = {name: result["metrics"][name] for name in names}
    scores = [
        f"| {name} | {with_error(metric['mean'], metric['sem'])} | {meaning(name)} |"
        for name, metric in metrics.items()
    ]
    guesses = [
        f"{name.replace('_', ' ')} {number(value)}"
        for name, value in result["baselines"].items()
        if reference_kind(name) == TRIVIAL
    ]
    counts = ", ".join(f"{n:,} {LABELS.get(k, k)}" for k, n in result["parameters"].items())
    rates = [f"{m['learning_rate']:g}" for m in result["members"] if m.get("chosen")]
    steps = f"{result['steps']:,} steps on the text `{tokens}`"
    return CARD.format(
        title=run_title(result),
        layers=counted(config["model"]["layers"], "layer"),
        width=config["model"]["width"],
        version=__version__,
        parameters=f"Parameters: {counts}",
        seeds=counted(len(result["seeds"]), "seed"),
        scores="\n".join(["| metric | value | meaning |", "|---|---|---|", *scores]),
        baselines=f"Without a network: {', '.join(guesses)}." if guesses else "",
        training=f"{steps} at a learning rate of {rates[0]}." if rates else f"{steps}.",
        command=flags.run_command(stored["config_file"], changed),
    )
