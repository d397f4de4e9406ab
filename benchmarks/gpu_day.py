"""Measures a GPU within a given number of minutes, the most valuable measurement first.

    make gpu-day                                    on a machine with a GPU, 60 minutes
    python benchmarks/gpu_day.py --minutes=30
    python benchmarks/gpu_day.py --dry-run          the same stages on a CPU with tiny sizes

Needs Python 3.11 or newer and `pip install 'jaxformer[cuda13]'` (cuda12 for older drivers); the
last stage needs a clone with ml-collections. Each stage runs in its own process, so a failure does
not stop the next stages. Its numbers go into OUT/gpu_day.json as soon as it ends; a second call
runs the stages that are missing.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

REFERENCE = Path(__file__).with_name("gpu_day_reference.json")
CORRECT_STEPS, TIMED_STEPS = 20, 30
# Published samples per second (MixiT papers, version A, Appendix C).
PAPER_RATES = {"standard": 1022.8, "frozen_qk": 1267.1, "mixit": 1349.0}
# The largest accepted relative difference between the losses of the GPU and those of a CPU.
TOLERANCE = 1e-3
FROZEN_QK = ((".*/(query|key)/.*", "frozen"), (".*", "train"))
TRAIN_ALL = ((".*", "train"),)
PAPER_LM = dict(width=512, layers=12, heads=8, mlp_width=2048)  # 256 tokens, vocabulary 128,256
GPT = dict(width=768, layers=12, heads=12, mlp_width=3072)  # 113M parameters without embeddings
# The configs of the papers that the last stage runs, in this order.
CELLS = (
    "configs/mixit/retrieval.py:variant=standard,scale=paper",
    "configs/mixit/retrieval.py:variant=frozen_qk,scale=paper",
    "configs/mixit/retrieval.py:variant=mixit,scale=paper",
    "configs/mixit/hops.py:variant=frozen_qk,scale=paper",
    "configs/mixit/memorization.py:variant=mixit,scale=paper",
)


def lm(
    sizes: dict,
    length: int,
    vocab: int,
    batch_size: int,
    rules=TRAIN_ALL,
    steps=TIMED_STEPS,
    **options,
):
    """Trains a language model on random tokens; returns losses, speed, FLOPs and peak memory.

    `options` are fields of the model (mixer, fused, scan, dtype) and arguments of jaxformer.train.
    """
    import jax
    import jax.numpy as jnp

    import jaxformer
    from jaxformer.core.settings import DeviceSettings
    from jaxformer.models.decoder import decoder

    model_fields = {n: options.pop(n) for n in ("mixer", "fused", "scan") if n in options}
    dtype = options.pop("dtype", "float32")
    # `dtype` is the precision of the computation. Parameters are float32 in every run.
    model = decoder(
        **sizes, **model_fields, vocab_size=vocab, length=length, dtype=jnp.dtype(dtype)
    )
    run = jaxformer.train(
        random_tokens(length, vocab),
        model,
        rules,
        steps=steps,
        batch_size=batch_size,
        eval_every=0,
        log_every=1,
        data=one_heldout_example(),
        devices=DeviceSettings(data=1),
        progress=False,
        **options,
    )
    speed = run.trained.session.speed.performance()
    seconds = speed.get("step_seconds", float("nan"))
    return {
        "device": jax.devices()[0].device_kind,
        "losses": run.curves["loss"][:, 0].tolist(),
        "step_seconds": seconds,
        "samples_per_second": batch_size / seconds,
        "tokens_per_second": batch_size * length / seconds,
        "model_flops": speed["model_flops"],
        "share_of_matmul": speed.get("share_of_matmul"),
        "peak_memory": speed["peak_memory"],
    }


def random_tokens(length: int, vocab: int) -> Any:
    """Returns a task whose examples are uniform random tokens; each token is to be predicted."""
    from dataclasses import dataclass

    import jax
    import jax.numpy as jnp

    from jaxformer.planning.published import TokenTask
    from jaxformer.tasks.task import Batch

    @dataclass(frozen=True)
    class RandomTokens(TokenTask):
        def example(self, key, index):
            tokens = jax.random.randint(key, (self.length + 1,), 0, self.vocab_size)
            return Batch(tokens[:-1], tokens[1:], jnp.ones(self.length))

    return RandomTokens(length, vocab)


def one_heldout_example() -> Any:
    from jaxformer.core.settings import DataSettings

    return DataSettings(test_size=1, validation_size=1)


# Stages -------------------------------------------------------------------------------------------


def correctness(tiny: bool) -> dict[str, Any]:
    """Compares the losses of a float32 run with those of a CPU."""
    import jax

    jax.config.update("jax_default_matmul_precision", "highest")
    measured = reference_run()
    expected = json.loads(REFERENCE.read_text())["losses"]
    worst = max(abs(a - b) / abs(b) for a, b in zip(measured["losses"], expected, strict=True))
    return measured | {"largest_relative_difference": worst, "passes": worst < TOLERANCE}


def reference_run() -> dict[str, Any]:
    return lm(
        dict(width=64, layers=2, heads=4, mlp_width=256), 32, 64, 32, steps=CORRECT_STEPS, warmup=5
    )


def throughput(tiny: bool) -> dict[str, Any]:
    """Measures the samples per second of Standard, Frozen-QK and MixiT at the paper's sizes."""
    sizes, length, vocab, batch, options = paper_lm(tiny)
    variants = {"standard": {}, "frozen_qk": {"rules": FROZEN_QK}, "mixit": {"mixer": "mixit"}}
    results = {
        name: lm(sizes, length, vocab, batch, **options, **changes)
        for name, changes in variants.items()
    }
    rates = {name: result["samples_per_second"] for name, result in results.items()}
    return results | {
        "over_standard": {name: rate / rates["standard"] for name, rate in rates.items()},
        "paper_over_standard": {
            name: rate / PAPER_RATES["standard"] for name, rate in PAPER_RATES.items()
        },
    }


