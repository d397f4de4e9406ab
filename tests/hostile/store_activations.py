"""Stores the activations of many prompts on disk, and reads them back.

python -m tests.hostile.store_activations FOLDER
"""

import sys
from collections.abc import Sequence

import numpy as np

from jaxformer import capture
from jaxformer.models.pretrained import tiny
from jaxformer.runtime.command_line import Parser, command

NAMES = (r"block_\d+/states", "block_1/attn/heads")


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("folder", metavar="FOLDER")
    folder = parser.parse_args(argv).folder
    model, params, _ = tiny.tiny("gpt2", 24)
    prompts = np.random.default_rng(0).integers(0, 24, (13, 6))
    capture.store(folder, model, params, prompts, NAMES, positions=[-1], batch_size=2)
    for name, value in capture.load_stored(folder).items():
        print(name, value.shape)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
