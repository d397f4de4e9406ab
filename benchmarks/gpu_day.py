"""Measures a GPU within a quarter of an hour, the most valuable measurement first.

    make gpu-day                                    on a machine with a GPU, 15 minutes
    python benchmarks/gpu_day.py --minutes=60
    python benchmarks/gpu_day.py --dry-run          the same stages on a CPU with tiny sizes

Needs Python 3.11 or newer and `pip install 'jaxformer[cuda13]'` (cuda12 for older drivers); the
last stage needs a clone with ml-collections. Each stage runs in its own process for at most two
minutes, with start and compilation, so neither a failure nor a slow compilation stops the next
ones. Each number is printed and added to OUT/gpu_day.jsonl as soon as it is measured, so an
interrupted stage loses only what was not measured yet. A second call runs the stages that did not
end.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

REFERENCE = Path(__file__).with_name("gpu_day_reference.json")
CORRECT_STEPS, TIMED_STEPS = 20, 20
STAGE_SECONDS = 120.0
END = "end"  # the name of the row that a stage writes when it is done
# XLA would otherwise time its own kernels for every matrix product, which takes minutes. Plans are
# compiled in the same way.
LIBRARY_PRODUCTS = "--xla_gpu_enable_triton_gemm=false"
# Published samples per second (MixiT papers, version A, Appendix C).
PAPER_RATES = {"standard": 1022.8, "frozen_qk": 1267.1, "mixit": 1349.0}
# The largest accepted relative difference between the losses of the GPU and those of a CPU.
TOLERANCE = 1e-3
FROZEN_QK = ((".*/(query|key)/.*", "frozen"), (".*", "train"))
TRAIN_ALL = ((".*", "train"),)
PAPER_LM = dict(width=512, layers=12, heads=8, mlp_width=2048)  # 256 tokens, vocabulary 128,256
GPT = dict(width=768, layers=12, heads=12, mlp_width=3072)  # 113M parameters without embeddings

Row = tuple[str, dict[str, Any]]  # the name of a measurement, and its numbers


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

    `options` are fields of the model, such as mixer, fused or dtype, `batch` instead of batch_size,
    and arguments of jaxformer.train.
    """
    import jax
    import jax.numpy as jnp

    import jaxformer
    from jaxformer.core.settings import DeviceSettings
    from jaxformer.models.decoder import decoder

    names = ("mixer", "fused", "scan", "remat", "remat_keep")
    model_fields = {name: options.pop(name) for name in names if name in options}
    batch_size = options.pop("batch", batch_size)
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


# Stages: each yields rows, the most valuable first ------------------------------------------------


def correctness(tiny: bool) -> Iterator[Row]:
    """Compares the losses of a float32 run with those of a CPU, and bfloat16 with float32."""
    import jax

    jax.config.update("jax_default_matmul_precision", "highest")
    measured = reference_run()
    expected = json.loads(REFERENCE.read_text())["losses"]
    worst = largest_difference(expected, measured["losses"])
    yield "float32", measured | {"from_a_cpu": worst, "passes": worst < TOLERANCE}
    half = reference_run(dtype="bfloat16")
    yield "bfloat16", half | {"from_a_cpu": largest_difference(expected, half["losses"])}


def reference_run(**options) -> dict[str, Any]:
    sizes = dict(width=64, layers=2, heads=4, mlp_width=256)
    return lm(sizes, 32, 64, 32, steps=CORRECT_STEPS, warmup=5, **options)


def largest_difference(expected: list[float], measured: list[float]) -> float:
    return max(abs(a - b) / abs(b) for a, b in zip(measured, expected, strict=True))


def utilisation(tiny: bool) -> Iterator[Row]:
    """Measures which share of the card's peak FLOPs the 113M language model reaches."""
    from jaxformer.planning.cards import CARDS

    sizes, length, vocab, batch, options = gpt(tiny)
    for name, changes in VARIANTS.items():
        result = lm(sizes, length, vocab, batch, **(options | changes))
        kind = result["device"].lower()
        card = next((card for name, card in CARDS.items() if name in kind), None)
        if card is not None:
            rate = result["model_flops"] / result["step_seconds"]
            result["share_of_peak"] = rate / card.bfloat16_rate
        yield name, result