def paper_lm(tiny: bool) -> tuple[dict, int, int, int, dict[str, Any]]:
    """Returns the arguments of `lm` for the paper's model: sizes, length, vocab, batch, options."""
    if tiny:
        return dict(width=16, layers=2, heads=2, mlp_width=32), 16, 64, 4, {"steps": 4}
    return PAPER_LM, 256, 128_256, 128, {"loss_chunk": 4096}


def half_precision(tiny: bool) -> dict[str, Any]:
    """Compares bfloat16 with float32: time of a step, memory and loss."""
    sizes, length, vocab, batch, options = paper_lm(tiny)
    full, half = (
        lm(sizes, length, vocab, batch, **options, dtype=dtype) for dtype in ("float32", "bfloat16")
    )
    return {"float32": full, "bfloat16": half, **compared(full, half)}


def fused_attention(tiny: bool) -> dict[str, Any]:
    """Compares fused attention with attention by plain matrix products, in bfloat16."""
    sizes, length, vocab, batch, options = gpt(tiny)
    plain, fused = (
        lm(sizes, length, vocab, batch, **options, fused=is_fused) for is_fused in (False, True)
    )
    return {"plain": plain, "fused": fused, **compared(plain, fused)}


def compared(before: dict, after: dict) -> dict[str, float]:
    """Returns the ratios of speed and memory of two runs, and the difference of their losses."""
    differences = [
        abs(a - b) / abs(a) for a, b in zip(before["losses"], after["losses"], strict=True)
    ]
    return {
        "speedup": before["step_seconds"] / after["step_seconds"],
        "memory_ratio": after["peak_memory"] / before["peak_memory"],
        "largest_relative_difference": max(differences),
    }


def gpt(tiny: bool) -> tuple[dict, int, int, int, dict[str, Any]]:
    """Returns the arguments of `lm` for the 113M model: sizes, length, vocab, batch, options."""
    if tiny:
        sizes = dict(width=16, layers=2, heads=2, mlp_width=32)
        return sizes, 16, 64, 4, {"steps": 4, "dtype": "bfloat16"}
    # Without scan: what a scan stacks for its backward pass took 35 of 119 ms (docs/devices.md).
    return GPT, 1024, 50_304, 32, {"dtype": "bfloat16", "loss_chunk": 4096}


def utilisation(tiny: bool) -> dict[str, Any]:
    """Measures which share of the card's peak FLOPs the 113M language model reaches."""
    from jaxformer.planning.cards import CARDS

    sizes, length, vocab, batch, options = gpt(tiny)
    result = lm(sizes, length, vocab, batch, **options, fused=True)
    kind = result["device"].lower()
    card = next((card for name, card in CARDS.items() if name in kind), None)
    if card is not None:
        rate = result["model_flops"] / result["step_seconds"]
        result["model_flops_utilisation"] = rate / card.bfloat16_rate
    return result


