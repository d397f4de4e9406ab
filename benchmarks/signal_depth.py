"""Compares the cosine of two tokens by depth in three theories with measured encoders.

    python benchmarks/signal_depth.py --seeds 30          about 1 minute on one core

The setting of arXiv 2505.24333, Figure 1d: width d = 600, H = 6 heads, T = 64 tokens, 60 layers and
attention of sharpness beta = 0.02. The random keys are 0 .. seeds-1. The exact theory is the wide
limit at fixed T; a finite width adds a bias of order 1/d.
"""

import argparse
import time

import jax
import numpy as np

from theory.signal import OVERLAPS, Block, propagate
from theory.signal.encoder import measure

LAYERS = (1, 6, 12, 24, 36, 48, 60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--width", type=int, default=600)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--depth", type=int, default=60)
    parser.add_argument("--beta", type=float, default=0.02)
    parser.add_argument("--alphas", type=float, nargs="+", default=[1.0, 1.5])
    args = parser.parse_args()
    with jax.enable_x64(True):
        for alpha in args.alphas:
            compare(args, alpha)


def compare(args: argparse.Namespace, alpha: float) -> None:
    block = Block(
        args.beta, alpha_sa=alpha, alpha_mlp=1.0, sigma_v2=0.2, sigma_w2=0.2, sigma_b2=4e-4
    )
    start = time.process_time()
    keys = jax.vmap(jax.random.key)(np.arange(args.seeds))
    sizes = (args.depth, args.length, args.width, args.heads)
    cosine = np.asarray(measure(keys, block, *sizes, dtype=np.float32).cosine, float)
    seconds = time.process_time() - start
    mean, error = cosine.mean(0), cosine.std(0, ddof=1) / args.seeds**0.5
    theory = {
        name: np.asarray(propagate(0.0, block, args.depth, args.length, name)) for name in OVERLAPS
    }
    print(
        f"\nd={args.width} H={args.heads} T={args.length} L={args.depth} beta={args.beta} "
        f"alpha={alpha}: {args.seeds} seeds, {seconds:.0f} CPU seconds with compilation"
    )
    print("layer  measured  +- s.e. " + "".join(f"{name:>11}" for name in theory))
    for layer in [x for x in LAYERS if x <= args.depth]:
        row = "".join(f"{line[layer]:11.4f}" for line in theory.values())
        print(f"{layer:5d}  {mean[layer]:8.4f} {error[layer]:8.4f} {row}")
    gaps = {name: np.abs(line - mean) for name, line in theory.items()}
    largest = "".join(f"{gap.max():11.4f}" for gap in gaps.values())
    print(f"largest error          {largest}")
    rms = "".join(f"{(gap**2).mean() ** 0.5:11.4f}" for gap in gaps.values())
    print(f"rms error              {rms}")
    exact, limit = gaps["exact"].max(), gaps["limit"].max()
    worst = int(np.argmax(gaps["exact"]))
    print(
        f"exact: largest error {exact:.4f} at layer {worst} ({exact / error[worst]:.1f} s.e.; "
        f"largest s.e. {error.max():.4f}), {exact / limit:.2f} of the limit's"
    )


if __name__ == "__main__":
    main()