# {name: changes of `gpt`}, for measurements and forecasts.
VARIANTS = {
    "unrolled": {"fused": True},
    "remat": {"fused": True, "remat": True, "remat_keep": "dense"},
    "all logits twice": {"fused": True, "loss_chunk": 0, "batch": 8},
    "plain attention": {"fused": False},
}


def forecasts(tiny: bool) -> Iterator[Row]:
    """Forecasts the steps that `utilisation` measures, by class of operation."""
    target = os.environ.get("GPU_DAY_TARGET", "")
    for name, changes in VARIANTS.items():
        yield name, forecast_of_gpt(tiny, target, changes)


def forecast_of_gpt(tiny: bool, target: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Returns memory and time of a step, planned for a card in a process without it."""
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1]); import gpu_day;"
        "print(json.dumps(gpu_day.plan_of_gpt(*json.loads(sys.argv[2]))))"
    )
    arguments = json.dumps([tiny, target or "cpu:1", changes])
    command = [sys.executable, "-c", code, str(Path(__file__).parent), arguments]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    out = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return json.loads(out.stdout.splitlines()[-1])


def plan_of_gpt(tiny: bool, target: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Returns the peak memory, the bound and the forecast of a step of the 113M model."""
    import jax.numpy as jnp

    import jaxformer
    from jaxformer.models.decoder import decoder

    sizes, length, vocab, batch, options = gpt(tiny)
    options = options | changes
    batch, loss_chunk = options.pop("batch", batch), options.pop("loss_chunk", 0)
    options.pop("steps", 0)
    dtype = jnp.dtype(options.pop("dtype"))
    plan = jaxformer.plan(
        random_tokens(length, vocab),
        decoder(**sizes, vocab_size=vocab, length=length, dtype=dtype, **options),
        target=target,
        batch_size=batch,
        loss_chunk=loss_chunk,
        data=one_heldout_example(),
    )
    classes = {part.kind: part.forecast for part in plan.classes}
    forecast = plan.forecast_seconds if plan.classes else None
    return {
        "peak": plan.peak,
        "bound": plan.step_seconds,
        "forecast": forecast,
        "classes": classes,
    }


def throughput(tiny: bool) -> Iterator[Row]:
    """Measures samples per second of Standard, Frozen-QK and MixiT at the papers' sizes."""
    sizes, length, vocab, batch, options = paper_lm(tiny)
    variants = {"standard": {}, "frozen_qk": {"rules": FROZEN_QK}, "mixit": {"mixer": "mixit"}}
    for dtype in ("bfloat16", "float32"):
        rates: dict[str, float] = {}
        for name, changes in variants.items():
            is_fused = dtype == "bfloat16" and name != "mixit"
            result = lm(
                sizes, length, vocab, batch, **options, **changes, dtype=dtype, fused=is_fused
            )
            rates[name] = result["samples_per_second"]
            yield (
                f"{name} {dtype}",
                result
                | {
                    "over_standard": rates[name] / rates["standard"],
                    "paper_over_standard": PAPER_RATES[name] / PAPER_RATES["standard"],
                    "paper_samples_per_second": PAPER_RATES[name],
                },
            )


def paper_lm(tiny: bool) -> tuple[dict, int, int, int, dict[str, Any]]:
    """Returns the arguments of `lm` for the paper's model: sizes, length, vocab, batch, options."""
    if tiny:
        return dict(width=16, layers=2, heads=2, mlp_width=32), 16, 64, 4, {"steps": 4}
    return PAPER_LM, 256, 128_256, 128, {"loss_chunk": 4096}


def gpt(tiny: bool) -> tuple[dict, int, int, int, dict[str, Any]]:
    """Returns the arguments of `lm` for the 113M model: sizes, length, vocab, batch, options."""
    if tiny:
        sizes = dict(width=16, layers=2, heads=2, mlp_width=32)
        return sizes, 16, 64, 4, {"steps": 4, "dtype": "bfloat16"}
    # Without scan: what a scan stacks for its backward pass took 35 of 119 ms (docs/devices.md).
    return GPT, 1024, 50_304, 32, {"dtype": "bfloat16", "loss_chunk": 4096}


def ladders(tiny: bool) -> Iterator[Row]:
    """Runs the sizes of the ladders that need an accelerator, until the time is over."""
    seconds = float(os.environ.get("GPU_DAY_SECONDS", "600"))
    command = ["experiments/ladder.py", "run", "--card", f"--budget={max(seconds - 20, 1):.0f}s"]
    command = [sys.executable, *command, *["--help"] * tiny]
    root = Path(__file__).parents[1]
    yield "rungs", {"exit_code": subprocess.run(command, cwd=root, stdout=sys.stderr).returncode}


STAGES: dict[str, Callable[[bool], Iterator[Row]]] = {
    function.__name__: function
    for function in (correctness, utilisation, throughput, forecasts, ladders)
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=15.0)
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
        for name, numbers in STAGES[args.stage](args.dry_run):
            print(json.dumps([name, numbers]), flush=True)
        return 0
    return run_stages(args)


def run_stages(args: argparse.Namespace) -> int:
    """Runs each stage that did not end yet in its own process; returns 1 if one of them failed."""
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "gpu_day.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    deadline = time.monotonic() + 60 * args.minutes
    failed = False
    for stage in [args.only] if args.only else STAGES:
        seconds = deadline - time.monotonic()
        if any(row["stage"] == stage and row["name"] == END for row in rows) or seconds < 20:
            print(f"{stage}: {'no time left' if seconds < 20 else 'done before'}", flush=True)
            continue
        if stage != "ladders":  # which end by themselves and can be resumed
            seconds = min(seconds, STAGE_SECONDS)
        failed |= not run_stage(stage, seconds, args.dry_run, file, rows)
    print(f"numbers: {file}")
    return int(failed)


def run_stage(stage: str, seconds: float, tiny: bool, file: Path, rows: list[dict]) -> bool:
    """Runs a stage and writes its rows as they come; returns whether it ended in time."""
    began = time.monotonic()
    flags = f"{os.environ.get('XLA_FLAGS', '')} {LIBRARY_PRODUCTS}".strip()
    environment = os.environ | {"GPU_DAY_SECONDS": str(seconds), "GPU_DAY_TARGET": target_of(rows)}
    environment |= {"XLA_FLAGS": flags}
    command = [sys.executable, __file__, f"--stage={stage}", *["--dry-run"] * tiny]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    stderr: list[str] = []
    threading.Thread(target=lambda: stderr.extend(process.stderr or ()), daemon=True).start()
    timer = threading.Timer(seconds, process.kill)
    timer.start()

    def write(name: str, numbers: dict[str, Any]) -> None:
        taken = time.monotonic() - began
        rows.append({"stage": stage, "name": name, "after_seconds": taken, **numbers})
        with file.open("a") as lines:
            lines.write(json.dumps(rows[-1]) + "\n")
        print(f"{stage}, {name} ({taken:.0f} s): {summary(numbers)}", flush=True)

    for line in process.stdout or ():
        if line.startswith("["):
            write(*json.loads(line))
    code = process.wait()
    timer.cancel()
    if code:
        last = (("".join(stderr)).strip().splitlines() or ["no message"])[-1]
        reason = f"stopped after {seconds:.0f} s" if code < 0 else f"failed: {last}"
        print(f"{stage}: {reason}", flush=True)
        return False
    write(END, {})
    return True


def target_of(rows: list[dict]) -> str:
    """Returns the target of the card that the rows were measured on, "" if there is none."""
    devices = " ".join(str(row.get("device", "")) for row in rows).lower()
    return next((f"{name}:1" for name in ("h100", "h200", "a100") if name in devices), "")


def summary(result: dict[str, Any]) -> str:
    """Returns the numbers of a row that are not nested, in one line."""
    numbers = {k: v for k, v in result.items() if isinstance(v, bool | int | float | str)}
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in numbers.items()
    )


if __name__ == "__main__":
    sys.exit(main())