def planned_memory(tiny: bool) -> dict[str, Any]:
    """Compares the measured memory of a run with the memory in its plan."""
    sizes, length, vocab, batch, options = gpt(tiny)
    measured = lm(sizes, length, vocab, batch, **options)
    # The plan compiles on a CPU for the card, so it needs a process without a GPU.
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1]); import gpu_day;"
        "print(json.dumps(gpu_day.plan_of_gpt(sys.argv[2] == 'tiny', sys.argv[3])))"
    )
    target = "cpu:1"  # for a card without a target
    for name in ("h100", "h200", "a100"):
        if name in measured["device"].lower():
            target = f"{name}:1"
    folder, size = str(Path(__file__).parent), "tiny" if tiny else "full"
    command = [sys.executable, "-c", code, folder, size, target]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    out = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    plan = json.loads(out.stdout.splitlines()[-1])
    return {
        "measured": measured["peak_memory"],
        "planned": plan["peak"],
        "planned_over_measured": plan["peak"] / measured["peak_memory"],
        "step_seconds_over_bound": measured["step_seconds"] / plan["step_seconds"],
    }


def plan_of_gpt(tiny: bool, target: str) -> dict[str, Any]:
    """Returns the peak memory and the lower bound of a step's time, planned for the 113M model."""
    import jax.numpy as jnp

    import jaxformer
    from jaxformer.models.decoder import decoder

    sizes, length, vocab, batch, options = gpt(tiny)
    model = decoder(
        **sizes,
        vocab_size=vocab,
        length=length,
        dtype=jnp.dtype(options["dtype"]),
    )
    plan = jaxformer.plan(
        random_tokens(length, vocab),
        model,
        target=target,
        batch_size=batch,
        loss_chunk=options.get("loss_chunk", 0),
        data=one_heldout_example(),
    )
    return {"peak": plan.peak, "step_seconds": plan.step_seconds}


def cells(tiny: bool) -> dict[str, Any]:
    """Runs the configs of CELLS at scale=paper and records them, until the time is over."""
    configs = (CELLS[0].replace("paper", "tiny"),) if tiny else CELLS
    root, codes = Path(__file__).parents[1], {}
    deadline = time.monotonic() + float(os.environ.get("GPU_DAY_SECONDS", "600"))
    for config in configs:
        seconds = deadline - time.monotonic()
        if seconds < 30:
            break
        command = [sys.executable, str(root / "experiments/run.py"), f"--config={config}"]
        command += ["--record"] * (not tiny)
        process = subprocess.Popen(command, cwd=root)
        try:
            codes[config] = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.terminate()  # saves a checkpoint: the same command resumes
            codes[config] = process.wait()
    return {"exit_codes": codes}


STAGES: dict[str, Callable[[bool], dict[str, Any]]] = {
    function.__name__: function
    for function in (
        correctness,
        utilisation,
        throughput,
        half_precision,
        fused_attention,
        planned_memory,
        cells,
    )
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=Path("runs/gpu_day"))
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes, also on a CPU")
    parser.add_argument("--only", default="", help=f"one of {', '.join(STAGES)}")
    parser.add_argument("--reference", action="store_true", help="write the losses of this CPU")
    # `run_stages` starts this program again with --stage, once for each stage.
    parser.add_argument("--stage", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.reference:
        losses = reference_run()["losses"]
        REFERENCE.write_text(json.dumps({"losses": losses}, indent=1) + "\n")
        return 0
    if args.stage:
        print(json.dumps(STAGES[args.stage](args.dry_run)))
        return 0
    return run_stages(args)


def run_stages(args: argparse.Namespace) -> int:
    """Runs each stage without a result in its own process; returns 1 if one of them failed."""
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "gpu_day.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    deadline = time.monotonic() + 60 * args.minutes
    failed = False
    for name in [args.only] if args.only else STAGES:
        seconds = deadline - time.monotonic()
        if name in results or seconds < 20:
            print(f"{name}: {'done before' if name in results else 'no time left'}", flush=True)
            continue
        command = [sys.executable, __file__, f"--stage={name}", *["--dry-run"] * args.dry_run]
        environment = os.environ | {"GPU_DAY_SECONDS": str(seconds - 10)}
        began = time.monotonic()
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=seconds, env=environment
            )
        except subprocess.TimeoutExpired:
            print(f"{name}: stopped after {seconds:.0f} s", flush=True)
            failed = True
            continue
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            print(f"{name}: failed: {reason}", flush=True)
            failed = True
            continue
        results[name] = json.loads(done.stdout.splitlines()[-1])
        file.write_text(json.dumps(results, indent=1) + "\n")
        print(f"{name} ({time.monotonic() - began:.0f} s): {summary(results[name])}", flush=True)
    print(f"numbers: {file}")
    return int(failed)


def summary(result: dict[str, Any]) -> str:
    """Returns the numbers of a stage that are not nested, in one line."""
    numbers = {k: v for k, v in result.items() if isinstance(v, bool | int | float | str)}
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in numbers.items()
    )


if __name__ == "__main__":
    sys.exit(main())
